/** Shares of a new answer in the smoothed time and in its variation, as in RFC 6298. */
const SMOOTHED_SHARE = 1 / 8;
const VARIATION_SHARE = 1 / 4;
/** Variations above the smoothed time at which an answer is overdue. */
const VARIATIONS_COUNT = 4;

/**
 * How long a peer usually takes to begin an answer, and so how long to wait for one: an estimate as that of TCP's
 * retransmission time (RFC 6298), from the smoothed time and its mean variation.
 */
export class AnswerTimes {
  #smoothedMs = 0;
  #variationMs = 0;
  #isKnown = false;

  /** Whether the peer has answered before. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Takes note of the time that one answer took; answers that come when nobody waits any more count too. */
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
   * Milliseconds after which an answer is overdue: at least `minMs`, at most `maxMs`, which is also for a peer that has
   * never answered.
   */
  patienceMs(minMs: number, maxMs: number): number {
    if (!this.#isKnown) return maxMs;
    return Math.min(maxMs, Math.max(minMs, this.#smoothedMs + VARIATIONS_COUNT * this.#variationMs));
  }
}
