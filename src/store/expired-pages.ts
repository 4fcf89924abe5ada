import type { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { Clock } from '../base/environment/clock.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { isExpired } from '../base/expiry.js';
import { EXPIRY_SWEEP_INTERVAL_MS } from '../base/limits.js';
import type { PublishedPool } from '../pool/published-pool.js';
import type { DiskTier } from './disk/disk-tier.js';

/** Pages that are removed between two turns of the event loop, from the pool and from the disk each. */
const SLICE_PAGES = 512;

export interface ExpiredPagesParts {
  readonly pool: Pick<PublishedPool, 'firstExpiry' | 'removeExpired'>;
  readonly disk?: Pick<DiskTier, 'firstExpiry' | 'removeExpired'> | undefined;
  readonly versions: Pick<HybridClock, 'now'>;
  /** Called with the keys of removed pages, of which the directory is to be told. */
  readonly onRemoved: (keys: readonly string[]) => void;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/**
 * Removes the pages of this node that have expired, from pool and disk, EXPIRY_SWEEP_INTERVAL_MS late at most while
 * there are few. Nobody has found them since they expired; what is left to do is to free their space and to tell the
 * directory.
 */
export class ExpiredPages {
  readonly #parts: ExpiredPagesParts;
  #cancelTimer: () => void = () => {};
  #isClosed = false;

  constructor(parts: ExpiredPagesParts) {
    this.#parts = parts;
    this.#wait();
  }

  /** Stops: nothing is removed from now on. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
  }

  #wait(): void {
    this.#cancelTimer = this.#parts.clock.after(EXPIRY_SWEEP_INTERVAL_MS, () => void this.#sweep());
  }

  async #sweep(): Promise<void> {
    while (!this.#isClosed && this.#isAnyExpired()) {
      this.#removeSlice();
      await this.#parts.clock.yield();
    }
    if (!this.#isClosed) this.#wait();
  }

  #isAnyExpired(): boolean {
    const { pool, disk, versions } = this.#parts;
    const [inPool, onDisk] = [pool.firstExpiry(), disk?.firstExpiry ?? 0];
    if (inPool === 0 && onDisk === 0) return false;
    const present = versions.now();
    return isExpired(inPool, present) || isExpired(onDisk, present);
  }

  #removeSlice(): void {
    const { pool, disk, onRemoved, metrics } = this.#parts;
    const keys = new Set(pool.removeExpired(SLICE_PAGES));
    for (const key of disk?.removeExpired(SLICE_PAGES) ?? []) keys.add(key);
    // There is none if a page of the heap was evicted before.
    if (keys.size === 0) return;
    metrics.count('meshcache_expired_pages_total', keys.size);
    onRemoved([...keys]);
  }
}
