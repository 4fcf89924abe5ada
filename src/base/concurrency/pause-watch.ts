import type { Clock } from '../environment/clock.js';

/** Milliseconds between two checks of the clock. */
const LOOK_MS = 200;
/** Milliseconds after a pause within which everything that arrived during it has been read, even on a busy machine. */
const READ_WITHIN_MS = 1000;
/**
 * A process that got less than this part of a processor since the last check was not running; with more, it was busy.
 */
const WORKED_FRACTION = 1 / 3;

/**
 * Notices when this process was not running, for example after SIGSTOP, or while its machine was suspended or out of
 * memory. What it reads from a socket then may have been sent long before, and its sender may have given up since.
 */
export class PauseWatch {
  readonly #clock: Clock;
  #lookedMs: number;
  /** Processor time at the last check. */
  #workedMs: number;
  /** The last check before a pause that has just ended. Input that arrived during the pause may still be unread. */
  #pausedSinceMs: number | undefined;
  /** Time from which on the input of that pause counts as read. */
  #readMs = 0;
  #cancel: () => void = () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lookedMs = clock.nowMs();
    this.#workedMs = clock.workedMs?.() ?? 0;
    this.#lookLater();
  }

  /**
   * The earliest time at which something that is read now can have been sent, if this process had read it as soon as it
   * could: now, or the beginning of a pause that has just ended.
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
