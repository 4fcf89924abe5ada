/** The pages of a body as views, which are created on demand. */
export class BodyPages {
  readonly #bytes: Buffer;
  readonly #starts: Uint32Array;

  /** `starts`: where each page begins in the bytes, and where the last one ends. */
  constructor(bytes: Buffer, starts: Uint32Array) {
    this.#bytes = bytes;
    this.#starts = starts;
  }

  get count(): number {
    return this.#starts.length - 1;
  }

  lengthOf(page: number): number {
    return (this.#starts[page + 1] as number) - (this.#starts[page] as number);
  }

  /** The pages from `start` to before `end`. */
  slice(start: number, end: number): Buffer[] {
    return Array.from({ length: end - start }, (_, i) =>
      this.#bytes.subarray(this.#starts[start + i], this.#starts[start + i + 1]),
    );
  }
}
