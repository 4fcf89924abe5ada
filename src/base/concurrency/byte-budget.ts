import { assert, assertEqual } from '../assert.js';
import { type Sharer, Shares } from './shares.js';

/**
 * Memory that many users share. Each piece of work takes bytes as it needs them and gives them all back together. Work
 * that wants more than is free, or more than its share (see `Shares`), waits and keeps what it has.
 *
 * To avoid deadlock, shares do not apply to the earliest incomplete work, nor to the earliest of each sharer; and
 * `wholeBytes`, less what the earliest of all already has, stays free for it. If it needs no more than `wholeBytes`, it
 * can always complete.
 *
 * Accounting: the bytes left and the bytes of `#holdings` add up to the total.
 */
export class ByteBudget {
  readonly #bytes: number;
  readonly #wholeBytes: number;
  readonly #shares: Shares;
  /** The earliest first. */
  readonly #holdings = new Set<ByteHolding>();
  #isGranting = false;

  /**
   * `wholeBytes`: the most that one piece of work takes in several parts; 0: each piece of work takes its bytes at
   * once.
   */
  constructor(bytes: number, wholeBytes = 0) {
    this.#bytes = bytes;
    this.#wholeBytes = wholeBytes;
    this.#shares = new Shares(bytes);
  }

  /** Begins a piece of work of a sharer. */
  hold(sharer: Sharer): ByteHolding {
    const holding = new ByteHolding(sharer, {
      changed: () => this.#grant(),
      ended: () => {
        this.#holdings.delete(holding);
        if (holding.bytes > 0) this.#shares.giveBack(sharer, holding.bytes);
        this.#grant();
      },
    });
    this.#holdings.add(holding);
    return holding;
  }

  /**
   * Calls `granted` when the sharer gets this many bytes, at once or later. Returns a function that withdraws the
   * request or gives the bytes back.
   */
  take(sharer: Sharer, bytes: number, granted: () => void): () => void {
    const holding = this.hold(sharer);
    holding.take(bytes, () => {
      holding.whole();
      granted();
    });
    return () => holding.giveBack();
  }

  /** Grants all requests that can be granted, the earliest first. */
  #grant(): void {
    // A grant may change holdings; the loop begins again after each.
    if (this.#isGranting) return;
    this.#isGranting = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        this.#shares.take(next.sharer, next.wantedBytes);
        next.grant();
      }
    } finally {
      this.#isGranting = false;
    }
  }

  /** The first holding whose request can be granted. */
  #next(): ByteHolding | undefined {
    const earliest = new Set<string>();
    let first: ByteHolding | undefined;
    for (const holding of this.#holdings) {
      if (holding.isWhole) continue;
      const isFirst = first === undefined;
      first ??= holding;
      const { wantedBytes, sharer } = holding;
      const isEarliest = !earliest.has(sharer.one);
      earliest.add(sharer.one);
      if (wantedBytes === 0 || wantedBytes > this.#shares.left) continue;
      if (isFirst) return holding;
      const isKept = this.#shares.left - wantedBytes + first.bytes >= this.#wholeBytes;
      if (isKept && (isEarliest || this.#shares.allows(sharer, wantedBytes))) return holding;
    }
    return undefined;
  }

  /**
   * Throws `InvariantError` unless the accounting of this class holds, and nobody waits for bytes that could be
   * granted.
   */
  verify(): void {
    let bytes = this.#shares.left;
    for (const holding of this.#holdings) bytes += holding.bytes;
    assertEqual('byte budget: bytes', this.#bytes, bytes);
    this.#shares.verify();
    const next = this.#next();
    assert(next === undefined, () => `byte budget: ${next?.wantedBytes} bytes are waited for, and may be had`);
  }
}

interface Budget {
  readonly changed: () => void;
  readonly ended: () => void;
}

/** The bytes that one piece of work holds of a {@link ByteBudget}. */
export class ByteHolding {
  readonly sharer: Sharer;
  readonly #budget: Budget;
  #bytes = 0;
  #wantedBytes = 0;
  #onGranted: () => void = () => {};
  #isWhole = false;
  #isEnded = false;

  constructor(sharer: Sharer, budget: Budget) {
    this.sharer = sharer;
    this.#budget = budget;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Bytes that this holding waits for. */
  get wantedBytes(): number {
    return this.#wantedBytes;
  }

  /** Whether this holding takes no more bytes. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Calls `granted` when this many more bytes have been granted, at once or later. One request at a time. */
  take(bytes: number, granted: () => void): void {
    assert(this.#wantedBytes === 0 && !this.#isEnded, 'byte budget: a wish while there is another, or after the end');
    if (bytes === 0) {
      granted();
      return;
    }
    this.#wantedBytes = bytes;
    this.#onGranted = granted;
    this.#isWhole = false;
    this.#budget.changed();
  }

  /** Declares that no more bytes will be taken, which makes way for others. Withdraws a pending request. */
  whole(): void {
    if (this.#isWhole || this.#isEnded) return;
    this.#isWhole = true;
    this.#wantedBytes = 0;
    this.#budget.changed();
  }

  /** Gives everything back. Idempotent. */
  giveBack(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#wantedBytes = 0;
    this.#budget.ended();
    this.#bytes = 0;
  }

  /** @internal Called by the budget when it has granted the requested bytes. */
  grant(): void {
    this.#bytes += this.#wantedBytes;
    this.#wantedBytes = 0;
    this.#onGranted();
  }
}
