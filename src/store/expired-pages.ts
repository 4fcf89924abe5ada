import { isExpired } from '../base/expiry.js';
import { EXPIRY_SWEEP_INTERVAL_MS } from '../base/limits.js';
import type { StoreGround } from './ground/store-ground.js';

/** Pages that are removed between two turns of the event loop, from the pool and from the disk each. */
const SLICE_PAGES = 512;

/**
 * Removes expired pages of this node from pool and disk, at most EXPIRY_SWEEP_INTERVAL_MS late while there are few.
 * Nobody finds them since they expired, so all that is left is to free their space and to tell the directory.
 */
export class ExpiredPages {
  readonly #ground: StoreGround;
  #cancelTimer: () => void = () => {};
  #isClosed = false;

  constructor(ground: StoreGround) {
    this.#ground = ground;
    this.#wait();
  }

  /** Stops: nothing more is removed. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
  }

  #wait(): void {
    this.#cancelTimer = this.#ground.clock.after(EXPIRY_SWEEP_INTERVAL_MS, () => void this.#sweep());
  }

  async #sweep(): Promise<void> {
    while (!this.#isClosed && this.#isAnyExpired()) {
      this.#removeSlice();
      await this.#ground.clock.yield();
    }
    if (!this.#isClosed) this.#wait();
  }

  #isAnyExpired(): boolean {
    const { pool, disk, versions } = this.#ground;
    const [inPool, onDisk] = [pool.firstExpiry(), disk?.firstExpiry ?? 0];
    if (inPool === 0 && onDisk === 0) return false;
    const present = versions.now();
    return isExpired(inPool, present) || isExpired(onDisk, present);
  }

  #removeSlice(): void {
    const { pool, disk, feed, metrics } = this.#ground;
    const keys = new Set(pool.removeExpired(SLICE_PAGES));
    for (const key of disk?.removeExpired(SLICE_PAGES) ?? []) keys.add(key);
    // Empty if a page of the heap was evicted before.
    if (keys.size === 0) return;
    metrics.count('meshcache_expired_pages_total', keys.size);
    feed.evicted([...keys]);
  }
}
