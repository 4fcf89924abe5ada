const MAGIC = 0x6d637369;
const HEADER_WORDS_COUNT = 5;
/** Length of the shortest page, which consists of its header. */
export const PAGE_MIN_BYTES = HEADER_WORDS_COUNT * 4;

/**
 * Bytes of pages that identify themselves, so that a reader knows which `set` made a page and whether it is intact.
 *
 *     u32 magic, key, content, length, seed; then words that follow from key, content and seed
 *
 * Keys and contents are numbers here. After the header, contents of one key differ in every word, and keys but for
 * chance.
 */
export class PageBytes {
  readonly #seed: number;
  #expected = new Int32Array(1024);

  constructor(seed: number) {
    this.#seed = seed | 0;
  }

  /** A new page in memory of its own. */
  make(key: number, content: number, length: number): Uint8Array {
    return Uint8Array.from(this.#page(key, content, length));
  }

  /** Fills all of `target`, whose length is that of the page. */
  fill(target: Uint8Array, key: number, content: number): void {
    target.set(this.#page(key, content, target.length));
  }

  /** The content that `bytes` claim to have; undefined if they are no page. */
  contentOf(bytes: Uint8Array): number | undefined {
    if (bytes.length < PAGE_MIN_BYTES) return undefined;
    const header = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    return header.getInt32(0, true) === MAGIC ? header.getUint32(8, true) : undefined;
  }

  /** The difference between `bytes` and the page of this key and content; undefined if they are equal. */
  problemOf(bytes: Uint8Array, key: number, content: number): string | undefined {
    const expected = this.#page(key, content, bytes.length);
    if (Buffer.compare(bytes, expected) === 0) return undefined;
    let [first, count] = [-1, 0];
    for (let i = 0; i < bytes.length; i++) {
      if (bytes[i] === expected[i]) continue;
      if (first < 0) first = i;
      count++;
    }
    const [got, wanted] = [bytes, expected].map((all) => Buffer.from(all.subarray(first, first + 24)).toString('hex'));
    return `${count} of ${bytes.length} bytes differ, from ${first} on: ${got}, not ${wanted}`;
  }

  /** The bytes of a page; they are valid until the next call. */
  #page(key: number, content: number, length: number): Uint8Array {
    const count = (length + 3) >>> 2;
    if (this.#expected.length < count) this.#expected = new Int32Array(count * 2);
    const words = this.#expected;
    words[0] = MAGIC;
    words[1] = key;
    words[2] = content;
    words[3] = length;
    words[4] = this.#seed;
    // A Weyl sequence, mixed as in SplitMix32. The `| 0` after each sum keeps the loop on integers.
    const step = 0x9e3779b1 | 0;
    const shift = Math.imul(content + 1, 0x85ebca6b) | 0;
    let x = (Math.imul(key + 1, 0xc2b2ae35) ^ this.#seed) | 0;
    for (let i = HEADER_WORDS_COUNT; i < count; i++) {
      const y = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
      words[i] = ((y ^ (y >>> 15)) + shift) | 0;
      x = (x + step) | 0;
    }
    return new Uint8Array(words.buffer, 0, length);
  }
}
