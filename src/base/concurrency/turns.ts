/** Lets its users have something one at a time, in the order in which they ask. */
export class Turns {
  #users = 0;
  #lastEnd: Promise<void> = Promise.resolve();

  /** Whether somebody has it. */
  get isTaken(): boolean {
    return this.#users > 0;
  }

  /** Runs `use` when everybody who asked before has ended: before this returns, when there is nobody. */
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

  /** Resolves when everybody who has asked so far has ended. */
  ended(): Promise<void> {
    return this.#users > 0 ? this.#lastEnd : Promise.resolve();
  }
}
