import { assert, assertEqual } from '../base/assert.js';
import type { RandomSource } from '../base/environment/random.js';
import { imageBytes, NO_STAMP, readStamp, STAMP_BYTES, writeStamp } from '../memory/page-stamp.js';

/** Number of stamps drawn from the random source at once. */
const DRAW_COUNT = 1024;
/** Distance in bytes between the tails of two slots in `#tails`. */
const TAIL_STRIDE_BYTES = 8;
const NOWHERE = -1;

/** Returns bytes of the pool, starting at an offset. */
export type PoolBytes = (offset: number, length: number) => Uint8Array;

/** Place of a page with a stamp: its offset and length in the pool, in bytes. */
type StampedPage = { readonly slot: number; readonly offset: number; readonly length: number };

/**
 * The stamps of one pool's pages, by slot, and the tails that they replace: see `memory/page-stamp.ts`.
 *
 * Invariant: from {@link set} until {@link destroy}, the bytes at a slot's `#stampAt` are its stamp, and the page's own
 * last bytes are in `#tails`. Afterwards the bytes there are zero, and only reads that had already begun use the slot.
 * A held page keeps its slot, so its tail stays for these reads although the stamp is gone.
 */
export class PageStamps {
  readonly #bytes: PoolBytes;
  readonly #random: RandomSource;
  #drawn: Uint8Array = new Uint8Array(0);
  #drawnAt = 0;
  #stamp = new Float64Array(1024);
  /** Offset of the stamp in the pool, or NOWHERE. */
  #stampAt = new Float64Array(1024).fill(NOWHERE);
  /**
   * Tails in shared memory, from which other threads copy. When a larger memory replaces it, threads can still read the
   * old one.
   */
  #tails = new Uint8Array(new SharedArrayBuffer(1024 * TAIL_STRIDE_BYTES));

  constructor(bytes: PoolBytes, random: RandomSource) {
    this.#bytes = bytes;
    this.#random = random;
  }

  /** Saves the tail of a page whose bytes are in the pool, and replaces it by a new stamp. */
  set(slot: number, offset: number, length: number): void {
    this.#reserve(slot);
    const at = stampOffset(offset, length);
    const place = this.#bytes(at, STAMP_BYTES);
    this.#tails.set(place, slot * TAIL_STRIDE_BYTES);
    const stamp = this.draw();
    writeStamp(place, 0, stamp);
    this.#stamp[slot] = stamp;
    this.#stampAt[slot] = at;
  }

  /** Restores a page whose stamp is in the pool from before this start. */
  restore(
    slot: number,
    { offset, length }: Omit<StampedPage, 'slot'>,
    { stamp, tail }: { readonly stamp: number; readonly tail: number },
  ): void {
    this.#reserve(slot);
    writeStamp(this.#tails, slot * TAIL_STRIDE_BYTES, tail);
    this.#stamp[slot] = stamp;
    this.#stampAt[slot] = stampOffset(offset, length);
  }

  /** Destroys a stamp, so that no later read of the page can succeed. Harmless if the slot has no stamp. */
  destroy(slot: number): void {
    const at = this.#stampAt[slot] ?? NOWHERE;
    if (at === NOWHERE) return;
    this.#bytes(at, STAMP_BYTES).fill(0);
    this.#stampAt[slot] = NOWHERE;
    this.#stamp[slot] = NO_STAMP;
  }

  /** Whether the slot belongs to a page at this place that has its stamp. */
  isOf(slot: number, offset: number, length: number): boolean {
    return this.#stampAt[slot] === stampOffset(offset, length);
  }

  /** Offset of the page of this length in a slot, which must have a stamp. */
  offsetOf(slot: number, length: number): number {
    const at = this.#stampAt[slot] ?? NOWHERE;
    assert(at !== NOWHERE, () => `page stamps: slot ${slot} has none`);
    return at - stampOffset(0, length);
  }

  /** Stamp of a slot, which must have one. */
  stampOf(slot: number): number {
    return this.#stamp[slot] ?? NO_STAMP;
  }

  /** Draws a random stamp for a new page. */
  draw(): number {
    for (;;) {
      if (this.#drawnAt + STAMP_BYTES > this.#drawn.length) {
        this.#drawn = this.#random.bytes(DRAW_COUNT * STAMP_BYTES);
        this.#drawnAt = 0;
      }
      const stamp = readStamp(this.#drawn, this.#drawnAt);
      this.#drawnAt += STAMP_BYTES;
      if (stamp !== NO_STAMP) return stamp;
    }
  }

  tailOf(slot: number, length: number): number {
    return readStamp(this.#tails, slot * TAIL_STRIDE_BYTES, Math.min(length, STAMP_BYTES));
  }

  /** The page's own last bytes, at most STAMP_BYTES: valid while the page is in the pool, or held. */
  tailBytesOf(slot: number, length: number): Uint8Array {
    const start = slot * TAIL_STRIDE_BYTES;
    return this.#tails.subarray(start, start + Math.min(length, STAMP_BYTES));
  }

  #reserve(slot: number): void {
    const { length } = this.#stamp;
    if (slot < length) return;
    const count = Math.max(slot + 1, 2 * length);
    const [stamp, stampAt] = [new Float64Array(count), new Float64Array(count).fill(NOWHERE)];
    const tails = new Uint8Array(new SharedArrayBuffer(count * TAIL_STRIDE_BYTES));
    stamp.set(this.#stamp);
    stampAt.set(this.#stampAt);
    tails.set(this.#tails);
    [this.#stamp, this.#stampAt, this.#tails] = [stamp, stampAt, tails];
  }

  /** Throws `InvariantError` unless each of `pages` has its stamp in place, and no other slot has one. */
  verify(pages: Iterable<readonly [key: string, page: StampedPage]>): void {
    let count = 0;
    for (const [, { slot, offset, length }] of pages) {
      count++;
      const at = this.#stampAt[slot] ?? NOWHERE;
      assertEqual(`page stamps: offset of the stamp of slot ${slot}`, at, stampOffset(offset, length));
      const stamp = this.stampOf(slot);
      assert(stamp !== NO_STAMP, () => `page stamps: slot ${slot} has none`);
      assertEqual(`page stamps: stamp of slot ${slot}`, stamp, readStamp(this.#bytes(at, STAMP_BYTES), 0));
    }
    let kept = 0;
    for (const at of this.#stampAt) if (at !== NOWHERE) kept++;
    assertEqual('page stamps: slots with one', kept, count);
    assertEqual('page stamps: slots with a tail', this.#tails.length / TAIL_STRIDE_BYTES, this.#stampAt.length);
  }
}

/** Where in its pool the stamp of a page is, in bytes. */
export function stampOffset(offset: number, length: number): number {
  return offset + imageBytes(length) - STAMP_BYTES;
}
