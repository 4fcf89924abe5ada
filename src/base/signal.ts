/**
 * Passes what one part of a program tells on to the parts that listen, at once and in the order in which they began to.
 * A signal is made before the parts on both sides of it: whoever tells needs no reference to a part that is made later.
 * What is told while nobody listens is lost. An error of a listener goes to who tells.
 */
export class Signal<Facts extends readonly unknown[]> {
  readonly #listeners: ((...facts: Facts) => void)[] = [];

  /** Calls all listeners. Bound to this signal: it can be handed on as a callback. */
  readonly tell = (...facts: Facts): void => {
    for (const listener of this.#listeners) listener(...facts);
  };

  /** Calls `listener` from now on. */
  listen(listener: (...facts: Facts) => void): void {
    this.#listeners.push(listener);
  }
}
