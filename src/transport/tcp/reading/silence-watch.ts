import type { Clock } from '../../../base/environment/clock.js';
import type { AnswerTimes } from '../../../net/answer-times.js';
import type { TcpLimits } from '../protocol/limits.js';

interface SilenceWatchParts {
  readonly limits: TcpLimits;
  readonly times: AnswerTimes;
  readonly clock: Clock;
  /** Payload size of the oldest request in flight; undefined if no answer is due. */
  readonly dueBytes: () => number | undefined;
  /** Called when nothing has arrived for longer than the peer usually takes. */
  readonly onOverdue: () => void;
  /** Called when nothing has arrived for the stall limit, or the oldest request takes too long. */
  readonly onStalled: () => void;
}

/**
 * Watches one open connection while answers are due. A peer that is silent for longer than it usually takes is overdue,
 * and no read waits for it any more. A peer that is silent for the stall limit is given up. All requests share one
 * timer, because most end long before it fires.
 */
export class SilenceWatch {
  readonly #parts: SilenceWatchParts;
  #lastReceiptMs = 0;
  /** When the oldest request became the oldest. */
  #oldestSinceMs = 0;
  /**
   * When the oldest request was sent, if nothing else was in flight then, so that its answer shows how long the peer
   * takes.
   */
  #timedSinceMs: number | undefined;
  #isOverdue = false;
  #isStopped = false;
  #cancelTimer: (() => void) | undefined;

  constructor(parts: SilenceWatchParts) {
    this.#parts = parts;
  }

  /** Called when a request is sent while none is in flight. */
  begin(): void {
    const { clock } = this.#parts;
    this.#lastReceiptMs = this.#oldestSinceMs = this.#timedSinceMs = clock.nowMs();
    clock.expectInput?.();
    if (this.#cancelTimer === undefined) this.#watch();
  }

  /** Called when bytes have arrived; returns whether the peer was overdue. */
  received(): boolean {
    this.#lastReceiptMs = this.#parts.clock.nowMs();
    const wasOverdue = this.#isOverdue;
    this.#isOverdue = false;
    return wasOverdue;
  }

  /** Called when the answer to the oldest request begins. */
  answerBegins(): void {
    if (this.#timedSinceMs !== undefined) this.#parts.times.note(this.#lastReceiptMs - this.#timedSinceMs);
    this.#timedSinceMs = undefined;
  }

  /** Called when another request has become the oldest. */
  oldestChanged(): void {
    this.#oldestSinceMs = this.#lastReceiptMs;
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelTimer?.();
  }

  #watch(): void {
    const { clock, onOverdue, onStalled } = this.#parts;
    this.#cancelTimer = clock.after(Math.max(0, this.#leftMs()), () => {
      this.#cancelTimer = undefined;
      if (!this.#isDue) return;
      if (this.#leftMs() > 0) {
        this.#watch();
        return;
      }
      // This thread may have been busy itself, so bytes that arrived meanwhile are handled first.
      clock.yield().then(() => {
        if (!this.#isDue) return;
        if (this.#stallLeftMs() <= 0) {
          onStalled();
        } else if (!this.#isOverdue && this.#patienceLeftMs() <= 0) {
          this.#isOverdue = true;
          onOverdue();
        }
        if (this.#isDue && this.#cancelTimer === undefined) this.#watch();
      });
    });
  }

  get #isDue(): boolean {
    return !this.#isStopped && this.#parts.dueBytes() !== undefined;
  }

  #leftMs(): number {
    return this.#isOverdue ? this.#stallLeftMs() : Math.min(this.#stallLeftMs(), this.#patienceLeftMs());
  }

  #patienceLeftMs(): number {
    const { limits, times, clock } = this.#parts;
    return this.#lastReceiptMs + times.patienceMs(limits.patienceMinMs, limits.stallTimeoutMs) - clock.nowMs();
  }

  /** Time until the connection counts as stalled, or the oldest request as too slow. */
  #stallLeftMs(): number {
    const { limits, clock, dueBytes } = this.#parts;
    const oldestMs = ((dueBytes() ?? 0) / limits.minBytesPerS) * 1000;
    return Math.min(this.#lastReceiptMs, this.#oldestSinceMs + oldestMs) + limits.stallTimeoutMs - clock.nowMs();
  }
}
