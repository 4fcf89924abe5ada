/** Most that the clocks of two machines drift apart, as a fraction of the time. */
const DRIFT_MAX = 1 / 1000;

/**
 * Measures the age of the calls of one connection by the caller's monotonic clock, whose zero is unknown here. Ages are
 * relative to the fastest call of the connection. It thus does not matter where a call has waited: in the caller, in
 * the network, or here while this process was stopped or busy.
 */
export class CallAges {
  /**
   * Smallest difference between this clock and the caller's on receipt of a call, corrected for the drift since then.
   */
  #leastMs = Number.POSITIVE_INFINITY;
  #atMs = 0;

  /**
   * Returns the milliseconds since the call was made at `madeMs` of the caller's clock; 0 for the fastest call. Calls
   * must be passed in the order of their receipt.
   */
  ageMs(madeMs: number, nowMs: number): number {
    const aheadMs = nowMs - madeMs;
    this.#leastMs = Math.min(aheadMs, this.#leastMs + (nowMs - this.#atMs) * DRIFT_MAX);
    this.#atMs = nowMs;
    return aheadMs - this.#leastMs;
  }
}
