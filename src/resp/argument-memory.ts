import { reduced } from '../base/assert.js';
import { RESP_FREE_MEMORY_MAX_BYTES } from '../base/limits.js';

/** Largest memory that is kept for a later argument. */
const KEPT_MAX_BYTES = 16 * 2 ** 20;

/**
 * Memory for large arguments. What was given back is used again, because new memory has to be cleared, page by page,
 * and collected. It is shared memory, from which other threads can copy.
 */
export class ArgumentMemory {
  /** Free memory by its size, a power of two. */
  readonly #free = new Map<number, SharedArrayBuffer[]>();
  #freeBytes = 0;

  /** Memory of this length, with any content; undefined: the system has none. */
  take(bytes: number): Buffer | undefined {
    const size = bytes > KEPT_MAX_BYTES ? bytes : 2 ** Math.ceil(Math.log2(bytes));
    const free = this.#free.get(size)?.pop();
    if (free !== undefined) this.#freeBytes = reduced('argument memory: free bytes', this.#freeBytes, size);
    try {
      return Buffer.from(free ?? new SharedArrayBuffer(size), 0, bytes);
    } catch (error) {
      if (error instanceof RangeError) return undefined;
      throw error;
    }
  }

  /** Takes memory back that nothing uses any more. */
  giveBack({ buffer }: Buffer): void {
    const size = buffer.byteLength;
    if (size > KEPT_MAX_BYTES || this.#freeBytes + size > RESP_FREE_MEMORY_MAX_BYTES) return;
    const free = this.#free.get(size) ?? [];
    free.push(buffer as unknown as SharedArrayBuffer);
    this.#free.set(size, free);
    this.#freeBytes += size;
  }
}
