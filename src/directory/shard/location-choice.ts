import { isExpired } from '../../base/expiry.js';
import { DIRECTORY_CHOICE_MAX_COUNT } from '../../base/limits.js';
import type { LocationLists } from './location-lists.js';
import { NO_SLOT } from './location-slab.js';
import type { NodeRecord } from './node-records.js';

/** A reader and the nodes to avoid: their locations are used only as a last resort. */
interface Wishes {
  readonly asker: string;
  readonly avoided: readonly string[];
}

/** Chooses which location of a key a reader gets. */
export class LocationChoice {
  readonly #lists: LocationLists;
  readonly #isLive: (record: NodeRecord) => boolean;
  readonly #present: () => number;
  /** Advances from reader to reader, so that readers spread over the nodes that have a page. */
  #turn = 0;

  /** `present`: the present of the hybrid clock, by which locations expire. */
  constructor(lists: LocationLists, isLive: (record: NodeRecord) => boolean, present: () => number) {
    this.#lists = lists;
    this.#isLive = isLive;
    this.#present = present;
  }

  /**
   * The slot of one live location of a key that is not expired; NO_SLOT: there is none. Memory is preferred to disk; the first
   * DIRECTORY_CHOICE_MAX_COUNT of the preferred locations take turns. A node in `avoided` is chosen only when no other
   * node is left, and the node `asker` only when even avoided ones are not.
   */
  choose(key: string, asker = '', avoided: readonly string[] = []): number {
    const head = this.#lists.keys.get(key);
    if (head === undefined) return NO_SLOT;
    let own = NO_SLOT;
    let last = NO_SLOT;
    let only = NO_SLOT;
    let count = 0;
    let tier = 0;
    for (let slot = head; slot !== NO_SLOT; slot = this.#lists.slab.nextOf(slot)) {
      const record = this.#lists.recordAt(this.#lists.slab.nodeOf(slot));
      if (!this.#isLive(record) || this.#isExpired(slot)) continue;
      if (record.nodeId === asker) {
        own = slot;
        continue;
      }
      if (avoided.includes(record.nodeId)) {
        last = slot;
        continue;
      }
      const slotTier = this.#lists.slab.tierOf(slot);
      if (count > 0 && slotTier > tier) continue;
      count = count > 0 && slotTier === tier ? count + 1 : 1;
      only = slot;
      tier = slotTier;
      if (tier === 0 && count === DIRECTORY_CHOICE_MAX_COUNT) break;
    }
    if (count === 0) return last === NO_SLOT ? own : last;
    return count === 1 ? only : this.#inTurn(head, count, { asker, avoided, tier });
  }

  #isExpired(slot: number): boolean {
    const expires = this.#lists.slab.expiresOf(slot);
    return expires !== 0 && isExpired(expires, this.#present());
  }

  #inTurn(head: number, count: number, { asker, avoided, tier }: Wishes & { readonly tier: number }): number {
    this.#turn = (this.#turn + 1) >>> 0;
    let left = this.#turn % count;
    for (let slot = head; slot !== NO_SLOT; slot = this.#lists.slab.nextOf(slot)) {
      const record = this.#lists.recordAt(this.#lists.slab.nodeOf(slot));
      if (!this.#isLive(record) || this.#isExpired(slot) || this.#lists.slab.tierOf(slot) !== tier) continue;
      if (record.nodeId === asker || avoided.includes(record.nodeId)) continue;
      if (left-- === 0) return slot;
    }
    return NO_SLOT;
  }
}
