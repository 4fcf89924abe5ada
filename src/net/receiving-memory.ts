import type { ByteBudget, ByteHolding } from '../base/concurrency/byte-budget.js';
import type { Sharer } from '../base/concurrency/shares.js';

/** The memory of the message that one connection is receiving, of a budget that all connections share. */
export class ReceivingMemory {
  readonly #budget: ByteBudget;
  readonly #sharer: Sharer;
  readonly #onRoom: () => void;
  /** Undefined: the message needs none so far. */
  #holding: ByteHolding | undefined;
  #isWaiting = false;

  /** `onRoom` is called when there is memory for which {@link take} has returned false. */
  constructor(budget: ByteBudget, sharer: Sharer, onRoom: () => void) {
    this.#budget = budget;
    this.#sharer = sharer;
    this.#onRoom = onRoom;
  }

  /** Whether the message waits for memory. */
  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /** Whether memory of the budget is taken for the message, or waited for. */
  get isHeld(): boolean {
    return this.#holding !== undefined;
  }

  /** The message needs memory from now on: its place among those that wait is that of this call. */
  begin(): ByteHolding {
    this.#holding ??= this.#budget.hold(this.#sharer);
    return this.#holding;
  }

  /** Takes memory for so many further bytes; false: there is none yet. */
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

  /** The message takes no more; what it waits for is withdrawn. */
  whole(): void {
    this.#holding?.whole();
    this.#isWaiting = false;
  }

  /** The message has come, or is given up: returns what gives its memory back. Undefined: it has none. */
  handOver(): (() => void) | undefined {
    const holding = this.#holding;
    this.whole();
    this.#holding = undefined;
    return holding && (() => holding.giveBack());
  }
}
