import type { Clock } from '../../../base/environment/clock.js';
import type { TcpLimits } from '../protocol/limits.js';

/**
 * When a thread that fails starts again: after pauses that double, and not any more after repeated failures. A thread
 * that has run for long begins with the first pause.
 */
export class ThreadRestarts {
  readonly #clock: Clock;
  readonly #limits: TcpLimits;
  #startedAtMs = 0;
  /** Restarts since a thread last ran for `servingLastsMs`. */
  #count = 0;

  constructor(clock: Clock, limits: TcpLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Called when a thread has started. */
  started(): void {
    this.#startedAtMs = this.#clock.nowMs();
  }

  /** Called when the thread has failed. Returns the milliseconds until the next one starts; undefined: none does. */
  failed(): number | undefined {
    const { servingLastsMs, servingRestartsMaxCount, servingRestartDelayMs } = this.#limits;
    if (this.#clock.nowMs() - this.#startedAtMs >= servingLastsMs) this.#count = 0;
    if (this.#count >= servingRestartsMaxCount) return undefined;
    return servingRestartDelayMs * 2 ** this.#count++;
  }
}
