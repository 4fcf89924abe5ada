import { assertEqual } from '../../base/assert.js';
import { type CancelSignal, unlessAborted } from '../../base/concurrency/cancellation.js';
import { type Sharer, Shares } from '../../base/concurrency/shares.js';
import type { Clock } from '../../base/environment/clock.js';
import { ArgumentError, ClosedError } from '../../base/errors.js';
import { HOLD_REQUEST_MAX_KEYS, PIN_NAMES_MAX_COUNT } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { type CallLimits, inTime } from '../call/call-options.js';
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

/** Owner of all pins with names: together they take what one client may. */
const NAMED = 'pins with names';

/** Pages that are pinned until somebody ends their pin by its name. */
export interface NamedPin {
  readonly name: string;
  readonly pages: number;
  readonly bytes: number;
}

/** The pins with one name. */
interface NamedPins {
  readonly pins: ClientPins;
  /** Number of calls in progress that pin pages with the name. */
  calls: number;
}

/** The user of a place for a name, which begins with its namespace and a slash. */
function sharerOf(name: string): Sharer {
  const namespace = name.slice(0, name.indexOf('/'));
  return { one: namespace, group: namespace };
}

function isEmpty({ pins, calls }: NamedPins): boolean {
  return calls === 0 && pins.count === 0;
}

/**
 * Pins pages for the clients of a node. A page that is not in the pool is first brought there: from this node's disk,
 * as a copy from another node, or from the object store.
 *
 * A pin with a name belongs to the node: it lasts until it is ended by its name, however long its client lives. At most
 * PIN_NAMES_MAX_COUNT names are in use, which namespaces share by {@link Shares}, and all of their pages count as those
 * of one client.
 */
export class Pinning {
  readonly #parts: PinningParts;
  readonly #named = new Map<string, NamedPins>();
  readonly #names = new Shares(PIN_NAMES_MAX_COUNT);
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

  /** The pins with names. */
  named(): NamedPin[] {
    return [...this.#named]
      .filter(([, { pins }]) => pins.count > 0)
      .map(([name, { pins }]) => ({ name, pages: pins.count, bytes: pins.bytes }));
  }

  /**
   * Pins pages until {@link endNamed}; see `ClientPins.pin`. Pages are added to those that have the name already. Throws
   * `ArgumentError` for a new name when too many are in use.
   */
  async pinNamed(name: string, keys: readonly string[], options: CallLimits = {}): Promise<boolean[]> {
    const named = this.#named.get(name) ?? this.#newName(name);
    named.calls++;
    try {
      return await named.pins.pinWithoutEnd(keys, options);
    } finally {
      named.calls--;
      if (isEmpty(named) && this.#named.get(name) === named) this.endNamed(name);
    }
  }

  /** Makes room for a name: those whose pages have all been deleted or overwritten are ended. */
  #newName(name: string): NamedPins {
    const sharer = sharerOf(name);
    if (!this.#names.allows(sharer, 1)) {
      for (const [other, pins] of this.#named) if (isEmpty(pins)) this.endNamed(other);
    }
    if (!this.#names.allows(sharer, 1)) {
      const count = this.#names.of(sharer);
      throw new ArgumentError(
        `pin: ${count} names of pins of this namespace are in use, and none is left for it; end some, or use one of them`,
      );
    }
    this.#names.take(sharer, 1);
    const named = { pins: this.client(NAMED), calls: 0 };
    this.#named.set(name, named);
    return named;
  }

  /** Ends the pins with a name; returns the number of pages that had it. */
  endNamed(name: string): number {
    const named = this.#named.get(name);
    if (named === undefined) return 0;
    const { count } = named.pins;
    this.#named.delete(name);
    this.#names.giveBack(sharerOf(name), 1);
    named.pins.end();
    return count;
  }

  /** Ends all pins; calls in progress pin nothing more. */
  close(): void {
    this.#isClosed = true;
    this.#parts.pins.close();
  }

  /** Throws `InvariantError` unless each name in use has a place. */
  verify(): void {
    this.#names.verify();
    assertEqual('pinning: names in use', PIN_NAMES_MAX_COUNT - this.#names.left, this.#named.size);
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

  /** Total length of the pages that the client has pinned. */
  get bytes(): number {
    return this.#holder.bytes;
  }

  /**
   * Pins pages for `forMs` milliseconds; true for each page that is in the pool and pinned. False: no node has it, it
   * could not be brought into the pool, or it exceeds a limit. After an abort nothing more is pinned. Throws
   * `ArgumentError` for a time that is not allowed.
   */
  async pin(keys: readonly string[], forMs: number, options: CallLimits = {}): Promise<boolean[]> {
    const { maxMs } = this.#parts;
    if (this.#isClosed()) throw new ClosedError('the store');
    if (!(typeof forMs === 'number' && forMs > 0 && forMs <= maxMs)) {
      throw new ArgumentError(
        `pin: forMs must be above 0 and at most ${maxMs} (pin_max_s of the node), got ${shown(forMs)}`,
      );
    }
    return this.#pinFor(keys, forMs, options);
  }

  /** Like {@link pin}, without a time. */
  async pinWithoutEnd(keys: readonly string[], options: CallLimits = {}): Promise<boolean[]> {
    if (this.#isClosed()) throw new ClosedError('the store');
    return this.#pinFor(keys, Number.POSITIVE_INFINITY, options);
  }

  #pinFor(keys: readonly string[], forMs: number, options: CallLimits): Promise<boolean[]> {
    return inTime(this.#parts.clock, options, async ({ signal }) => {
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
  readonly signal: CancelSignal | undefined;

  constructor(
    pins: PagePins,
    holder: PinHolder,
    { forMs, signal }: { readonly forMs: number; readonly signal: CancelSignal | undefined },
  ) {
    [this.#pins, this.#holder, this.#forMs, this.signal] = [pins, holder, forMs, signal];
  }

  get isOver(): boolean {
    return this.signal?.aborted === true || this.#holder.hasEnded;
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
    if (left.length === 0 || this.signal?.aborted) return [];
    const outcomes = this.#pins.pin(this.#holder, left, this.#forMs);
    left.forEach((key, i) => {
      if (outcomes[i] === 'pinned') this.pinned.add(key);
    });
    return left.filter((_, i) => outcomes[i] === 'absent');
  }
}
