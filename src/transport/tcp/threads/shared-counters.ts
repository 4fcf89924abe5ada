/** Counters in shared memory, 64-bit floats in the order of their names. One thread counts, others read. */
export class SharedCounters<Name extends string> {
  readonly memory: SharedArrayBuffer;
  readonly #names: readonly Name[];
  readonly #values: Float64Array;

  /** Uses existing `memory`, or new counters that are all zero. */
  constructor(names: readonly Name[], memory = new SharedArrayBuffer(names.length * Float64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#names = names;
    this.#values = new Float64Array(memory);
  }

  add(name: Name, amount: number): void {
    const at = this.#names.indexOf(name);
    this.#values[at] = (this.#values[at] as number) + amount;
  }

  value(name: Name): number {
    return this.#values[this.#names.indexOf(name)] as number;
  }

  /** Called when the thread that counts has failed: it could not count down what it had. */
  clear(name: Name): void {
    this.add(name, -this.value(name));
  }
}
