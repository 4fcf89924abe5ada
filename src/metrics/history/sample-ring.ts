/** The last rows of a table of numbers, of which each has a time. A further row replaces the oldest. */
export class SampleRing {
  readonly #capacity: number;
  readonly #columns: number;
  readonly #times: Float64Array;
  readonly #values: Float64Array;
  #next = 0;
  #size = 0;

  constructor(capacity: number, columns: number) {
    this.#capacity = capacity;
    this.#columns = columns;
    this.#times = new Float64Array(capacity);
    this.#values = new Float64Array(capacity * columns);
  }

  /** Number of rows. */
  get size(): number {
    return this.#size;
  }

  /** Copies `row`, which has a value for each column. */
  push(timeMs: number, row: Float64Array): void {
    this.#times[this.#next] = timeMs;
    this.#values.set(row, this.#next * this.#columns);
    this.#next = (this.#next + 1) % this.#capacity;
    this.#size = Math.min(this.#size + 1, this.#capacity);
  }

  /** Time of a row; 0 is the oldest. */
  time(index: number): number {
    return this.#times[this.#place(index)] as number;
  }

  /** The row itself, not a copy; it is valid until the next `push`. */
  row(index: number): Float64Array {
    const start = this.#place(index) * this.#columns;
    return this.#values.subarray(start, start + this.#columns);
  }

  #place(index: number): number {
    return (this.#next - this.#size + index + this.#capacity) % this.#capacity;
  }
}
