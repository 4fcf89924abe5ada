import { assert } from '../base/assert.js';
import type { NativeAddon } from '../native/addon/contract.js';
import { loadNative } from '../native/addon/loader.js';
import { crc32 } from './checksum.js';
import { addressOf, staysInPlace } from './native-memory.js';

/** Numbers per piece in the addon's format: destination, source, length. */
const PIECE_COLUMNS = 3;
/** Smallest total that is copied by the addon; copying less takes no longer than the call. */
const COPY_NATIVE_MIN_BYTES = 16 * 2 ** 10;

/** Whether pages can be copied on other threads. */
export function canCopyOffThread(): boolean {
  return loadNative().addon !== null;
}

/** Copies that are running on other threads. This set keeps their memory alive even if their regions are freed. */
const running = new Set<PageCopies>();

/**
 * Copies pages and computes a CRC-32 of the bytes written at each destination. With the addon this takes one pass over
 * memory for all pages, optionally on other threads. Each object is used once.
 */
export class PageCopies {
  readonly #sources: Uint8Array[] = [];
  readonly #targets: (Uint8Array | null)[] = [];
  readonly #pieceCounts: number[] = [];
  readonly #isSummed: boolean;
  #bytes = 0;

  /** With `isSummed` false (default: true) no checksums are computed, and the returned ones are meaningless. */
  constructor({ isSummed = true }: { readonly isSummed?: boolean } = {}) {
    this.#isSummed = isSummed;
  }

  /**
   * Adds a page: the bytes of `sources`, one after the other, go to `targets`, which must have the same total length.
   * Without targets only the checksum is computed. The views are read when the copying starts.
   */
  add(sources: readonly Uint8Array[], targets: readonly Uint8Array[] | null): void {
    const before = this.#sources.length;
    if (targets === null) for (const source of sources) this.#addPiece(source, null);
    else this.#addPieces(sources, targets);
    this.#pieceCounts.push(this.#sources.length - before);
  }

  /** Copies at once; returns one checksum per page. */
  run(): Uint32Array {
    if (this.#sources.length === 0) return new Uint32Array(this.#pieceCounts.length);
    const { addon } = loadNative();
    const isForAddon = this.#isSummed && this.#bytes >= COPY_NATIVE_MIN_BYTES;
    const pieces = addon === null || !isForAddon ? null : this.#addresses(addon);
    if (addon === null || pieces === null) return this.#runHere();
    return addon.copyPagesSync(pieces, Uint32Array.from(this.#pieceCounts));
  }

  /**
   * Copies on other threads if possible, else at once. Other threads need the addon, and memory that cannot be
   * transferred in the meantime. Regions may be freed in the meantime; their memory is kept until the promise has
   * resolved.
   */
  async runOffThread(): Promise<Uint32Array> {
    if (this.#sources.length === 0) return this.run();
    const { addon } = loadNative();
    const pieces = addon === null || !this.#staysInPlace() ? null : this.#addresses(addon);
    if (addon === null || pieces === null) return this.run();
    running.add(this);
    try {
      return await addon.copyPages(pieces, Uint32Array.from(this.#pieceCounts));
    } finally {
      running.delete(this);
    }
  }

  /** Adds the pieces of a page; a piece ends where a source or a target ends. */
  #addPieces(sources: readonly Uint8Array[], targets: readonly Uint8Array[]): void {
    let t = 0;
    let targetAt = 0;
    for (const source of sources) {
      for (let at = 0; at < source.length; ) {
        const target = targets[t];
        assert(target !== undefined, 'page copies: the targets have fewer bytes than the sources');
        const take = Math.min(source.length - at, target.length - targetAt);
        if (take > 0) this.#addPiece(part(source, at, take), part(target, targetAt, take));
        at += take;
        targetAt += take;
        if (targetAt === target.length) {
          t++;
          targetAt = 0;
        }
      }
    }
  }

  #addPiece(source: Uint8Array, target: Uint8Array | null): void {
    this.#sources.push(source);
    this.#targets.push(target);
    this.#bytes += source.length;
  }

  #staysInPlace(): boolean {
    return (
      this.#sources.every(staysInPlace) && this.#targets.every((target) => target === null || staysInPlace(target))
    );
  }

  /**
   * Returns the pieces in the addon's format; null if the source and destination of a piece overlap, which the addon
   * cannot handle.
   */
  #addresses(addon: NativeAddon): Float64Array | null {
    const pieces = new Float64Array(this.#sources.length * PIECE_COLUMNS);
    for (let i = 0, at = 0; i < this.#sources.length; i++, at += PIECE_COLUMNS) {
      const source = this.#sources[i] as Uint8Array;
      const target = this.#targets[i] ?? null;
      const length = source.length;
      if (length === 0) continue;
      const from = addressOf(addon, source);
      const to = target === null ? 0 : addressOf(addon, target);
      if (target !== null && Math.abs(from - to) < length) return null;
      pieces[at] = to;
      pieces[at + 1] = from;
      pieces[at + 2] = length;
    }
    return pieces;
  }

  #runHere(): Uint32Array {
    const sums = new Uint32Array(this.#pieceCounts.length);
    let piece = 0;
    this.#pieceCounts.forEach((count, page) => {
      let sum = 0;
      for (const end = piece + count; piece < end; piece++) {
        const source = this.#sources[piece] as Uint8Array;
        const target = this.#targets[piece] ?? null;
        target?.set(source);
        if (this.#isSummed) sum = crc32(target ?? source, sum);
      }
      sums[page] = sum;
    });
    return sums;
  }
}

function part(view: Uint8Array, at: number, length: number): Uint8Array {
  return at === 0 && length === view.length ? view : view.subarray(at, at + length);
}
