import type { Clock } from '../../base/environment/clock.js';
import { DIRECTORY_LATE_ANSWER_MS, PEER_PATIENCE_MIN_MS } from '../../base/limits.js';
import { AnswerTimes } from '../../net/answer-times.js';

/**
 * Waits for the answers of one directory owner to lookups, as long as they usually take. An owner that is silent for longer counts as one that does
 * not answer, for this lookup and for further ones, until an answer comes or its request fails.
 */
export class Patience {
  readonly #clock: Clock;
  readonly #times = new AnswerTimes();
  #isSilent = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Sends a request and resolves with its answer; undefined: it has failed, is overdue, or was not sent because an earlier one is. */
  ask<T>(send: () => Promise<T | undefined>): Promise<T | undefined> {
    if (this.#isSilent) return Promise.resolve(undefined);
    const clock = this.#clock;
    const sentMs = clock.nowMs();
    return new Promise((resolve) => {
      let isAnswered = false;
      const patienceMs = this.#times.patienceMs(PEER_PATIENCE_MIN_MS, DIRECTORY_LATE_ANSWER_MS);
      const cancel = clock.after(patienceMs, () => {
        // This thread may have been busy itself, so answers that arrived meanwhile are handled first.
        void clock.yield().then(() => {
          if (isAnswered) return;
          this.#isSilent = true;
          resolve(undefined);
        });
      });
      void send().then((answer) => {
        isAnswered = true;
        cancel();
        this.#isSilent = false;
        if (answer !== undefined) this.#times.note(clock.nowMs() - sentMs);
        resolve(answer);
      });
    });
  }
}
