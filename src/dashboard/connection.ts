import type { Answer } from './api.js';
import { formatClock } from './views/format.js';

/** Failed polls in a row after which the node counts as lost. One may be lost on the way; a timeout counts at once. */
const LOST_AFTER_FAILURES = 2;

/** Whether the node that serves this page still answers. Times are milliseconds of the reader's clock. */
export class Connection {
  #lastAnswerMs: number | undefined;
  #failures = 0;
  #trouble = 'does not answer';

  /** Notes an answer; a request for a token is one, too. */
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

  /** Time since when there is no answer; null while there is one, or if there never was. */
  get lostSinceMs(): number | null {
    return this.isLost ? (this.#lastAnswerMs ?? null) : null;
  }

  /** The message for the reader; null while all is well. */
  get banner(): string | null {
    if (!this.isLost) return null;
    if (this.#lastAnswerMs === undefined) return `This node ${this.#trouble}. It is asked again every second.`;
    return `This node ${this.#trouble} since ${formatClock(this.#lastAnswerMs)}; what is below is from then.`;
  }
}
