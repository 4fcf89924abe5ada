import type { ByteBudget, ByteHolding } from '../base/concurrency/byte-budget.js';
import type { Sharer } from '../base/concurrency/shares.js';

/** The memory of the message that one connection is receiving, taken from a budget that all connections share. */
export class ReceivingMemory {
  readonly #budget: ByteBudget;
  readonly #sharer: Sharer;
  readonly #onRoom: () => void;
  /** The memory held for the message; undefined while it has needed none. */
  #holding: ByteHolding | undefined;
  #isWaiting = false;

  /** `onRoom` is called when memory is available after {@link take} returned false. */
  constructor(budget: ByteBudget, sharer: Sharer, onRoom: () => void) {
    this.#budget = budget;
    this.#sharer = sharer;
    this.#onRoom = onRoom;
  }

  /** Whether the message waits for memory. */
  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /** Whether memory of the budget has been taken for the message, or is being waited for. */
  get isHeld(): boolean {
    return this.#holding !== undefined;
  }

  /** Begins to hold memory for the message. This call determines its place in the queue for memory. */
  begin(): ByteHolding {
    this.#holding ??= this.#budget.hold(this.#sharer);
    return this.#holding;
  }

  /** Takes memory for `bytes` more bytes; returns false if there is none yet. */
  take(bytes: number): boolean {
    const holding = this.begin();
    let isWithin = true;
    this.#isWaiting = true;
    holding.take(bytes, () => {
      if (this.#holding !== holding) return;
      this.#isWaiting = false;
      if (!isWithin) this.#onRoom();
    });
    isWithin = false;
    return !this.#isWaiting;
  }

  /** Takes no more memory for the message, and withdraws a pending request. */
  whole(): void {
    this.#holding?.whole();
    this.#isWaiting = false;
  }

  /**
   * Ends the message, which has arrived or was given up. Returns a function that releases its memory; undefined if it
   * has none.
   */
  handOver(): (() => void) | undefined {
    const holding = this.#holding;
    this.whole();
    this.#holding = undefined;
    return holding && (() => holding.giveBack());
  }
}
