import type { Clock } from '../environment/clock.js';

/** Milliseconds between two looks at the clock. */
const LOOK_MS = 200;
/** Milliseconds after a pause within which what came meanwhile is read, also where many processes go on at once. */
const READ_WITHIN_MS = 1000;
/** A process that has had less than this part of a processor meanwhile was not running. One that had more was busy. */
const WORKED_FRACTION = 1 / 3;

/**
 * Notices when this process was not running, as after SIGSTOP, or while its machine was suspended or out of memory:
 * what it reads from a socket then may have been sent long before, and its sender may have given it up since.
 */
export class PauseWatch {
  readonly #clock: Clock;
  #lookedMs: number;
  /** Processor time at the last look. */
  #workedMs: number;
  /** The last look before a pause that has just ended. What has come meanwhile may not have been read yet. */
  #pausedSinceMs: number | undefined;
  /** When that is read. */
  #readMs = 0;
  #cancel: () => void = () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lookedMs = clock.nowMs();
    this.#workedMs = clock.workedMs?.() ?? 0;
    this.#lookLater();
  }

  /**
   * The earliest time at which something that is read now was sent, unless this process has left it unread: now, or
   * when a pause began.
   */
  sentAfterMs(): number {
    const nowMs = this.#clock.nowMs();
    return this.#pausedSinceMs ?? (this.#isPause(nowMs) ? this.#lookedMs : nowMs);
  }

  close(): void {
    this.#cancel();
  }

  #lookLater(): void {
    this.#cancel = this.#clock.after(LOOK_MS, () => {
      const nowMs = this.#clock.nowMs();
      if (this.#isPause(nowMs)) {
        this.#pausedSinceMs ??= this.#lookedMs;
        this.#readMs = nowMs + READ_WITHIN_MS;
      } else if (nowMs >= this.#readMs) this.#pausedSinceMs = undefined;
      this.#lookedMs = nowMs;
      this.#workedMs = this.#clock.workedMs?.() ?? 0;
      this.#lookLater();
    });
  }

  #isPause(nowMs: number): boolean {
    const passedMs = nowMs - this.#lookedMs;
    if (passedMs <= 2 * LOOK_MS) return false;
    return (this.#clock.workedMs?.() ?? 0) - this.#workedMs < WORKED_FRACTION * passedMs;
  }
}
