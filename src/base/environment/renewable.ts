/**
 * A value that must not be shown, and that may be renewed while the program runs. Whoever uses it asks for it each
 * time, or listens. Printing, inspecting or serialising this object never shows the value.
 */
export class Renewable<T> {
  readonly #shown: string;
  readonly #listeners = new Set<(value: T) => void>();
  #value: T;

  /** `shown` is what is printed in place of the value. */
  constructor(value: T, shown: string) {
    this.#value = value;
    this.#shown = shown;
  }

  /** The present value, only for the cryptography and for passing it to this node's threads. */
  reveal(): T {
    return this.#value;
  }

  /** Takes another value, and tells the listeners. */
  renew(value: T): void {
    this.#value = value;
    for (const listener of this.#listeners) listener(value);
  }

  /** Calls `listener` with each later value; the function that is returned ends that. */
  onRenewed(listener: (value: T) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** What is shown in place of the value. */
  toJSON(): string {
    return this.#shown;
  }

  /** What is shown in place of the value. */
  toString(): string {
    return this.#shown;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.#shown;
  }
}
