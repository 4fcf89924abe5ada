/**
 * Calls all listeners, in the order in which they were added, each time a fact is told. A signal exists before the
 * parts on both sides of it, so the telling part needs no reference to a part that is made later. Facts told while
 * nobody listens are lost. An error of a listener is thrown to the caller of `tell`.
 */
export class Signal<Facts extends readonly unknown[]> {
  readonly #listeners: ((...facts: Facts) => void)[] = [];

  /** Calls all listeners. Bound to this signal, so it can be passed as a callback. */
  readonly tell = (...facts: Facts): void => {
    for (const listener of this.#listeners) listener(...facts);
  };

  /** Adds a listener, which is called from now on. */
  listen(listener: (...facts: Facts) => void): void {
    this.#listeners.push(listener);
  }
}
