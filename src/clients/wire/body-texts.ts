import { isAscii, isUtf8 } from 'node:buffer';
import { ProtocolError } from '../../base/errors.js';
import type { StepKeys } from '../../store/call/key-steps.js';

/** Where texts lie in a body. */
export interface TextPlaces {
  /** Start of each text. The last element is where one more text would start. */
  readonly starts: Uint32Array;
  /** Bytes between two texts. */
  readonly gapBytes: number;
}

/** The texts of a body, which are decoded on demand. Only their lengths have been checked. */
export class BodyTexts implements StepKeys {
  readonly #bytes: Buffer;
  readonly #starts: Uint32Array;
  readonly #gapBytes: number;

  constructor(bytes: Buffer, { starts, gapBytes }: TextPlaces) {
    this.#bytes = bytes;
    this.#starts = starts;
    this.#gapBytes = gapBytes;
  }

  get count(): number {
    return this.#starts.length - 1;
  }

  /** Bytes of the texts from `start` to before `end`. */
  bytesBetween(start: number, end: number): number {
    return this.#startOf(end) - this.#startOf(start) - this.#gapBytes * (end - start);
  }

  /** Throws {@link ProtocolError} if one of the texts from `start` to before `end` is not UTF-8. */
  check(start: number, end: number): void {
    if (start === end) return;
    const isRight = this.#gapBytes === 0 ? this.#isUtf8Together(start, end) : this.#isUtf8Each(start, end);
    if (!isRight) throw new ProtocolError('a text that is not UTF-8');
  }

  /** The texts from `start` to before `end`. Throws {@link ProtocolError} if one of them is not UTF-8. */
  slice(start: number, end: number): string[] {
    const texts = new Array<string>(end - start);
    if (start === end) return texts;
    const [first, last] = [this.#startOf(start), this.#endOf(end - 1)];
    // In ASCII each character is one byte, so the text can be cut like the bytes.
    if (isAscii(this.#bytes.subarray(first, last))) {
      const all = this.#bytes.toString('latin1', first, last);
      for (let i = start; i < end; i++) texts[i - start] = all.slice(this.#startOf(i) - first, this.#endOf(i) - first);
      return texts;
    }
    this.check(start, end);
    for (let i = start; i < end; i++) {
      texts[i - start] = this.#bytes.toString('utf8', this.#startOf(i), this.#endOf(i));
    }
    return texts;
  }

  /** Returns all texts. Only for bodies that are known to be short. */
  all(): string[] {
    return this.slice(0, this.count);
  }

  /** Whether texts without gaps are UTF-8: all of them together are, and none begins within a character. */
  #isUtf8Together(start: number, end: number): boolean {
    if (!isUtf8(this.#bytes.subarray(this.#startOf(start), this.#endOf(end - 1)))) return false;
    for (let i = start; i < end; i++) {
      const at = this.#startOf(i);
      if (this.#startOf(i + 1) > at && ((this.#bytes[at] as number) & 0xc0) === 0x80) return false;
    }
    return true;
  }

  #isUtf8Each(start: number, end: number): boolean {
    for (let i = start; i < end; i++) {
      if (!isUtf8(this.#bytes.subarray(this.#startOf(i), this.#endOf(i)))) return false;
    }
    return true;
  }

  #startOf(index: number): number {
    return this.#starts[index] as number;
  }

  #endOf(index: number): number {
    return this.#startOf(index + 1) - this.#gapBytes;
  }
}
