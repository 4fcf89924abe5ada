import { assert, assertEqual } from '../../base/assert.js';

/** Number of parts; a power of two. */
const PART_COUNT = 64;
const PART_MASK = PART_COUNT - 1;

/**
 * Table key -> number, in parts. A single `Map` of millions of keys rehashes all of them at once when it grows; a part
 * rehashes only its share (some milliseconds at eight million keys). A few characters of a key choose its part. Keys
 * that agree in all of these share a part, which costs pauses but not correctness.
 */
export class KeyTable {
  readonly #parts = Array.from({ length: PART_COUNT }, () => new Map<string, number>());
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(key: string): number | undefined {
    return (this.#parts[partOf(key)] as Map<string, number>).get(key);
  }

  set(key: string, value: number): void {
    const part = this.#parts[partOf(key)] as Map<string, number>;
    const before = part.size;
    part.set(key, value);
    this.#size += part.size - before;
  }

  delete(key: string): void {
    if ((this.#parts[partOf(key)] as Map<string, number>).delete(key)) this.#size--;
  }

  clear(): void {
    for (const part of this.#parts) part.clear();
    this.#size = 0;
  }

  /** All keys. Keys that come or go meanwhile may be left out; no key comes twice unless it was set anew. */
  *keys(): Generator<string, void> {
    for (const part of this.#parts) yield* part.keys();
  }

  /** Throws `InvariantError` unless every key is in its part, and the size is the sum over the parts. */
  verify(): void {
    let size = 0;
    for (const [index, part] of this.#parts.entries()) {
      size += part.size;
      for (const key of part.keys()) {
        assert(
          partOf(key) === index,
          () => `key table: ${JSON.stringify(key)} is in part ${index}, not ${partOf(key)}`,
        );
      }
    }
    assertEqual('key table: size', this.#size, size);
  }
}

/**
 * The part of a key. Keys differ at their end (a hash or a number) more often than at their start; the middle helps
 * where the end does not differ.
 */
function partOf(key: string): number {
  const last = key.length - 1;
  let mixed = key.length;
  for (let i = 0; i < 4; i++) mixed = (Math.imul(mixed, 31) + key.charCodeAt(last - i)) | 0;
  mixed = (Math.imul(mixed, 31) + key.charCodeAt(last >> 1)) | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d);
  return (mixed >>> 16) & PART_MASK;
}
