import { reduced } from '../../base/assert.js';
import { RESP_FREE_MEMORY_MAX_BYTES } from '../../base/limits.js';

/** Largest buffer that is kept for a later value. */
const KEPT_MAX_BYTES = 16 * 2 ** 20;
/** Sizes between one power of two and the next. */
const SIZES_PER_DOUBLING = 4;

/**
 * Memory for large arguments, and for values that are read. Returned buffers are reused, because new memory would have
 * to be cleared page by page, and collected later. It is no shared memory, into which JavaScript copies slowly.
 */
export class ValueMemory {
  /** Free buffers by size. */
  readonly #free = new Map<number, ArrayBuffer[]>();
  #freeBytes = 0;

  /** Takes a buffer of this length with arbitrary content; undefined if the system has no memory. */
  take(bytes: number): Buffer | undefined {
    const size = bytes > KEPT_MAX_BYTES ? bytes : sizeFor(bytes);
    const free = this.#free.get(size)?.pop();
    if (free !== undefined) this.#freeBytes = reduced('value memory: free bytes', this.#freeBytes, size);
    try {
      return Buffer.from(free ?? new ArrayBuffer(size), 0, bytes);
    } catch (error) {
      if (error instanceof RangeError) return undefined;
      throw error;
    }
  }

  /** Takes back a buffer that nothing uses any more. */
  giveBack({ buffer }: Buffer): void {
    const size = buffer.byteLength;
    if (size > KEPT_MAX_BYTES || this.#freeBytes + size > RESP_FREE_MEMORY_MAX_BYTES) return;
    const free = this.#free.get(size) ?? [];
    free.push(buffer as ArrayBuffer);
    this.#free.set(size, free);
    this.#freeBytes += size;
  }
}

/** Rounds up to one of a few sizes. */
function sizeFor(bytes: number): number {
  const step = Math.max(1, 2 ** Math.floor(Math.log2(bytes)) / SIZES_PER_DOUBLING);
  return Math.ceil(bytes / step) * step;
}
