import type { Clock } from '../../../base/environment/clock.js';
import type { SimEvent } from './event-heap.js';
import type { Scheduler } from './scheduler.js';

/** Shortest delay of timers, which also replaces invalid delays, as in Node. */
const TIMER_MIN_MS = 1;
const TIMER_MAX_MS = 2 ** 31 - 1;

/** The clocks of one machine. Their readings are functions of the world's time; faults change these functions. */
export class HostTime {
  readonly #scheduler: Scheduler;
  /**
   * Reading of the monotonic clock at world time `#sinceMs`, after which it gains `#rate` per millisecond of the world.
   */
  #monotonicMs: number;
  #sinceMs = 0;
  #rate = 1;
  #isSuspended = false;
  #wallOffsetMs: number;
  /** Reading of the wall clock while it is stopped. */
  #stoppedWallMs: number | undefined;

  constructor(scheduler: Scheduler, start: { readonly monotonicMs: number; readonly wallMs: number }) {
    this.#scheduler = scheduler;
    this.#monotonicMs = start.monotonicMs;
    this.#wallOffsetMs = start.wallMs - start.monotonicMs;
  }

  nowMs(): number {
    if (this.#isSuspended) return this.#monotonicMs;
    return this.#monotonicMs + (this.#scheduler.nowMs - this.#sinceMs) * this.#rate;
  }

  wallMs(): number {
    return Math.floor(this.#stoppedWallMs ?? this.nowMs() + this.#wallOffsetMs);
  }

  /** Milliseconds of the world's time in which this clock gains `ms`. */
  worldMs(ms: number): number {
    return ms / this.#rate;
  }

  /** Makes both clocks run fast by this many parts per million (negative: slow). */
  setDrift(ppm: number): void {
    this.#rebase();
    this.#rate = 1 + ppm / 1e6;
  }

  /** Moves the wall clock, forward or back. */
  jump(ms: number): void {
    if (this.#stoppedWallMs !== undefined) this.#stoppedWallMs += ms;
    this.#wallOffsetMs += ms;
  }

  /** Stops the wall clock until `startWall`; then it shows the right time again. */
  stopWall(): void {
    this.#stoppedWallMs ??= this.wallMs();
  }

  startWall(): void {
    this.#stoppedWallMs = undefined;
  }

  /**
   * Notes the start of a process. No two processes start in the same millisecond of a wall clock, because that time
   * distinguishes the starts of a node.
   */
  processStarts(): void {
    if (this.#stoppedWallMs !== undefined) this.#stoppedWallMs++;
  }

  /** Stops the monotonic clock, as on a sleeping machine. The wall clock is right again after `resume`. */
  suspend(): void {
    this.#rebase();
    this.#isSuspended = true;
  }

  resume(): void {
    if (!this.#isSuspended) return;
    this.#isSuspended = false;
    this.#wallOffsetMs += (this.#scheduler.nowMs - this.#sinceMs) * this.#rate;
    this.#sinceMs = this.#scheduler.nowMs;
  }

  #rebase(): void {
    this.#monotonicMs = this.nowMs();
    this.#sinceMs = this.#scheduler.nowMs;
  }
}

/** The parts of a process that its clock uses. */
interface ClockOwner {
  readonly id: number;
  readonly isAlive: boolean;
  mayRun(event: SimEvent): boolean;
}

/** The clock of one process. */
export class SimClock implements Clock {
  readonly #scheduler: Scheduler;
  readonly #time: HostTime;
  readonly #owner: ClockOwner;
  readonly #turnMs: number;
  #timersCount = 0;

  /** `turnMs`: the shortest time of a turn of the event loop. */
  constructor(scheduler: Scheduler, time: HostTime, owner: ClockOwner, turnMs: number) {
    this.#scheduler = scheduler;
    this.#time = time;
    this.#owner = owner;
    this.#turnMs = turnMs;
  }

  /** Number of timers that have not fired. */
  get timersCount(): number {
    return this.#timersCount;
  }

  nowMs(): number {
    return this.#time.nowMs();
  }

  wallMs(): number {
    return this.#time.wallMs();
  }

  after(delayMs: number, fn: () => void): () => void {
    if (!this.#owner.isAlive) return () => {};
    const delay = delayMs >= TIMER_MIN_MS && delayMs <= TIMER_MAX_MS ? delayMs : TIMER_MIN_MS;
    let isDue = true;
    this.#timersCount++;
    const event = this.#scheduler.schedule(this.#scheduler.nowMs + this.#time.worldMs(delay), {
      kind: 'timer',
      owner: this.#owner,
      detail: delay,
      run: () => {
        isDue = false;
        this.#timersCount--;
        fn();
      },
    });
    return () => {
      if (!isDue) return;
      isDue = false;
      this.#timersCount--;
      this.#scheduler.cancel(event);
    };
  }

  yield(): Promise<void> {
    return new Promise((resolve) => {
      if (!this.#owner.isAlive) return;
      const atMs = this.#scheduler.nowMs + this.#turnMs;
      this.#scheduler.schedule(atMs, { kind: 'yield', owner: this.#owner, run: resolve });
    });
  }

  soon(fn: () => void): void {
    if (this.#owner.isAlive) process.nextTick(fn);
  }
}
