import type { Clock } from '../../base/environment/clock.js';
import { digestOfStart } from '../../directory/shard/node-starts.js';
import type { DiskStore } from '../../disk/disk-store.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { Cluster } from './store-ground.js';

/** Time between two looks at whether the pages are settled, and after {@link SOON_COUNT} of them. */
const SOON_MS = 50;
const LATER_MS = 1000;
const SOON_COUNT = 40;
/** Milliseconds within which nobody can remove so many keys that owners forget one of them. */
const FORGOTTEN_AFTER_MS = 2000;

/** A note, kept beside pages that outlive their process, of the start that has last known all of them to be good. */
export interface StartNote {
  /** See `digestOfStart`; 0: not known. */
  readonly start: number;
  note(start: number): void;
}

/** Tells which pages are still good, and shows those to readers; see `PageStatements.confirm`. */
type Confirm = (keys: readonly string[]) => Promise<boolean[]>;

export interface SettlingOptions {
  readonly cluster: Cluster;
  readonly disk: DiskStore | null;
  readonly pool: PublishedPool;
  /** The note beside the pool; undefined: the pool does not outlive its process. */
  readonly poolNote: StartNote | undefined;
  /** Version of the newest page that the pool has from before this start. */
  readonly newestInPool: number;
  /** Whether what the others know is needed even without pages from before this start. */
  readonly needsOthers: boolean;
  /**
   * How long after an absence the pages settle at the earliest, in ms: a master that has just started learns of the
   * other members only then.
   */
  readonly quietMs: number;
  readonly clock: Clock;
}

/**
 * Follows the pages that this node has from before it was away, until they are settled. They may have been overwritten
 * or deleted meanwhile: while the node was down, or while others had dropped it as a member. Other nodes know whether
 * they were, but a node that has found no discovery master does not know the other nodes. Statements of such pages name
 * the last start of this node in which all its pages were settled: owners that have forgotten what was removed since
 * then refuse the pages.
 *
 * Pages of the pool from before this start are hidden until they are confirmed, because nobody asks this node before
 * reading them from its memory.
 */
export class Settling {
  readonly #options: SettlingOptions;
  /** The notes beside the pool and on the disk, as far as there are any. */
  readonly #notes: readonly StartNote[];
  readonly #hasEarlier: boolean;
  readonly #startMs: number;
  /** When this node was away last, or has started. */
  #awayMs: number;
  /** The last start in which all pages were settled. */
  #settledStart: number;
  #hasHeard = false;
  #confirm: Confirm | undefined;
  /** Ends the wait for the next look; undefined: all is settled, and nothing is looked at. */
  #endLooks: (() => void) | undefined;
  #endAsking: () => void = () => {};
  #stopped = false;

  constructor(options: SettlingOptions) {
    const { cluster, disk, pool, poolNote, newestInPool, clock } = options;
    this.#options = options;
    const isDiskEmpty = disk === null || disk.info().entries === 0;
    this.#hasEarlier = !(isDiskEmpty && pool.states.countOf('earlier') === 0);
    // Versions go on after those of the earlier pages, in case the date was set back a little since.
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

  /** Begins to wait for the other nodes to say what they know, and confirms the pages of the pool by that. */
  start(confirm: Confirm): void {
    this.#confirm = confirm;
    if (this.#hasEarlier || this.#options.needsOthers) void this.#ask();
    // What was looked at before counts for nothing: the node could not ask others yet.
    this.#endLooks?.();
    this.#lookAfter(SOON_MS, 1);
  }

  /**
   * Whether all other nodes have said what they know since {@link start}: what comes from the object store can be told
   * from what was replaced.
   */
  get hasHeard(): boolean {
    return this.#hasHeard;
  }

  /**
   * Whether all other nodes have said what they know, and have answered what this one has announced: no page from
   * before this start is uncertain.
   */
  get isSettled(): boolean {
    if (!this.#hasEarlier) return true;
    const { cluster } = this.#options;
    return this.#hasHeard && (cluster.members().size === 1 || cluster.drops.isAnnounced);
  }

  /**
   * Called when others have, or may have, dropped this node as a member: what is there already counts as from before,
   * for all owners.
   */
  wasAway(): void {
    if (this.#stopped) return;
    this.#sayFormer();
    this.#lookSoon();
  }

  /**
   * Called when this node meets others: for these, what is there already counts as from before, because they may have
   * removed it without knowing this node. `isEarlier`: one was up before this node. Just after a start without earlier
   * pages there is nothing yet that anybody could have removed and forgotten.
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

  /** Ends all work. */
  stop(): void {
    this.#stopped = true;
    this.#endAsking();
    this.#endLooks?.();
  }

  /** Asks the others what they know, again and again if that takes too long. */
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
   * Looks whether the pages are settled. Pages of the pool are confirmed one by one when others take long to say what
   * they know.
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
      // A failure leaves the pages hidden; they are asked for again.
      if (earlier.length > 0) await confirm(earlier).catch(() => []);
      await clock.yield();
      if (this.#stopped) return;
    }
  }

  /**
   * Whether directory owners have accepted all pages of this node. A node that is alone learns nothing: it may be cut
   * off from the others.
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
