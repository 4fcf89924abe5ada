import { assertAtMost } from '../../base/assert.js';
import { DISK_CLEARS_MAX_COUNT, DISK_NEVER_MIN_KEYS } from '../../base/limits.js';
import type { DiskStore } from '../../disk/disk-store.js';
import { crc32 } from '../../memory/checksum.js';
import type { LeavingPage, PageBytes } from '../../pool/page-batch.js';
import type { PageOrigin, PublishedPool } from '../../pool/published-pool.js';
import type { Cleared } from '../call/key-steps.js';

/** The part of a disk store that pages need when they leave the pool. */
type LeftPages = Pick<DiskStore, 'fits' | 'hasBatch' | 'hasRoomFor' | 'putPage' | 'skipped'>;

/** The part of a pool that is needed to know which pages are in it. */
type LeftPool = Pick<PublishedPool, 'hasBatch' | 'size'>;

/**
 * Writes pages to disk when the pool evicts them, unless a caller has said that they are never asked for again. Pages
 * that leave the pool for other reasons are not written, nor are copies of other nodes' pages.
 *
 * The bytes are copied before the pool reuses their range, so no call waits for the disk. The copies take no more
 * memory than the disk's queue may have bytes; a page for which the queue has no room is not written.
 */
export class LeavingPages {
  readonly #disk: LeftPages;
  readonly #pool: LeftPool;
  readonly #onWritten: (key: string) => void;
  /** Keys of pages of the pool that are never asked for again, as far as callers know. */
  readonly #never = new Set<string>();
  /** The latest clears. A page from before one of them may be in the pool until the clear has come to it. */
  readonly #clears: Cleared[] = [];
  /** Version below which no page is written, because clears that named its keys were forgotten. */
  #voidBelow = 0;
  #isClosed = false;
  /** Memory of former copies, all of one length: no more than were waiting at one time. */
  readonly #spare: Uint8Array[] = [];

  /** `onWritten` is called with a page that is on disk now and no longer in the pool. */
  constructor(disk: LeftPages, pool: LeftPool, onWritten: (key: string) => void) {
    this.#disk = disk;
    this.#pool = pool;
    this.#onWritten = onWritten;
  }

  /** Called when the pool evicts a page. Never throws. */
  leaving({ key, bytes, checksum, ...origin }: LeavingPage): void {
    const disk = this.#disk;
    // What the disk has under the key is the same page, or is removed by the call that has set this one.
    if (this.#isClosed || !this.isWorth(key, origin) || disk.hasBatch([key])[0] === 1) return;
    const { length } = bytes;
    const copy = disk.fits(length) && disk.hasRoomFor(length) ? this.#copyOf(bytes) : undefined;
    if (copy === undefined) {
      disk.skipped(1);
      return;
    }
    const written = (): void => {
      this.#keep(copy);
      const isInPool = this.#isClosed || this.#pool.hasBatch([key])[0] === 1;
      if (!isInPool && disk.hasBatch([key])[0] === 1) this.#onWritten(key);
    };
    disk.putPage(key, { views: [copy], length }, checksum ?? crc32(copy, 0), written, origin);
  }

  /** Afterwards nothing here touches the pool. */
  close(): void {
    this.#isClosed = true;
    this.#spare.length = 0;
  }

  /** Whether a page of the pool is to be written when it leaves. */
  isWorth(key: string, { setBy, version }: Pick<PageOrigin, 'setBy' | 'version'>): boolean {
    if (setBy !== 0 || this.#never.has(key) || version < this.#voidBelow) return false;
    return !this.#clears.some(({ voidBelow, isCleared }) => version < voidBelow && isCleared(key));
  }

  /** Notes when pages will be asked for, in milliseconds; Infinity: never. */
  expect(keys: readonly string[], inMs: number): void {
    if (inMs !== Number.POSITIVE_INFINITY) {
      this.asked(keys);
      return;
    }
    const isHere = this.#pool.hasBatch(keys);
    for (const [i, key] of keys.entries()) if (isHere[i] === 1) this.#never.add(key);
    if (this.#never.size > this.#maxKeys) this.#forgetGone();
  }

  /** Called with pages that were asked for or set after all, or have left the pool. */
  asked(keys: readonly string[]): void {
    if (this.#never.size > 0) for (const key of keys) this.#never.delete(key);
  }

  /** Called when pages are cleared. */
  cleared(cleared: Cleared): void {
    this.#clears.push(cleared);
    if (this.#clears.length <= DISK_CLEARS_MAX_COUNT) return;
    this.#voidBelow = Math.max(this.#voidBelow, this.#clears.shift()?.voidBelow ?? 0);
  }

  /** A copy of the bytes; undefined if there is no memory for it, or the bytes were freed meanwhile. */
  #copyOf({ views, length, isIntact }: PageBytes): Uint8Array | undefined {
    try {
      if (this.#spare[0]?.length !== length) this.#spare.length = 0;
      // Other threads copy these bytes to the disk.
      const copy = this.#spare.pop() ?? new Uint8Array(new SharedArrayBuffer(length));
      let at = 0;
      for (const view of views) {
        copy.set(view, at);
        at += view.length;
      }
      return isIntact?.() === false ? undefined : copy;
    } catch {
      return undefined;
    }
  }

  /** Keeps memory of a copy for the next one, because the first use of new memory takes longer than the copy. */
  #keep(copy: Uint8Array): void {
    if (this.#isClosed) this.#spare.length = 0;
    else if ((this.#spare[0] ?? copy).length === copy.length) this.#spare.push(copy);
  }

  get #maxKeys(): number {
    return Math.max(DISK_NEVER_MIN_KEYS, 2 * this.#pool.size);
  }

  #forgetGone(): void {
    const keys = [...this.#never];
    const isHere = this.#pool.hasBatch(keys);
    for (const [i, key] of keys.entries()) if (isHere[i] === 0) this.#never.delete(key);
  }

  /** Throws `InvariantError` unless what is remembered is within its limits. */
  verify(): void {
    assertAtMost('leaving pages: clears', this.#clears.length, DISK_CLEARS_MAX_COUNT);
  }
}
