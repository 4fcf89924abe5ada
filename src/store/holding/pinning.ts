import { unlessAborted } from '../../base/concurrency/cancellation.js';
import type { Clock } from '../../base/environment/clock.js';
import { ArgumentError, ClosedError } from '../../base/errors.js';
import { HOLD_REQUEST_MAX_KEYS } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { inTime, type WaitOptions } from '../call/call-options.js';
import type { PagePins, PinHolder } from '../pins/page-pins.js';
import type { Bringing, HeldPages } from './held-pages.js';

export interface PinningParts {
  readonly pins: PagePins;
  /** Brings missing pages into the pool. */
  readonly held: Pick<HeldPages, 'bring' | 'mayCopy'>;
  /** Longest time for which a page may be pinned, in milliseconds. */
  readonly maxMs: number;
  readonly clock: Clock;
}

/**
 * Pins pages for the clients of a node. A page that is not in the pool is first brought there: from this node's disk,
 * or as a copy from another node.
 */
export class Pinning {
  readonly #parts: PinningParts;
  #isClosed = false;

  constructor(parts: PinningParts) {
    this.#parts = parts;
  }

  /**
   * Starts to serve a client. `owner`: the pins of all clients of one owner count together; default: each client counts
   * by itself.
   */
  client(owner?: string): ClientPins {
    return new ClientPins(this.#parts, () => this.#isClosed, owner);
  }

  /** Ends all pins; calls in progress pin nothing more. */
  close(): void {
    this.#isClosed = true;
    this.#parts.pins.close();
  }
}

/** The pins of one client: this node's own program, or an attached process. */
export class ClientPins {
  readonly #parts: PinningParts;
  readonly #isClosed: () => boolean;
  readonly #holder: PinHolder;

  constructor(parts: PinningParts, isClosed: () => boolean, owner?: string) {
    this.#parts = parts;
    this.#isClosed = isClosed;
    this.#holder = parts.pins.holder(owner);
  }

  /** Number of pages that the client has pinned. */
  get count(): number {
    return this.#holder.pins.size;
  }

  /**
   * Pins pages for `forMs` milliseconds; true for each page that is in the pool and pinned. False: no node has it, it
   * could not be brought into the pool, or it exceeds a limit. After an abort nothing more is pinned. Throws
   * `ArgumentError` for a time that is not allowed.
   */
  async pin(keys: readonly string[], forMs: number, options: WaitOptions = {}): Promise<boolean[]> {
    const { maxMs, clock } = this.#parts;
    if (this.#isClosed()) throw new ClosedError('the store');
    if (!(typeof forMs === 'number' && forMs > 0 && forMs <= maxMs)) {
      throw new ArgumentError(
        `pin: forMs must be above 0 and at most ${maxMs} (pin_max_s of the node), got ${shown(forMs)}`,
      );
    }
    return inTime(clock, options, async ({ signal }) => {
      const call = new PinCall(this.#parts.pins, this.#holder, { forMs, signal });
      await unlessAborted(this.#pin([...new Set(keys)], call), signal);
      return keys.map((key) => call.pinned.has(key));
    });
  }

  /** Ends the client's pins of these pages; true for each one that it had pinned. */
  unpin(keys: readonly string[]): boolean[] {
    return this.#parts.pins.unpin(this.#holder, keys);
  }

  /** Ends all pins of the client, which can then pin nothing more. Idempotent. */
  end(): void {
    this.#parts.pins.end(this.#holder);
  }

  async #pin(keys: readonly string[], call: PinCall): Promise<void> {
    const { pins, held } = this.#parts;
    const absent = call.pinHere(keys);
    for (let start = 0; start < absent.length; start += HOLD_REQUEST_MAX_KEYS) {
      const mayPin = pins.budgetOf(this.#holder)?.allows(absent[start] as string) === true;
      if (call.isOver || !mayPin || !held.mayCopy) return;
      const wanted = absent.slice(start, start + HOLD_REQUEST_MAX_KEYS);
      await held.bring(wanted, 'pin', call);
      call.pinHere(wanted);
    }
  }
}

/** One call that pins pages and has missing ones brought into the pool. */
class PinCall implements Bringing {
  /** Keys of the call that are pinned so far. */
  readonly pinned = new Set<string>();
  readonly #pins: PagePins;
  readonly #holder: PinHolder;
  readonly #forMs: number;
  readonly #signal: AbortSignal | undefined;

  constructor(
    pins: PagePins,
    holder: PinHolder,
    { forMs, signal }: { readonly forMs: number; readonly signal: AbortSignal | undefined },
  ) {
    [this.#pins, this.#holder, this.#forMs, this.#signal] = [pins, holder, forMs, signal];
  }

  get isOver(): boolean {
    return this.#signal?.aborted === true || this.#holder.hasEnded;
  }

  admission(): (key: string, length: number) => boolean {
    const budget = this.#pins.budgetOf(this.#holder);
    return (key, length) => budget?.take(key, length) === true;
  }

  arrived(keys: readonly string[]): void {
    this.pinHere(keys);
  }

  /** Pins the pages that are in the pool; returns the keys of the others. */
  pinHere(keys: readonly string[]): string[] {
    const left = keys.filter((key) => !this.pinned.has(key));
    if (left.length === 0 || this.#signal?.aborted) return [];
    const outcomes = this.#pins.pin(this.#holder, left, this.#forMs);
    left.forEach((key, i) => {
      if (outcomes[i] === 'pinned') this.pinned.add(key);
    });
    return left.filter((_, i) => outcomes[i] === 'absent');
  }
}
