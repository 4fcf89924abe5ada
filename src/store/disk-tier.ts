import { type Clock, within } from '../base/clock.js';
import { DISK_WAITING_CLOSE_TIMEOUT_MS } from '../base/limits.js';
import type { DiskInfo, DiskStore } from '../disk/disk-store.js';
import type { PageBytes } from '../pool/page-batch.js';
import type { LocalRead, PageLease, PublishedPage, PublishedPool } from '../pool/published-pool.js';

/**
 * The disk behind a pool: what is published is written through in the background, and found there when the pool has let go of it.
 *
 * A page is leased in the pool from when it is queued until it is written: its bytes are taken from there, without a copy. When
 * other bytes are published under its key, the lease ends early; then the page is not listed on disk, and if that comes too
 * late its checksum is wrong.
 */
export class DiskTier {
  readonly #disk: DiskStore;
  readonly #pool: PublishedPool;
  readonly #clock: Clock;
  /** Pages for which the queue had no room: written when it has, if the pool still has them. In the order of being set. */
  readonly #waiting = new Set<string>();
  #onNoneWaiting: () => void = () => {};
  #isClosed = false;

  constructor(disk: DiskStore, pool: PublishedPool, clock: Clock) {
    this.#disk = disk;
    this.#pool = pool;
    this.#clock = clock;
  }

  info(): DiskInfo {
    return this.#disk.info();
  }

  /**
   * Queues pages that have just been published; null for those that were not. A page that the pool has let go of already is not
   * written. What lies on disk with other bytes is gone: the promise resolves when a crash cannot bring it back; undefined when
   * there was none.
   */
  writeThrough(keys: readonly string[], published: readonly (PublishedPage | null)[]): Promise<void> | undefined {
    let isOutdated = false;
    this.#pool.lease(keys).forEach((lease, i) => {
      const page = lease?.page ?? published[i] ?? null;
      // First, for the new page may find no room, or be gone already: then the old one must not come up.
      if (page !== null && this.#disk.removeOther(keys[i] as string, page)) isOutdated = true;
      if (lease !== null) this.#write(lease);
    });
    this.#writeWaiting();
    return isOutdated ? this.#disk.removalsWritten() : undefined;
  }

  /** 1 for each key that can be read from the disk. Not a use. */
  hasBatch(keys: readonly string[]): Uint8Array {
    return this.#disk.hasBatch(keys);
  }

  peekBatch(keys: readonly string[]): (PublishedPage | null)[] {
    return this.#disk.peekBatch(keys);
  }

  /** Pages that were used in the pool count as used here. */
  touchBatch(keys: readonly string[]): void {
    if (keys.length > 0) this.#disk.touchBatch(keys);
  }

  readPages(keys: readonly string[], targets: readonly PageBytes[]): Promise<LocalRead[]> {
    return this.#disk.readPages(keys, targets);
  }

  /** Keys of all pages, some at a time. */
  keysInSlices(): Iterable<string[]> {
    return this.#disk.keysInSlices();
  }

  /** Removes pages that are older than the version given for their key. A crash cannot bring them back once it resolves. */
  async removeOlder(keys: readonly string[], voidBelow: readonly number[]): Promise<void> {
    if (this.#disk.removeOlder(keys, voidBelow)) await this.#disk.removalsWritten();
    this.#writeWaiting();
  }

  /** Removes everything; returns the keys of what was written. A crash cannot bring it back once it resolves. */
  async clear(): Promise<string[]> {
    const keys = this.#disk.clear();
    await this.#disk.removalsWritten();
    return keys;
  }

  /** Writes what waits, here and in the queue, each within a deadline. Afterwards nothing here touches the pool. */
  async close(): Promise<void> {
    const noneWaiting = new Promise<void>((resolve) => {
      this.#onNoneWaiting = resolve;
    });
    this.#writeWaiting();
    await within(this.#clock, DISK_WAITING_CLOSE_TIMEOUT_MS, noneWaiting);
    this.#isClosed = true;
    if (this.#waiting.size > 0) this.#disk.skipped(this.#waiting.size);
    await this.#disk.close();
  }

  /** The pool has let go of these: what has not been written is lost. */
  dropped(keys: readonly string[]): void {
    if (this.#waiting.size === 0) return;
    const lost = keys.filter((key) => this.#waiting.delete(key));
    if (lost.length > 0) this.#disk.skipped(lost.length);
  }

  #write(lease: PageLease): void {
    const { key, page } = lease;
    this.#waiting.delete(key);
    if (!this.#disk.hasRoomFor(page.length)) {
      this.#waiting.add(key);
      this.#pool.unlease([lease]);
      return;
    }
    const release = (): void => {
      this.#pool.unlease([lease]);
      this.#writeWaiting();
    };
    const { length, checksum, version, kind } = page;
    const bytes = { views: this.#pool.viewsOf(page), length };
    const origin = { version, kind, isCopy: false };
    const outcome = this.#disk.putPage(key, bytes, checksum, release, origin);
    if (outcome !== 'queued') this.#pool.unlease([lease]);
  }

  #writeWaiting(): void {
    if (this.#isClosed) return;
    for (const key of this.#waiting) {
      const [page] = this.#pool.peekBatch([key]);
      if (page && !this.#disk.hasRoomFor(page.length)) return;
      const [lease] = this.#pool.lease([key]);
      if (lease) this.#write(lease);
      else this.#waiting.delete(key);
    }
    this.#onNoneWaiting();
  }
}
