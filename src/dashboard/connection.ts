import type { Answer } from './api.js';
import { formatClock } from './views/format.js';

/** One poll may be lost on the way; two in a row, or one that ran into its deadline, are the node. */
const LOST_AFTER_FAILURES = 2;

/** Whether the node that serves this page still answers it. Times are of the reader's clock, milliseconds. */
export class Connection {
  #lastAnswerMs: number | undefined;
  #failures = 0;
  #trouble = 'does not answer';

  /** A node that asks for a token answers. */
  note(answer: Answer, nowMs: number): void {
    if (answer.kind === 'report' || answer.kind === 'unauthorized') {
      this.#failures = 0;
      if (answer.kind === 'report') this.#lastAnswerMs = nowMs;
      return;
    }
    this.#failures += answer.kind === 'silent' && answer.isTimeout ? LOST_AFTER_FAILURES : 1;
    this.#trouble = answer.kind === 'failed' ? answer.why : 'does not answer';
  }

  get isLost(): boolean {
    return this.#failures >= LOST_AFTER_FAILURES;
  }

  /** Since when there has been no answer, while there is none; null otherwise, or when there has never been one. */
  get lostSinceMs(): number | null {
    return this.isLost ? (this.#lastAnswerMs ?? null) : null;
  }

  /** What the reader must know; null while all is well. */
  get banner(): string | null {
    if (!this.isLost) return null;
    if (this.#lastAnswerMs === undefined) return `This node ${this.#trouble}. It is asked again every second.`;
    return `This node ${this.#trouble} since ${formatClock(this.#lastAnswerMs)}; what is below is from then.`;
  }
}
