import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Clock } from '../../base/environment/clock.js';
import type { DiskStore } from '../../disk/disk-store.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import { ToldGate } from '../upkeep/told-gate.js';

/** Time between two looks at whether the pages are good. */
const LOOK_MS = 50;
/** Looks before pages are announced one by one, although other nodes have not said all they know. */
const LOOKS_COUNT = 40;
/** Time after which pages are asked for again that no directory owner has accepted. */
const AGAIN_MS = 1000;

export interface EarlierPagesParts {
  readonly disk: Pick<DiskStore, 'info' | 'newestVersion'> | null;
  readonly pool: Pick<PublishedPool, 'keysInSlices' | 'unconfirmed'>;
  /** Version of the newest page that the pool has from before this start. */
  readonly newestInPool: number;
  /** The source of versions. It is moved past those of the earlier pages, in case the date was set back a little since. */
  readonly versions: Pick<HybridClock, 'remember'>;
  /** Resolves with true when the other nodes have announced their pages to this one; with false when that took too long. */
  readonly waitForDirectory: () => Promise<boolean>;
  readonly membersCount: () => number;
  /** Whether the owners have answered the announcement of this node's own pages. */
  readonly isAnnounced: () => boolean;
  readonly clock: Clock;
}

/**
 * The pages that are on the disk and in the pool since before this start. They may have been overwritten or deleted while the node was away. Other
 * nodes know whether they were, but a node that has found no discovery master does not know the other nodes. Pages of the pool are hidden until
 * they are confirmed, because nobody asks this node before reading them from its memory.
 */
export class EarlierPages {
  readonly #parts: EarlierPagesParts;
  readonly #isEmpty: boolean;
  readonly #gate: ToldGate;
  #endPause: () => void = () => {};
  #stopped = false;

  constructor(parts: EarlierPagesParts) {
    const { disk, pool, newestInPool, versions } = parts;
    this.#parts = parts;
    this.#gate = new ToldGate(parts.waitForDirectory, parts.clock);
    const isDiskEmpty = disk === null || disk.info().entries === 0;
    this.#isEmpty = isDiskEmpty && pool.unconfirmed.earlier.isEmpty;
    versions.remember(Math.max(newestInPool, isDiskEmpty ? 0 : disk.newestVersion));
  }

  /**
   * Begins to wait for the other nodes to say what they know. `confirm` tells which pages of the pool are still good, and shows those to readers; see
   * `PageStatements.confirm`.
   */
  start(confirm: (keys: readonly string[]) => Promise<boolean[]>): void {
    if (this.#isEmpty) return;
    this.#gate.start();
    if (!this.#parts.pool.unconfirmed.earlier.isEmpty) void this.#confirmAll(confirm);
  }

  /** Whether all other nodes have said what they know: they have announced their pages to this node, and have answered its own announcement. */
  get isSettled(): boolean {
    if (this.#isEmpty) return true;
    return this.#gate.isOpen && (this.#parts.membersCount() === 1 || this.#parts.isAnnounced());
  }

  /** Ends all work. */
  stop(): void {
    this.#stopped = true;
    this.#gate.close();
    this.#endPause();
  }

  async #confirmAll(confirm: (keys: readonly string[]) => Promise<boolean[]>): Promise<void> {
    const { pool, clock } = this.#parts;
    const isOver = (): boolean => this.#stopped || pool.unconfirmed.earlier.isEmpty;
    for (let look = 0; look < LOOKS_COUNT && !this.isSettled && !isOver(); look++) await this.#pause(LOOK_MS);
    while (!isOver()) {
      for (const keys of pool.keysInSlices()) {
        const earlier = pool.unconfirmed.earlierAmong(keys);
        // A failure leaves the pages hidden; they are asked for again.
        if (earlier.length > 0) await confirm(earlier).catch(() => []);
        await clock.yield();
        if (this.#stopped) return;
      }
      if (!isOver()) await this.#pause(AGAIN_MS);
    }
  }

  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const cancel = this.#parts.clock.after(ms, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}
