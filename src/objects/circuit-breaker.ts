import { pauseAfter } from '../base/concurrency/backoff.js';
import type { Clock } from '../base/environment/clock.js';
import { OBJECT_RETRY_MAX_MS, OBJECT_RETRY_MIN_MS } from '../base/limits.js';

const BACKOFF = { minMs: OBJECT_RETRY_MIN_MS, maxMs: OBJECT_RETRY_MAX_MS };

/**
 * Keeps requests from a store that fails: after a failure none is sent for a while, then one, and all again when that
 * one has succeeded. The pause doubles with each failure, from OBJECT_RETRY_MIN_MS to OBJECT_RETRY_MAX_MS.
 */
export class CircuitBreaker {
  readonly #clock: Clock;
  #failures = 0;
  #closedAgainMs = Number.NEGATIVE_INFINITY;
  #isProbing = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether requests are kept back now; one that tries whether the store is back may be sent. */
  get isOpen(): boolean {
    return this.#failures > 0 && (this.#isProbing || this.#clock.nowMs() < this.#closedAgainMs);
  }

  /** Whether no request has succeeded since the last failure. */
  get isFailing(): boolean {
    return this.#failures > 0;
  }

  /** Whether a request may be sent. The caller must report its outcome with {@link ended}. */
  take(): boolean {
    if (this.isOpen) return false;
    if (this.#failures > 0) this.#isProbing = true;
    return true;
  }

  /** Reports the outcome of a request; undefined: it says nothing about the store. */
  ended(isGood: boolean | undefined): void {
    if (isGood === undefined) {
      this.#isProbing = false;
      return;
    }
    if (isGood) {
      this.#failures = 0;
      this.#isProbing = false;
      return;
    }
    // Requests that were sent before the first failure are no further ones.
    if (this.#failures > 0 && !this.#isProbing) return;
    this.#isProbing = false;
    this.#closedAgainMs = this.#clock.nowMs() + pauseAfter(++this.#failures, BACKOFF);
  }
}
