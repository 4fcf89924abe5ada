import { isExpired } from '../../base/expiry.js';
import { DIRECTORY_CHOICE_MAX_COUNT, DIRECTORY_NEAREST_MAX_COUNT } from '../../base/limits.js';
import { DISTANCES, type Distances } from '../../net/distance.js';
import type { KnownClears } from './known-clears.js';
import type { LocationLists } from './location-lists.js';
import { NO_SLOT } from './location-slab.js';
import type { NodeRecord } from './node-records.js';
import type { VoidVersions } from './void-versions.js';

/** A reader and the nodes to avoid: their locations are used only as a last resort. */
interface Wishes {
  readonly asker: string;
  readonly avoided: readonly string[];
}

/** The locations that take turns: those of the best rank, on nodes that are neither the asker nor avoided. */
interface Preferred extends Wishes {
  readonly rank: number;
  readonly distances: Distances;
}

/** The hybrid clock, as a shard uses it. */
export interface ShardClock {
  /** The present, as a version. */
  now(): number;
  /** Whether a version or an expiry is so far ahead that a wrong clock has given it out. */
  isAhead(version: number, expires: number): boolean;
  /**
   * Takes note of a version: what this node sets or deletes later gets a newer one, and the present is not before it.
   */
  see(version: number): void;
}

/** The part of a shard's options that concerns the choice of locations. */
export interface LocationChoiceOptions {
  /** The clock by which locations expire; default: none expires. */
  readonly versions?: ShardClock;
  /** How far nodes are from an asking one, which gets the nearest location. Default: all are equally far. */
  readonly distancesFrom?: (asker: string) => Distances;
  /**
   * The clears that the shard's node knows of. Copies that they make void are neither handed out nor taken. Default:
   * none.
   * @internal
   */
  readonly clears?: KnownClears;
  /**
   * The notes of the shard. Locations that are void by other nodes' notes may stay listed for a while, but are not
   * handed out. Default: none.
   * @internal
   */
  readonly voids?: Pick<VoidVersions, 'isTaking' | 'isVoid'>;
  /** Whether the disk of a node does not answer; default: all answer. */
  readonly isDiskHung?: (nodeId: string) => boolean;
}

/** Chooses which location of a key a reader gets. */
export class LocationChoice {
  readonly #lists: LocationLists;
  readonly #isLive: (record: NodeRecord) => boolean;
  readonly #options: LocationChoiceOptions;
  /** Advances from reader to reader, so that readers spread over the nodes that have a page. */
  #turn = 0;

  constructor(lists: LocationLists, isLive: (record: NodeRecord) => boolean, options: LocationChoiceOptions) {
    this.#lists = lists;
    this.#isLive = isLive;
    this.#options = options;
  }

  /**
   * Returns the slot of a readable location of a key, or NO_SLOT if there is none. Memory is preferred to disk, then a
   * near location to a farther one, among the first DIRECTORY_NEAREST_MAX_COUNT. The first DIRECTORY_CHOICE_MAX_COUNT
   * of the preferred locations take turns. A node in `avoided` is chosen only if no other node is left, and the node
   * `asker` only if not even an avoided one is.
   */
  choose(key: string, asker = '', avoided: readonly string[] = []): number {
    const head = this.#lists.keys.get(key);
    if (head === undefined) return NO_SLOT;
    let own = NO_SLOT;
    let last = NO_SLOT;
    let only = NO_SLOT;
    let count = 0;
    let rank = 0;
    let looked = 0;
    const distances = this.#options.distancesFrom?.(asker);
    for (let slot = head; slot !== NO_SLOT; slot = this.#lists.slab.nextOf(slot)) {
      const record = this.#lists.recordAt(this.#lists.slab.nodeOf(slot));
      if (!this.isReadable(key, slot)) continue;
      if (record.nodeId === asker) {
        own = slot;
        continue;
      }
      if (avoided.includes(record.nodeId)) {
        last = slot;
        continue;
      }
      const slotRank = this.#rankOf(slot, distances);
      looked++;
      if (count === 0 || slotRank <= rank) {
        count = count > 0 && slotRank === rank ? count + 1 : 1;
        only = slot;
        rank = slotRank;
      }
      const isBest = rank === 0 && count === DIRECTORY_CHOICE_MAX_COUNT;
      const isEnough = distances !== undefined && looked >= DIRECTORY_NEAREST_MAX_COUNT && rank < DISTANCES.length;
      if (isBest || isEnough) break;
    }
    if (count === 0) return last === NO_SLOT ? own : last;
    return count === 1 ? only : this.#inTurn(key, count, { asker, avoided, rank, distances });
  }

  /**
   * Whether the node of a location is live and can read the page, and the page is not expired, not void and not a copy
   * of a cleared page.
   */
  isReadable(key: string, slot: number): boolean {
    const { slab } = this.#lists;
    const { voids } = this.#options;
    const record = this.#lists.recordAt(slab.nodeOf(slot));
    if (!this.#isLive(record) || this.#isExpired(slot)) return false;
    if (voids?.isTaking === true && voids.isVoid(key, slab.versionOf(slot)) && slab.versionOf(slot) > 0) return false;
    if (this.#options.clears?.isVoid(key, slab.versionOf(slot), slab.setByOf(slot)) === true) return false;
    return slab.tierOf(slot) === 0 || this.#options.isDiskHung?.(record.nodeId) !== true;
  }

  /** The rank of a location by tier, then by distance. The lowest is the best. */
  #rankOf(slot: number, distances: Distances): number {
    const tier = this.#lists.slab.tierOf(slot) * DISTANCES.length;
    if (distances === undefined) return tier;
    return tier + distances(this.#lists.recordAt(this.#lists.slab.nodeOf(slot)).nodeId);
  }

  #isExpired(slot: number): boolean {
    const expires = this.#lists.slab.expiresOf(slot);
    return expires !== 0 && isExpired(expires, this.#options.versions?.now() ?? 0);
  }

  #inTurn(key: string, count: number, { asker, avoided, rank, distances }: Preferred): number {
    this.#turn = (this.#turn + 1) >>> 0;
    let left = this.#turn % count;
    for (let slot = this.#lists.keys.get(key) ?? NO_SLOT; slot !== NO_SLOT; slot = this.#lists.slab.nextOf(slot)) {
      const record = this.#lists.recordAt(this.#lists.slab.nodeOf(slot));
      if (!this.isReadable(key, slot)) continue;
      if (record.nodeId === asker || avoided.includes(record.nodeId) || this.#rankOf(slot, distances) !== rank)
        continue;
      if (left-- === 0) return slot;
    }
    return NO_SLOT;
  }
}
