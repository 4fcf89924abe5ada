import { unlessAborted } from '../../base/concurrency/cancellation.js';
import type { Clock } from '../../base/environment/clock.js';
import { ArgumentError, ClosedError } from '../../base/errors.js';
import { COPY_REQUEST_MAX_KEYS, PROMOTE_ROUND_MAX_KEYS } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import type { PublishedPage } from '../../pool/published-pool.js';
import { inTime, type WaitOptions } from '../call/call-options.js';
import type { Promoter } from '../disk/promoter.js';
import type { PagePins, PinHolder } from '../pins/page-pins.js';
import type { RemoteCopies } from './remote-copies.js';

export interface PinningParts {
  readonly pins: PagePins;
  /** The pages on the own disk; null for others. Null: there is no disk. */
  readonly onDisk: ((keys: readonly string[]) => (Pick<PublishedPage, 'length'> | null)[]) | null;
  /** Brings pages from the own disk into the pool; null: there is no disk. */
  readonly promoter: Pick<Promoter, 'promote' | 'release'> | null;
  /** Brings pages of other nodes into the pool. */
  readonly copies: Pick<RemoteCopies, 'copy'>;
  /** Whether pages may be brought into the pool now. */
  readonly mayBring: () => boolean;
  readonly nodeId: string;
  /** Longest time for which a page may be pinned, in milliseconds. */
  readonly maxMs: number;
  readonly clock: Clock;
}

/** Keys brought into the pool at a time. */
const BROUGHT_MAX_KEYS = Math.min(COPY_REQUEST_MAX_KEYS, PROMOTE_ROUND_MAX_KEYS);

/** One call that pins pages. */
interface PinCall {
  readonly forMs: number;
  /** Keys of the call that are pinned so far. */
  readonly pinned: Set<string>;
  readonly signal: AbortSignal | undefined;
}

/**
 * Pins pages for the clients of a node. A page that is not in the pool is brought there first: from the own disk, or as
 * a copy from another node.
 */
export class Pinning {
  readonly #parts: PinningParts;
  #isClosed = false;

  constructor(parts: PinningParts) {
    this.#parts = parts;
  }

  /**
   * Begins to serve a client. `owner`: the pins of all clients of one owner count together; default: each counts by
   * itself.
   */
  client(owner?: string): ClientPins {
    return new ClientPins(this.#parts, () => this.#isClosed, owner);
  }

  /** Ends all pins; calls under way pin nothing more. */
  close(): void {
    this.#isClosed = true;
    this.#parts.pins.close();
  }
}

/** The pins of one client: of the node's own program, or of an attached process. */
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
   * Pins pages for `forMs` milliseconds; true for each one that is in the own pool and pinned. False: it is nowhere, it
   * could not be brought into the pool, or it is above the limits. After an abort nothing more is pinned. Throws
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
      const call: PinCall = { forMs, pinned: new Set(), signal };
      await unlessAborted(this.#pin([...new Set(keys)], call), signal);
      return keys.map((key) => call.pinned.has(key));
    });
  }

  /** Ends the client's pins of these pages; true for each one that it had pinned. */
  unpin(keys: readonly string[]): boolean[] {
    return this.#parts.pins.unpin(this.#holder, keys);
  }

  /** Ends all pins of the client, which can pin nothing from now on. Idempotent. */
  end(): void {
    this.#parts.pins.end(this.#holder);
  }

  async #pin(keys: readonly string[], call: PinCall): Promise<void> {
    const { pins, mayBring } = this.#parts;
    const absent = this.#pinHere(keys, call);
    for (let start = 0; start < absent.length; start += BROUGHT_MAX_KEYS) {
      if (call.signal?.aborted || !pins.budgetOf(this.#holder)?.allows(absent[start] as string) || !mayBring()) return;
      const wanted = absent.slice(start, start + BROUGHT_MAX_KEYS);
      await this.#pinFromDisk(wanted, call);
      if (call.signal?.aborted || this.#holder.hasEnded) return;
      const elsewhere = this.#pinHere(wanted, call);
      const budget = pins.budgetOf(this.#holder);
      if (elsewhere.length === 0 || budget === null) continue;
      await this.#parts.copies.copy(elsewhere, 'pin', (key, length) => budget.take(key, length));
      this.#pinHere(elsewhere, call);
    }
  }

  /** Pins those of the pages that are in the pool; returns the keys of the others. */
  #pinHere(keys: readonly string[], { forMs, pinned, signal }: PinCall): string[] {
    const left = keys.filter((key) => !pinned.has(key));
    if (left.length === 0 || signal?.aborted) return [];
    const outcomes = this.#parts.pins.pin(this.#holder, left, forMs);
    left.forEach((key, i) => {
      if (outcomes[i] === 'pinned') pinned.add(key);
    });
    return left.filter((_, i) => outcomes[i] === 'absent');
  }

  /** Brings those of the pages that are on the own disk into the pool, as many as fit, and pins them. */
  async #pinFromDisk(keys: readonly string[], call: PinCall): Promise<void> {
    const { promoter, onDisk, nodeId, pins } = this.#parts;
    if (promoter === null || onDisk === null) return;
    let wanted = keys;
    while (wanted.length > 0 && !call.signal?.aborted) {
      const budget = pins.budgetOf(this.#holder);
      const found = onDisk(wanted);
      const asked = wanted.filter((key, i) => {
        const length = found[i]?.length ?? 0;
        return length > 0 && budget?.take(key, length) === true;
      });
      if (asked.length === 0) return;
      const outcomes = await promoter.promote(nodeId, asked);
      const arrived = asked.filter((_, i) => typeof outcomes[i] !== 'string');
      this.#pinHere(arrived, call);
      promoter.release(nodeId, arrived);
      // Without progress the others wait for room, or for a slow disk.
      if (arrived.length === 0) return;
      wanted = asked.filter((_, i) => outcomes[i] === 'later');
    }
  }
}
