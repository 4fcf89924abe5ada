import { assert, assertEqual } from '../../base/assert.js';

/** A power of two. */
const PART_COUNT = 64;
const PART_MASK = PART_COUNT - 1;

/**
 * Key -> number, in parts: a `Map` of millions rehashes all of them at once when it grows, one of these only its share
 * (some milliseconds at eight million keys). Which part a key is in depends on a few of its characters; keys that agree in
 * all of these share a part, which costs pauses, not correctness.
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

  /** All keys; keys that come or go meanwhile may be left out, none comes twice unless it was set anew. */
  *keys(): Generator<string, void> {
    for (const part of this.#parts) yield* part.keys();
  }

  /** Throws `InvariantError` unless every key is in its part, and the size is that of all parts. */
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

/** Keys end in a hash or a number more often than they begin with one; the middle helps where they do not. */
function partOf(key: string): number {
  const last = key.length - 1;
  let mixed = key.length;
  for (let i = 0; i < 4; i++) mixed = (Math.imul(mixed, 31) + key.charCodeAt(last - i)) | 0;
  mixed = (Math.imul(mixed, 31) + key.charCodeAt(last >> 1)) | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d);
  return (mixed >>> 16) & PART_MASK;
}
