/** Lets one user in at a time, in the order in which they ask. */
export class Mutex {
  #users = 0;
  #lastEnd: Promise<void> = Promise.resolve();

  /** Whether a user holds the mutex. */
  get isLocked(): boolean {
    return this.#users > 0;
  }

  /** Runs `use` after all users who asked before have ended; if there are none, before this returns. */
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
      this.#users--;
      end();
    }
  }

  /** Resolves when all users who have asked so far have ended. */
  ended(): Promise<void> {
    return this.#users > 0 ? this.#lastEnd : Promise.resolve();
  }
}
