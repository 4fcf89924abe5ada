import type { Clock } from '../../base/environment/clock.js';
import { RECEIVING_MIN_BYTES_PER_S } from '../../base/limits.js';

export interface LeastRateParts {
  readonly clock: Pick<Clock, 'after'>;
  /** Time over which the rate is measured. */
  readonly windowMs: number;
  /** Called when less has come in a window. */
  readonly onSlow: () => void;
}

/**
 * Watches that a message which has begun goes on: in each window RECEIVING_MIN_BYTES_PER_S must come, or its end. A
 * window in which this node did not read does not count.
 */
export class LeastRate {
  readonly #parts: LeastRateParts;
  #cancel: (() => void) | undefined;
  #bytes = 0;
  #isHeld = false;
  #wasHeld = false;

  constructor(parts: LeastRateParts) {
    this.#parts = parts;
  }

  /** A message has begun, and is not whole. */
  begin(): void {
    this.end();
    this.#watch();
  }

  /** Counts bytes that have come. */
  received(bytes: number): void {
    this.#bytes += bytes;
  }

  /** Says whether this node reads what comes. */
  hold(isHeld: boolean): void {
    this.#isHeld = isHeld;
    this.#wasHeld ||= isHeld;
  }

  /** The message is whole, or is given up. */
  end(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #watch(): void {
    const { clock, windowMs, onSlow } = this.#parts;
    this.#bytes = 0;
    this.#wasHeld = this.#isHeld;
    this.#cancel = clock.after(windowMs, () => {
      this.#cancel = undefined;
      if (this.#wasHeld || this.#bytes >= (RECEIVING_MIN_BYTES_PER_S * windowMs) / 1000) this.#watch();
      else onSlow();
    });
  }
}
