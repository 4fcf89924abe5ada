import type { Clock } from '../environment/clock.js';
import { FAIR_TURN_MS } from '../limits.js';

/**
 * Lets timers and I/O run between calls that resolve without I/O. Such calls, awaited one after the other, never leave
 * the microtask queue, so nothing else would run, not even heartbeats.
 *
 * At its end, a call waits for the next turn of the event loop if calls have occupied the thread for FAIR_TURN_MS since
 * the last turn. A call that has waited for I/O has already let others run and does not wait.
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
