import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { DiskStore } from '../../disk/disk-store.js';

export interface EarlierPagesParts {
  readonly disk: Pick<DiskStore, 'info' | 'newestVersion'> | null;
  /** The source of versions. It is moved past those on the disk, in case the date was set back since. */
  readonly versions: Pick<HybridClock, 'see'>;
  /** Resolves with true when the other nodes have announced their pages to this one; with false when that took too long. */
  readonly waitForDirectory: () => Promise<boolean>;
  readonly membersCount: () => number;
  /** Whether the owners have answered the announcement of this node's own pages. */
  readonly isAnnounced: () => boolean;
}

/**
 * The pages that are on the disk since before this start. They may have been overwritten or deleted while the node was away. Other nodes know
 * whether they were, but a node that has found no discovery master does not know the other nodes.
 */
export class EarlierPages {
  readonly #parts: EarlierPagesParts;
  readonly #isEmpty: boolean;
  #isFilled = false;

  constructor(parts: EarlierPagesParts) {
    const { disk, versions } = parts;
    this.#parts = parts;
    this.#isEmpty = disk === null || disk.info().entries === 0;
    if (!this.#isEmpty && disk !== null) versions.see(disk.newestVersion);
  }

  /** Begins to wait for the other nodes to say what they know. */
  start(): void {
    if (this.#isEmpty) return;
    void this.#parts.waitForDirectory().then((isComplete) => {
      this.#isFilled = isComplete;
    });
  }

  /** Whether all other nodes have said what they know: they have announced their pages to this node, and have answered its own announcement. */
  get isSettled(): boolean {
    if (this.#isEmpty) return true;
    return this.#isFilled && (this.#parts.membersCount() === 1 || this.#parts.isAnnounced());
  }
}
