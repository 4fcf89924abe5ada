import type { Clock } from '../base/environment/clock.js';
import type { Host, LoopObservation } from '../base/environment/host.js';
import { EVENT_LOOP_TURN_MS } from '../base/limits.js';

/** Seconds by which work on the event loop was late. */
export interface EventLoopDelay {
  readonly p50_s: number;
  readonly p99_s: number;
  readonly max_s: number;
}

/**
 * Delay and use of the event loop in the recent past, however often and by whomever they are read. It keeps two
 * observations, one turn apart: the older one is reported, and in every turn it begins anew as the younger one. They do
 * not keep the process alive.
 */
export class EventLoopWindow {
  readonly #clock: Clock;
  #older: LoopObservation;
  #younger: LoopObservation;
  #cancelTurn: () => void = () => {};

  constructor(clock: Clock, host: Pick<Host, 'observeLoop'>) {
    this.#clock = clock;
    this.#older = host.observeLoop();
    this.#younger = host.observeLoop();
    this.#awaitTurn();
  }

  delay(): EventLoopDelay {
    const older = this.#older;
    if (older.count === 0) return { p50_s: 0, p99_s: 0, max_s: 0 };
    return { p50_s: older.delayS(50), p99_s: older.delayS(99), max_s: older.delayS(100) };
  }

  /** Part of the time in which the event loop was busy, 0 to 1. */
  utilization(): number {
    return this.#older.utilization();
  }

  /** Stops observing; the last values stay. Idempotent. */
  close(): void {
    this.#cancelTurn();
    for (const observation of [this.#older, this.#younger]) observation.end();
  }

  #awaitTurn(): void {
    this.#cancelTurn = this.#clock.after(EVENT_LOOP_TURN_MS, () => {
      const older = this.#older;
      older.beginAnew();
      this.#older = this.#younger;
      this.#younger = older;
      this.#awaitTurn();
    });
  }
}
