import type { Clock } from '../../src/base/environment/clock.js';

/** A clock that stands still until a test turns it. Timers run within `advance`, in the order in which they are due. */
export class ManualClock implements Clock {
  #nowMs: number;
  readonly #wallStartMs: number;
  readonly #timers = new Set<{ dueMs: number; fn: () => void }>();

  constructor(startMs = 1_000, wallStartMs = 1_700_000_000_000) {
    this.#nowMs = startMs;
    this.#wallStartMs = wallStartMs - startMs;
  }

  /** Number of timers that wait. */
  get pendingCount(): number {
    return this.#timers.size;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return this.#wallStartMs + this.#nowMs;
  }

  after(delayMs: number, fn: () => void): () => void {
    const timer = { dueMs: this.#nowMs + Math.max(0, delayMs), fn };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  yield(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve));
  }

  soon(fn: () => void): void {
    process.nextTick(fn);
  }

  /** Moves the clock as if the process had not run for `byMs`; timers that became due run too late, after that. */
  stall(byMs: number): void {
    this.#nowMs += byMs;
    this.advance(0);
  }

  /** Turns the clock by `byMs`. Timers set by running ones also run if they fall within that time. */
  advance(byMs: number): void {
    const endMs = this.#nowMs + byMs;
    for (;;) {
      let next: { dueMs: number; fn: () => void } | undefined;
      for (const timer of this.#timers) {
        if (timer.dueMs <= endMs && (next === undefined || timer.dueMs < next.dueMs)) next = timer;
      }
      if (next === undefined) break;
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.dueMs);
      next.fn();
    }
    this.#nowMs = endMs;
  }
}
