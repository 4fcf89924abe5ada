import type { Clock } from '../../base/environment/clock.js';
import { digestOfStart } from '../../directory/shard/node-starts.js';
import type { DiskStore } from '../../disk/disk-store.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { Cluster } from './store-ground.js';

/** Time between two checks whether the pages are settled, and after {@link SOON_COUNT} checks. */
const SOON_MS = 50;
const LATER_MS = 1000;
const SOON_COUNT = 40;
/** Milliseconds within which nobody can remove so many keys that owners forget one of them. */
const FORGOTTEN_AFTER_MS = 2000;

/** Note kept beside pages that outlive their process: the last start at which all of them were known to be good. */
export interface StartNote {
  /** See `digestOfStart`; 0: not known. */
  readonly start: number;
  note(start: number): void;
}

/** Resolves with which pages are still good, and makes those visible to readers; see `PageStatements.confirm`. */
type Confirm = (keys: readonly string[]) => Promise<boolean[]>;

export interface SettlingOptions {
  readonly cluster: Cluster;
  readonly disk: DiskStore | null;
  readonly pool: PublishedPool;
  /** The note beside the pool; undefined: the pool does not outlive its process. */
  readonly poolNote: StartNote | undefined;
  /** Version of the newest page that the pool has from before this start. */
  readonly newestInPool: number;
  /** Whether the knowledge of other nodes is needed even without pages from before this start. */
  readonly needsOthers: boolean;
  /**
   * Shortest time after an absence, in ms, before the pages count as settled: a master that has just started learns of
   * the other members only then.
   */
  readonly quietMs: number;
  readonly clock: Clock;
}

/**
 * Tracks the pages that this node has from before an absence until they are settled. They may have been overwritten or
 * deleted meanwhile: while the node was down, or while others had dropped it as a member. Other nodes know whether they
 * were, but a node that has found no discovery master does not know the other nodes. Statements of such pages name the
 * last start of this node at which all its pages were settled; owners that have forgotten removals since then refuse
 * the pages.
 *
 * Pages of the pool from before this start stay hidden until they are confirmed, because other nodes read its memory
 * without asking it.
 */
export class Settling {
  readonly #options: SettlingOptions;
  /** The notes beside the pool and on the disk, if any. */
  readonly #notes: readonly StartNote[];
  readonly #hasEarlier: boolean;
  readonly #startMs: number;
  /** When this node was last away, or started. */
  #awayMs: number;
  /** The last start at which all pages were settled. */
  #settledStart: number;
  #hasHeard = false;
  #confirm: Confirm | undefined;
  /** Ends the wait for the next check; undefined: everything is settled, and there are no checks. */
  #endLooks: (() => void) | undefined;
  #endAsking: () => void = () => {};
  #stopped = false;

  constructor(options: SettlingOptions) {
    const { cluster, disk, pool, poolNote, newestInPool, clock } = options;
    this.#options = options;
    const isDiskEmpty = disk === null || disk.info().entries === 0;
    this.#hasEarlier = !(isDiskEmpty && pool.states.countOf('earlier') === 0);
    // Versions continue after those of earlier pages, in case the date was set back a little since.
    cluster.versions.remember(Math.max(newestInPool, isDiskEmpty ? 0 : disk.newestVersion));
    const inPool = poolNote === undefined ? [] : [poolNote];
    const onDisk = disk === null ? [] : [disk.startNote];
    this.#notes = [...inPool, ...onDisk];
    const besidePages = [...(pool.size > 0 ? inPool : []), ...(isDiskEmpty ? [] : onDisk)];
    const [first, ...others] = besidePages.map(({ start }) => start);
    this.#settledStart = first !== undefined && others.every((start) => start === first) ? first : 0;
    this.#startMs = clock.nowMs();
    this.#awayMs = this.#startMs;
    if (first !== undefined) this.#sayFormer();
    this.#lookSoon();
  }

  /** Starts to wait for the other nodes' reports, and confirms the pages of the pool with them. */
  start(confirm: Confirm): void {
    this.#confirm = confirm;
    if (this.#hasEarlier || this.#options.needsOthers) void this.#ask();
    // Earlier checks do not count: the node could not ask others yet.
    this.#endLooks?.();
    this.#lookAfter(SOON_MS, 1);
  }

  /**
   * Whether all other nodes have reported what they know since {@link start}, so that pages of the object store can be
   * told from replaced ones.
   */
  get hasHeard(): boolean {
    return this.#hasHeard;
  }

  /**
   * Whether all other nodes have reported what they know and have answered this node's announcements, so that no page
   * from before this start is uncertain.
   */
  get isSettled(): boolean {
    if (!this.#hasEarlier) return true;
    const { cluster } = this.#options;
    return this.#hasHeard && (cluster.members().size === 1 || cluster.drops.isAnnounced);
  }

  /**
   * Called when others have, or may have, dropped this node as a member: for all owners, its existing pages now count
   * as from before.
   */
  wasAway(): void {
    if (this.#stopped) return;
    this.#sayFormer();
    this.#lookSoon();
  }

  /**
   * Called when this node meets others: for them, its existing pages count as from before, because they may have
   * removed them without knowing this node. `isEarlier`: at least one of them was up before this node. Just after a
   * start without earlier pages, there is nothing that anybody could have removed and forgotten.
   */
  met(nodeIds: readonly string[], isEarlier: boolean): void {
    const { clock, cluster } = this.#options;
    const { directory, versions } = cluster;
    const { former } = directory;
    const isNew = former === undefined && clock.nowMs() - this.#startMs < FORGOTTEN_AFTER_MS;
    if (this.#stopped || isNew) return;
    if (isEarlier && former !== undefined && former.below > 0) {
      this.wasAway();
      return;
    }
    const below = versions.afterEarlier();
    const met = new Map([...(former?.met ?? []), ...nodeIds.map((nodeId) => [nodeId, below] as const)]);
    const isWide = isEarlier || former?.isWide === true;
    directory.setFormer({ start: this.#settledStart, below: former?.below ?? 0, met, isWide });
    this.#lookSoon();
  }

  /** Stops all work. */
  stop(): void {
    this.#stopped = true;
    this.#endAsking();
    this.#endLooks?.();
  }

  /** Asks the others what they know, and retries if that takes too long. */
  async #ask(): Promise<void> {
    const { cluster, clock } = this.#options;
    this.#hasHeard = await cluster.waitForDirectory();
    if (!this.#hasHeard && !this.#stopped) this.#endAsking = clock.after(LATER_MS, () => this.#ask());
  }

  #sayFormer(): void {
    const { clock, cluster } = this.#options;
    this.#awayMs = clock.nowMs();
    const below = cluster.versions.afterEarlier();
    cluster.directory.setFormer({ start: this.#settledStart, below, met: new Map(), isWide: true });
  }

  #lookSoon(): void {
    if (this.#endLooks === undefined) this.#lookAfter(SOON_MS, 1);
  }

  #lookAfter(ms: number, look: number): void {
    this.#endLooks = this.#options.clock.after(ms, () => this.#look(look));
  }

  /**
   * Checks whether the pages are settled. If the others take long to report, pages of the pool are confirmed one by
   * one.
   */
  async #look(look: number): Promise<void> {
    const isDue = this.isSettled || look >= SOON_COUNT;
    if (isDue && this.#confirm !== undefined && this.#options.pool.states.countOf('earlier') > 0)
      await this.#confirmAll(this.#confirm);
    if (this.#stopped) return;
    if (this.#areAllSettled()) {
      this.#endLooks = undefined;
      this.#noteSettled();
    } else this.#lookAfter(look < SOON_COUNT ? SOON_MS : LATER_MS, look + 1);
  }

  async #confirmAll(confirm: Confirm): Promise<void> {
    const { pool, clock } = this.#options;
    for (const keys of pool.keysInSlices()) {
      const earlier = pool.states.earlierAmong(keys);
      // After a failure the pages stay hidden; they are asked for again.
      if (earlier.length > 0) await confirm(earlier).catch(() => []);
      await clock.yield();
      if (this.#stopped) return;
    }
  }

  /**
   * Whether directory owners have accepted all pages of this node. A node that is alone cannot know: it may be cut off
   * from the others.
   */
  #areAllSettled(): boolean {
    const { pool, clock, quietMs, cluster } = this.#options;
    const isQuiet = clock.nowMs() - this.#awayMs >= quietMs;
    const isAlone = cluster.members().size === 1;
    return isQuiet && !isAlone && this.isSettled && pool.states.countOf('earlier') === 0 && cluster.drops.isAnnounced;
  }

  #noteSettled(): void {
    const { cluster } = this.#options;
    cluster.directory.setFormer(undefined);
    this.#settledStart = digestOfStart(cluster.nodeId, cluster.incarnation);
    for (const note of this.#notes) if (note.start !== this.#settledStart) note.note(this.#settledStart);
  }
}
