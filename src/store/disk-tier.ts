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

  constructor(disk: DiskStore, pool: PublishedPool) {
    this.#disk = disk;
    this.#pool = pool;
  }

  info(): DiskInfo {
    return this.#disk.info();
  }

  /** Queues those pages that the pool has now. */
  writeThrough(keys: readonly string[]): void {
    for (const lease of this.#pool.lease(keys)) if (lease !== null) this.#write(lease);
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

  keys(): string[] {
    return this.#disk.keys();
  }

  /** Removes everything; returns the keys of what was written. */
  clear(): string[] {
    return this.#disk.clear();
  }

  /** Writes what waits, within a deadline. Afterwards nothing here touches the pool. */
  close(): Promise<void> {
    return this.#disk.close();
  }

  #write(lease: PageLease): void {
    const { key, page } = lease;
    const release = (): void => this.#pool.unlease([lease]);
    const bytes = { views: [this.#pool.bytesOf(page)], length: page.length };
    if (this.#disk.putPage(key, bytes, page.checksum, release) !== 'queued') release();
  }
}
