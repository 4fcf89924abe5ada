import { assert, assertEqual } from '../../base/assert.js';

/** Numbers from 0 on, each of them in the hands of one user at a time. Who finds none waits, in the order of asking. */
export class Slots {
  readonly #count: number;
  /** The one that was given back last is at the end, and is taken first. */
  readonly #free: number[];
  readonly #waiting: ((slot: number) => void)[] = [];

  constructor(count: number) {
    this.#count = count;
    this.#free = Array.from({ length: count }, (_, i) => count - 1 - i);
  }

  /** Runs `work` as soon as there is a slot for it, which it has until its promise is settled. */
  async use<T>(work: (slot: number) => Promise<T>): Promise<T> {
    const slot = this.#free.pop() ?? (await new Promise<number>((resolve) => this.#waiting.push(resolve)));
    try {
      return await work(slot);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free.push(slot);
      else next(slot);
    }
  }

  /** Throws `InvariantError` unless the free ones are distinct numbers below the count, and nobody waits for one of them. */
  verify(): void {
    const free = new Set(this.#free);
    assertEqual('slots: free ones', this.#free.length, free.size);
    for (const slot of free) assert(slot >= 0 && slot < this.#count, () => `slots: ${slot} of ${this.#count} is free`);
    assert(
      this.#free.length === 0 || this.#waiting.length === 0,
      () => `slots: ${this.#waiting.length} wait, and ${this.#free.length} are free`,
    );
  }
}
