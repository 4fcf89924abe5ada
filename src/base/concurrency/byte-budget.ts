import { assert, assertEqual } from '../assert.js';

interface Wish {
  readonly bytes: number;
  readonly grant: () => void;
}

/**
 * Bytes that several users share: who wants more than is left waits, first come, first served.
 *
 * Accounting: what is left and what `#granted` has are all bytes together.
 */
export class ByteBudget {
  readonly #bytes: number;
  #leftBytes: number;
  readonly #waiting: Wish[] = [];
  readonly #granted = new Set<Wish>();

  constructor(bytes: number) {
    this.#bytes = bytes;
    this.#leftBytes = bytes;
  }

  /**
   * Calls `grant` when the bytes are available, at once or later. Returns a function that withdraws the request or
   * gives the bytes back; calling it again does nothing.
   */
  take(bytes: number, grant: () => void): () => void {
    const wish = { bytes, grant };
    const giveBack = (): void => {
      const index = this.#waiting.indexOf(wish);
      if (index >= 0) this.#waiting.splice(index, 1);
      if (this.#granted.delete(wish)) this.#leftBytes += bytes;
      this.#grantNext();
    };
    this.#waiting.push(wish);
    this.#grantNext();
    return giveBack;
  }

  /**
   * Throws `InvariantError` unless the accounting of this class holds, and no user waits for bytes that are available.
   */
  verify(): void {
    let bytes = this.#leftBytes;
    for (const wish of this.#granted) bytes += wish.bytes;
    assertEqual('byte budget: bytes', this.#bytes, bytes);
    assert(this.#leftBytes >= 0, () => `byte budget: ${this.#leftBytes} bytes are left`);
    const [first] = this.#waiting;
    const isShort = first === undefined || first.bytes > this.#leftBytes;
    assert(isShort, () => `byte budget: ${first?.bytes} bytes are waited for, and ${this.#leftBytes} are left`);
  }

  #grantNext(): void {
    for (
      let first = this.#waiting[0];
      first !== undefined && first.bytes <= this.#leftBytes;
      first = this.#waiting[0]
    ) {
      this.#waiting.shift();
      this.#leftBytes -= first.bytes;
      this.#granted.add(first);
      first.grant();
    }
  }
}
