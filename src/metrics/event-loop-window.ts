import { type EventLoopUtilization, type IntervalHistogram, monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Clock } from '../base/clock.js';
import { EVENT_LOOP_SAMPLE_MS, EVENT_LOOP_TURN_MS } from '../base/limits.js';

/** Seconds by which work on the event loop was late. */
export interface EventLoopDelay {
  readonly p50_s: number;
  readonly p99_s: number;
  readonly max_s: number;
}

/** What has happened since it was begun. */
interface Span {
  readonly delays: IntervalHistogram;
  readonly begun: EventLoopUtilization;
}

/**
 * Delay and use of the event loop of late, however often and by whomever it is asked for: of two spans, one turn apart, the older
 * one is told, and every turn it begins anew as the younger one. Holds two timers of the system until it is closed, which do not
 * keep the process alive.
 */
export class EventLoopWindow {
  readonly #clock: Clock;
  #older = newSpan();
  #younger = newSpan();
  #cancelTurn: () => void = () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#awaitTurn();
  }

  delay(): EventLoopDelay {
    const { delays } = this.#older;
    if (delays.count === 0) return { p50_s: 0, p99_s: 0, max_s: 0 };
    return {
      p50_s: lateness(delays.percentile(50)),
      p99_s: lateness(delays.percentile(99)),
      max_s: lateness(delays.max),
    };
  }

  /** Part of the time in which the event loop was at work, 0 to 1. */
  utilization(): number {
    return performance.eventLoopUtilization(this.#older.begun).utilization;
  }

  /** What is told stays as it is. Idempotent. */
  close(): void {
    this.#cancelTurn();
    for (const { delays } of [this.#older, this.#younger]) delays.disable();
  }

  #awaitTurn(): void {
    this.#cancelTurn = this.#clock.after(EVENT_LOOP_TURN_MS, () => {
      const { delays } = this.#older;
      delays.reset();
      this.#older = this.#younger;
      this.#younger = { delays, begun: performance.eventLoopUtilization() };
      this.#awaitTurn();
    });
  }
}

function newSpan(): Span {
  const delays = monitorEventLoopDelay({ resolution: EVENT_LOOP_SAMPLE_MS });
  delays.enable();
  return { delays, begun: performance.eventLoopUtilization() };
}

/** The time between two samples is measured, in nanoseconds; what it is longer than it was to be is the delay. */
function lateness(betweenNs: number): number {
  return Math.max(0, betweenNs / 1e9 - EVENT_LOOP_SAMPLE_MS / 1e3);
}
