/** The clocks of two machines, each at its own pace, come apart by less than this part of the time. */
const DRIFT_MAX = 1 / 1000;

/**
 * How long ago the calls of one connection were made, by the monotonic clock of the caller, whose zero is another one:
 * longer than the fastest call of the connection took. So it does not matter where a call has waited: in the caller, in
 * the network, or here while this process was stopped or busy.
 */
export class CallAges {
  /**
   * The least that this clock was ahead of the caller's at the receipt of a call, as far as the clocks may have come
   * apart since.
   */
  #leastMs = Number.POSITIVE_INFINITY;
  #atMs = 0;

  /**
   * Milliseconds since the call was made at `madeMs` of the caller's clock; 0 for the fastest call. Calls are told of
   * in the order of their receipt.
   */
  ageMs(madeMs: number, nowMs: number): number {
    const aheadMs = nowMs - madeMs;
    this.#leastMs = Math.min(aheadMs, this.#leastMs + (nowMs - this.#atMs) * DRIFT_MAX);
    this.#atMs = nowMs;
    return aheadMs - this.#leastMs;
  }
}
