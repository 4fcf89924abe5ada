/** Tells when a result is no longer wanted. An `AbortSignal` is a CancelSignal, too. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  /** Removes a listener; without effect for one that was not added. */
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A cheap `AbortController` for use in every call: it creates no event objects, which cost more than a short call. */
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

  /** Calls all listeners, once. */
  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }
}
