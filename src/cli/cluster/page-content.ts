import { ArgumentError } from '../../base/errors.js';

/** Bytes generated at a time when checking; few enough to stay in the CPU cache next to the page. */
const BLOCK_BYTES = 64 * 1024;

/**
 * The expected bytes of a page, generated from its key alone, so that a reader can check every byte without asking the
 * writer. Within a page no word occurs twice, and words of two keys' pages agree only by chance (2^-32 per word), so a
 * misplaced, torn or flipped byte is always noticed.
 *
 * Keys must start with 16 hexadecimal digits; lengths and positions are multiples of 4 bytes.
 */
export class PageContent {
  readonly #block = new Int32Array(BLOCK_BYTES / 4);
  readonly #blockBytes = Buffer.from(this.#block.buffer);

  /** Fills `target` with the bytes of `key`'s page from `positionBytes` on. */
  fill(target: Uint8Array, key: string, positionBytes = 0): void {
    fillWords(wordsOf(target), key, positionBytes / 4);
  }

  /** Number of wrong bytes in `data`, which should hold `key`'s page from `positionBytes` on. */
  wrongBytes(data: Uint8Array, key: string, positionBytes = 0): number {
    let wrong = 0;
    for (let at = 0; at < data.length; at += BLOCK_BYTES) {
      const length = Math.min(BLOCK_BYTES, data.length - at);
      fillWords(this.#block.subarray(0, length / 4), key, (positionBytes + at) / 4);
      const same = this.#blockBytes.compare(data, at, at + length, 0, length) === 0;
      if (!same) wrong += countDifferences(this.#blockBytes, data.subarray(at, at + length));
    }
    return wrong;
  }
}

function wordsOf(bytes: Uint8Array): Int32Array {
  if (bytes.byteOffset % 4 !== 0 || bytes.length % 4 !== 0) {
    throw new ArgumentError(`page content comes in words of 4 bytes, got ${bytes.length} bytes at ${bytes.byteOffset}`);
  }
  return new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}

/**
 * Writes a Weyl sequence mixed by a bijection from SplitMix32. Its step, 2^32 divided by the golden ratio, is odd, so
 * every 32-bit value occurs once. The constants inside the function and the `| 0` after each sum keep the compiled loop
 * on integers; it is five times as slow without them.
 */
function fillWords(words: Int32Array, key: string, firstIndex: number): void {
  const step = 0x9e3779b1 | 0;
  const phase = Number.parseInt(key.slice(0, 8), 16);
  const shift = Number.parseInt(key.slice(8, 16), 16) | 0;
  if (Number.isNaN(phase)) throw new ArgumentError(`page content needs a key of hexadecimal digits, got ${key}`);
  let x = Math.imul((firstIndex + phase) | 0, step);
  for (let i = 0; i < words.length; i++) {
    const y = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
    words[i] = ((y ^ (y >>> 15)) + shift) | 0;
    x = (x + step) | 0;
  }
}

function countDifferences(expected: Uint8Array, actual: Uint8Array): number {
  let count = 0;
  for (let i = 0; i < actual.length; i++) if (expected[i] !== actual[i]) count++;
  return count;
}
