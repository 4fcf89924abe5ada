/** Says when something is not wanted any more; an `AbortSignal` is one, too. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  /** Harmless for one that does not listen. */
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** An `AbortController` for what is made and thrown away with every call: without events, which cost more than a short call itself. */
export class Cancellation implements CancelSignal {
  #isAborted = false;
  readonly #listeners = new Set<() => void>();

  get aborted(): boolean {
    return this.#isAborted;
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.#isAborted) this.#listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.delete(listener);
  }

  /** Tells those who listen, once. */
  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }
}
