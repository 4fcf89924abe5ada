import { assert, assertEqual, reduced } from '../assert.js';

/** Lets one user in at a time, in the order in which they ask. */
export class Mutex {
  #users = 0;
  #lastEnd: Promise<void> = Promise.resolve();

  /** Whether a user holds the mutex. */
  get isLocked(): boolean {
    return this.#users > 0;
  }

  /** Runs `use` when all earlier users have finished; at once, before this returns, if there are none. */
  async run<T>(use: () => Promise<T> | T): Promise<T> {
    const before = this.#users > 0 ? this.#lastEnd : undefined;
    let end: () => void = () => {};
    this.#lastEnd = new Promise((resolve) => {
      end = resolve;
    });
    this.#users++;
    try {
      if (before !== undefined) await before;
      return await use();
    } finally {
      this.#users = reduced('mutex: users', this.#users, 1);
      end();
    }
  }

  /** Resolves when all users who have asked so far have ended. */
  ended(): Promise<void> {
    return this.#users > 0 ? this.#lastEnd : Promise.resolve();
  }
}

/**
 * Admits a fixed number of users at a time; the others wait in order of arrival. Each admitted user gets a permit
 * number, from 0, that no other user has meanwhile.
 */
export class Semaphore {
  readonly #count: number;
  /** Free permit numbers. The one given back last is at the end and is taken first. */
  readonly #free: number[];
  readonly #waiting: ((permit: number) => void)[] = [];

  constructor(count: number) {
    this.#count = count;
    this.#free = Array.from({ length: count }, (_, i) => count - 1 - i);
  }

  /** Runs `work` as soon as a permit number is free; `work` owns it until its promise settles. */
  async use<T>(work: (permit: number) => Promise<T>): Promise<T> {
    const permit = this.#free.pop() ?? (await new Promise<number>((resolve) => this.#waiting.push(resolve)));
    try {
      return await work(permit);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free.push(permit);
      else next(permit);
    }
  }

  /**
   * Throws `InvariantError` unless the free numbers are distinct and below the count, and no user waits while one is
   * free.
   */
  verify(): void {
    const free = new Set(this.#free);
    assertEqual('semaphore: free numbers', this.#free.length, free.size);
    for (const permit of free) {
      assert(permit >= 0 && permit < this.#count, () => `semaphore: ${permit} of ${this.#count} is free`);
    }
    assert(
      this.#free.length === 0 || this.#waiting.length === 0,
      () => `semaphore: ${this.#waiting.length} users wait, and ${this.#free.length} numbers are free`,
    );
  }
}
