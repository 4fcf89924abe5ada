import { assertAtMost, assertEqual } from '../../base/assert.js';
import { Mutex } from '../../base/concurrency/mutex.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import {
  COPIES_POOL_FRACTION,
  COPY_REQUEST_TARGET_BYTES,
  COPY_REQUESTS_MAX_COUNT,
  PAGE_MAX_BYTES,
} from '../../base/limits.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import { slicesOf } from '../call/key-steps.js';
import type { PageFollower } from '../call/page-feed.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';
import { bytesOf, PageCopier, type WantedPage } from './page-copier.js';

/** Why a page of another node is copied. */
export type CopyReason = 'handover' | 'hot' | 'pin';

/**
 * Copies pages of other nodes into the own pool (see `PageCopier`), within a part of it.
 *
 * Accounting: `#copies` holds the bytes of every copied page that the pool may still have, the earliest first; together
 * at most COPIES_POOL_FRACTION of the pool. When there is no room, a frequently read page, or one that is to be pinned,
 * replaces the earliest copies that are not pinned, while a page that is handed over is refused; such pages come in the
 * order in which they are wanted. A page that the program sets here is no longer a copy.
 *
 * These copies are not written to the own disk: each is only a second location of its page.
 */
export class RemoteCopies implements PageFollower {
  readonly #ground: StoreGround;
  readonly #lines: SparseLog;
  readonly #copier: PageCopier;
  readonly #maxBytes: number;
  readonly #copies = new Map<string, number>();
  #copiedBytes = 0;
  readonly #turns = new Mutex();
  #requests = 0;
  #isClosed = false;

  constructor(ground: StoreGround, statements: PageStatements, copyThreads: CopyThreads) {
    this.#ground = ground;
    this.#lines = new SparseLog(ground);
    this.#copier = new PageCopier(ground, statements, copyThreads);
    this.#maxBytes = ground.pool.capacity * COPIES_POOL_FRACTION;
    ground.metrics.setGaugeProvider('meshcache_pool_copied_bytes', () => this.#copiedBytes);
  }

  /** Most bytes of the pool that copies may take. */
  get copiedBytes(): number {
    return this.#copiedBytes;
  }

  /** Records that the program has set pages under these keys: they are not copies any more. */
  set(keys: readonly string[]): void {
    if (this.#copies.size > 0) for (const key of keys) this.#forget(key);
  }

  /** Records that pages, maybe these, have left the pool. */
  gone(keys: readonly string[]): void {
    if (this.#isClosed || this.#copies.size === 0) return;
    const copies = keys.filter((key) => this.#copies.has(key));
    const isHere = this.#ground.pool.hasBatch(copies);
    for (const [i, key] of copies.entries()) if (isHere[i] === 0) this.#forget(key);
  }

  /**
   * Copies pages, from the first on those that `takes` accepts and for which copies have room all together; 1 for each
   * key whose page is in the own pool afterwards. While too many requests wait, all are refused with 0. Never rejects.
   */
  async copy(
    keys: readonly string[],
    reason: CopyReason,
    takes: (key: string, length: number) => boolean = () => true,
  ): Promise<Uint8Array> {
    const refused = new Uint8Array(keys.length);
    if (this.#requests >= COPY_REQUESTS_MAX_COUNT) return refused;
    this.#requests++;
    try {
      return await this.#turns.run(() => this.#copy(keys, reason, takes));
    } catch (error) {
      if (!this.#isClosed) {
        this.#lines.log('warn', 'copying pages of another node failed', { error: String(error) });
      }
      return refused;
    } finally {
      this.#requests--;
    }
  }

  /** Ends copies under way early. Resolves when nothing touches the pool any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#copier.close();
    await this.#turns.ended();
  }

  async #copy(
    keys: readonly string[],
    reason: CopyReason,
    takes: (key: string, length: number) => boolean,
  ): Promise<Uint8Array> {
    const { pool, directory, metrics, cluster } = this.#ground;
    const { nodeId } = cluster;
    if (this.#isClosed) return new Uint8Array(keys.length);
    const isHere = pool.hasBatch(keys);
    const missing = [...new Set(keys.filter((_, i) => isHere[i] === 0))];
    const locations = await directory.get(missing);
    // The directory may be wrong about lengths: memory is only allocated for lengths that a page can have.
    const lengthMaxBytes = Math.min(this.#maxBytes, PAGE_MAX_BYTES);
    let leftBytes = this.#maxBytes - this.#pinnedBytes();
    const wanted = missing.flatMap((key, i): WantedPage[] => {
      const { nodeId: owner = nodeId, length = 0 } = locations[i] ?? {};
      if (owner === nodeId || length === 0 || length > Math.min(lengthMaxBytes, leftBytes)) return [];
      if (!takes(key, length)) return [];
      leftBytes -= length;
      return [{ key, length }];
    });
    const sliceMaxBytes = Math.min(this.#maxBytes, COPY_REQUEST_TARGET_BYTES);
    for (const { start, end } of slicesOf(wanted, { maxBytes: sliceMaxBytes })) {
      if (this.#isClosed) return new Uint8Array(keys.length);
      const batch = wanted.slice(start, end);
      const hasRoom = this.#makeRoom(bytesOf(batch), reason);
      const count = await this.#copyBatch(hasRoom ? batch : this.#fitting(batch));
      if (count > 0) metrics.count('meshcache_copied_pages_total', count, { reason });
    }
    return this.#isClosed ? new Uint8Array(keys.length) : pool.hasBatch(keys);
  }

  /** Bytes of the copies that clients have pinned. */
  #pinnedBytes(): number {
    let bytes = 0;
    for (const [key, length] of this.#copies) if (this.#ground.pins.has(key)) bytes += length;
    return bytes;
  }

  /** The pages of a batch for which there is room, starting with the first. */
  #fitting(batch: readonly WantedPage[]): readonly WantedPage[] {
    let bytes = this.#copiedBytes;
    return batch.filter(({ length }) => {
      if (bytes + length > this.#maxBytes) return false;
      bytes += length;
      return true;
    });
  }

  /** Copies a batch; returns the number of copied pages. */
  #copyBatch(batch: readonly WantedPage[]): Promise<number> {
    return this.#copier.copy(batch, {
      onCopied: (copied) => {
        for (const { key, length } of copied) this.#add(key, length);
      },
      onDropped: (keys) => {
        for (const key of keys) this.#forget(key);
      },
    });
  }

  #add(key: string, length: number): void {
    this.#forget(key);
    // The page may have left the pool again already.
    if (this.#ground.pool.hasBatch([key])[0] === 0) return;
    this.#copies.set(key, length);
    this.#copiedBytes += length;
  }

  #forget(key: string): void {
    this.#copiedBytes -= this.#copies.get(key) ?? 0;
    this.#copies.delete(key);
  }

  /** Makes room for a copy; false: no room. */
  #makeRoom(bytes: number, reason: CopyReason): boolean {
    if (this.#copiedBytes + bytes <= this.#maxBytes) return true;
    const { pool, feed, pins } = this.#ground;
    if (reason === 'handover') return false;
    const removed: string[] = [];
    for (const key of this.#copies.keys()) {
      if (this.#copiedBytes + bytes <= this.#maxBytes) break;
      if (pins.has(key)) continue;
      this.#forget(key);
      if (pool.remove(key)) removed.push(key);
    }
    if (removed.length > 0) feed.evicted(removed);
    return this.#copiedBytes + bytes <= this.#maxBytes;
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    let bytes = 0;
    for (const length of this.#copies.values()) bytes += length;
    assertEqual('remote copies: bytes', this.#copiedBytes, bytes);
    assertAtMost('remote copies: bytes', bytes, this.#maxBytes);
    assertAtMost('remote copies: requests', this.#requests, COPY_REQUESTS_MAX_COUNT);
  }
}
