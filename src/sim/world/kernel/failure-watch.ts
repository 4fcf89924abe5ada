type Listener = (error: Error) => void;

const EVENTS = ['unhandledRejection', 'uncaughtException'] as const;
const WATCHES: unique symbol = Symbol('watches a simulated world');

/**
 * Catches unhandled rejections, and exceptions in promise jobs, while a world runs. They belong to the simulated
 * programs, so no other listener in this process receives them meanwhile.
 */
export class FailureWatch {
  readonly #heard: Listener;
  #others: (readonly [string, Listener[]])[] = [];

  constructor(onFailure: (error: unknown) => void) {
    this.#heard = Object.assign((error: unknown) => onFailure(error), { [WATCHES]: true });
  }

  /** Begins watching. Throws while another world runs in this process. */
  begin(): void {
    const others = EVENTS.map(
      (event) => [event, process.rawListeners(event as 'uncaughtException') as Listener[]] as const,
    );
    if (others.some(([, listeners]) => listeners.some((listener) => WATCHES in listener))) {
      throw new Error('another world runs in this process: one at a time');
    }
    this.#others = others;
    for (const event of EVENTS) {
      process.removeAllListeners(event);
      process.on(event as 'uncaughtException', this.#heard);
    }
  }

  end(): void {
    for (const [event, listeners] of this.#others) {
      process.removeListener(event, this.#heard);
      for (const listener of listeners) process.on(event as 'uncaughtException', listener);
    }
    this.#others = [];
  }
}
