import type { Clock } from '../environment/clock.js';
import { FAIR_TURN_MS } from '../limits.js';

/**
 * Lets timers and I/O have their turn between calls that resolve without any I/O. Awaited one after the other, such
 * calls never leave the queue of microtasks: nothing else would run, heartbeats neither.
 *
 * A call waits for the event loop's next turn, at its end, when calls have had the thread for FAIR_TURN_MS since the
 * last one. A call that has waited for I/O has let the others run, and does not wait.
 */
export class FairTurns {
  readonly #clock: Clock;
  /** Resolves after the next turn of the event loop; undefined: no call has begun since the last turn. */
  #nextTurn: Promise<void> | undefined;
  /** Time at which the first call since the last turn of the event loop began. */
  #sinceMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs `call` and passes on its result or error. */
  async run<T>(call: () => Promise<T> | T): Promise<T> {
    this.#begin();
    try {
      return await call();
    } finally {
      const turn = this.#nextTurn;
      if (turn !== undefined && this.#clock.nowMs() - this.#sinceMs >= FAIR_TURN_MS) await turn;
    }
  }

  #begin(): void {
    if (this.#nextTurn !== undefined) return;
    this.#sinceMs = this.#clock.nowMs();
    this.#nextTurn = this.#clock.yield().then(() => {
      this.#nextTurn = undefined;
    });
  }
}
