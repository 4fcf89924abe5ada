/** Weights of a new answer in the smoothed time and in its variation, as in RFC 6298. */
const SMOOTHED_SHARE = 1 / 8;
const VARIATION_SHARE = 1 / 4;
/** Variations above the smoothed time at which an answer is overdue. */
const VARIATIONS_COUNT = 4;

/**
 * Estimates how long a peer usually takes to begin an answer, and thus how long to wait for one. Works like TCP's
 * retransmission timer (RFC 6298), with the smoothed time and its mean variation.
 */
export class AnswerTimes {
  #smoothedMs = 0;
  #variationMs = 0;
  #isKnown = false;

  /** Whether the peer has answered before. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Records the time that one answer took. Answers that arrive when no caller waits any more count, too. */
  note(ms: number): void {
    if (this.#isKnown) {
      this.#variationMs += VARIATION_SHARE * (Math.abs(this.#smoothedMs - ms) - this.#variationMs);
      this.#smoothedMs += SMOOTHED_SHARE * (ms - this.#smoothedMs);
      return;
    }
    this.#isKnown = true;
    this.#smoothedMs = ms;
    this.#variationMs = ms / 2;
  }

  /**
   * Returns the milliseconds after which an answer is overdue, from `minMs` to `maxMs`. It is `maxMs` for a peer that
   * has never answered.
   */
  patienceMs(minMs: number, maxMs: number): number {
    if (!this.#isKnown) return maxMs;
    return Math.min(maxMs, Math.max(minMs, this.#smoothedMs + VARIATIONS_COUNT * this.#variationMs));
  }
}
