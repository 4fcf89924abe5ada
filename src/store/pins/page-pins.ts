import { assert, assertEqual } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { PageLease, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import type { TierTenants } from '../../pool/tenants/namespace-tenants.js';
import { type PinBudget, PinLimits } from './pin-limits.js';
import { leavesGap, spaceOf } from './pinned-gaps.js';

/** Pins end at multiples of this time, so at most this much late. */
const TICK_MS = 250;
/** Pins that are ended at a time before other work gets its turn. */
const ENDED_AT_ONCE_MAX_COUNT = 4096;

export interface PagePinsParts {
  readonly pool: Pick<PublishedPool, 'capacity' | 'longestBytes' | 'longestBytesOf' | 'peekLive' | 'lease' | 'unlease'>;
  /** Bytes of a segment of the pool's memory; no page crosses a segment's end. */
  readonly segmentBytes: number;
  /**
   * Part of the pool that pinned pages may take; also the part of a tenant's maximum for pinned pages of that tenant.
   */
  readonly maxShare: number;
  /** Tenants of the pool. Default: all pages belong to one. */
  readonly tenants?: TierTenants | undefined;
  readonly clock: Pick<Clock, 'nowMs' | 'after'>;
  readonly metrics: MetricsSink;
}

/** Result of pinning a page. `absent`: the pool does not have it. `refused`: a limit forbids it. */
export type PinOutcome = 'pinned' | 'absent' | 'refused';

/** One client's pin of a page. */
interface Pin {
  readonly page: PinnedPage;
  readonly holder: Holder;
  untilMs: number;
  /** Number of the tick at which the pin is checked, no later than the first tick at or after `untilMs`. */
  tick: number;
}

/** A pinned page; its lease keeps it from eviction. */
interface PinnedPage {
  readonly key: string;
  readonly tenant: number;
  readonly lease: PageLease;
  readonly pins: Map<Holder, Pin>;
}

/** A client of the node that pins pages: the node's own program, or an attached process. */
class Holder {
  readonly pins = new Map<string, Pin>();
  /** Total length of the pages that this client has pinned. */
  bytes = 0;
  hasEnded = false;
  readonly owner: Owner;

  constructor(owner: Owner) {
    this.owner = owner;
  }
}

/** One client, or a process with several clients, whose pins count together. */
interface Owner {
  readonly name: string | undefined;
  holders: number;
  /** Total over the owner's clients. */
  bytes: number;
}

export type { Holder as PinHolder };

/**
 * Pages of the pool that clients have pinned for a time: they are not evicted. A pin ends with its time, by {@link
 * unpin}, with its client, and when its page is removed or overwritten, which no pin delays.
 *
 * Accounting: `#bytes` is the sum over `#pages`, each page once, and `#tenantBytes` the space of each tenant's pages; a
 * client's bytes are the sum over its pins, an owner's the sum over its clients. All are within {@link PinLimits}.
 * Beside the pinned pages there is always a gap that fits the longest page that the pool has had so far. Each pin is in
 * `#due`, under the tick at which it is checked next.
 */
export class PagePins {
  readonly #parts: PagePinsParts;
  readonly #limits: PinLimits;
  readonly #pages = new Map<string, PinnedPage>();
  readonly #holders = new Set<Holder>();
  /** Named owners that have clients. */
  readonly #owners = new Map<string, Owner>();
  readonly #due = new Map<number, Set<Pin>>();
  #bytes = 0;
  readonly #tenantBytes: number[];
  #cancelTimer: () => void = () => {};
  /** When the timer fires; infinite without one. */
  #timerMs = Number.POSITIVE_INFINITY;
  #isClosed = false;

  constructor(parts: PagePinsParts) {
    const { pool, maxShare, tenants, metrics } = parts;
    const { capacity } = pool;
    this.#parts = parts;
    const longestBytesOf = (tenant: number) => pool.longestBytesOf(tenant);
    this.#limits = new PinLimits({ capacity, maxShare, tenants, longestBytesOf });
    this.#tenantBytes = new Array<number>(this.#limits.tenantsCount).fill(0);
    metrics.setGaugeProvider('meshcache_pool_pinned_entries', () => this.#pages.size);
    metrics.setGaugeProvider('meshcache_pool_pinned_bytes', () => this.#bytes);
  }

  /** Number of pinned pages. */
  get count(): number {
    return this.#pages.size;
  }

  /** Total length of the pinned pages. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether any client has pinned the page. */
  has(key: string): boolean {
    return this.#pages.has(key);
  }

  /**
   * Starts to count the pins of one client. `name`: owner under which its pins count together with those of other
   * clients; default: it counts by itself.
   */
  holder(name?: string): Holder {
    const owner = (name === undefined ? undefined : this.#owners.get(name)) ?? { name, holders: 0, bytes: 0 };
    owner.holders++;
    if (name !== undefined) this.#owners.set(name, owner);
    const holder = new Holder(owner);
    this.#holders.add(holder);
    return holder;
  }

  /** What the client may still pin; null if it has ended. */
  budgetOf(holder: Holder): PinBudget | null {
    if (this.#isClosed || holder.hasEnded) return null;
    return this.#limits.budget({ all: this.#bytes, byTenant: this.#tenantBytes, client: holder.owner.bytes });
  }

  /**
   * Pins pages that are in the pool, in order, as far as the limits allow; one outcome per key. If the client has
   * already pinned a page, its time may be extended, but is never shortened.
   */
  pin(holder: Holder, keys: readonly string[], forMs: number): PinOutcome[] {
    const untilMs = this.#parts.clock.nowMs() + forMs;
    const outcomes = new Map<string, PinOutcome>();
    const isOpen = !this.#isClosed && !holder.hasEnded;
    const wanted = [...new Set(keys)];
    const { pool } = this.#parts;
    // Pages that programs do not find until an owner has confirmed them make way for others, or go if none does.
    const found = isOpen ? pool.peekLive(wanted) : [];
    const here: [key: string, page: PublishedPage][] = [];
    for (const [i, key] of wanted.entries()) {
      const page = found[i] ?? null;
      if (page !== null) here.push([key, page]);
      outcomes.set(key, isOpen ? 'absent' : 'refused');
    }
    const admitted = this.#admitted(holder, here);
    for (const [key] of here) outcomes.set(key, admitted.has(key) ? 'pinned' : 'refused');
    this.#leaseNew([...admitted]);
    for (const key of admitted) this.#pin(holder, this.#pages.get(key) as PinnedPage, untilMs);
    this.#count(outcomes);
    return keys.map((key) => outcomes.get(key) as PinOutcome);
  }

  /** Ends the client's pins of these pages; true for each one that it had pinned. */
  unpin(holder: Holder, keys: readonly string[]): boolean[] {
    return keys.map((key) => {
      const pin = holder.pins.get(key);
      if (pin !== undefined) this.#drop(pin);
      return pin !== undefined;
    });
  }

  /** Ends all pins of a client, which can then pin nothing more. Idempotent. */
  end(holder: Holder): void {
    if (holder.hasEnded) return;
    holder.hasEnded = true;
    const { owner } = holder;
    if (--owner.holders === 0 && owner.name !== undefined) this.#owners.delete(owner.name);
    for (const pin of [...holder.pins.values()]) this.#drop(pin);
    this.#holders.delete(holder);
  }

  /** Ends all pins; nothing more can be pinned. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const holder of [...this.#holders]) this.end(holder);
    this.#cancelTimer();
    this.#timerMs = Number.POSITIVE_INFINITY;
  }

  /** The keys of pages that the limits allow the client to pin: in order, as many as fit. */
  #admitted(holder: Holder, here: readonly (readonly [key: string, page: PublishedPage])[]): Set<string> {
    const admitted = new Set<string>();
    /** Pages that nobody has pinned yet, as far as the bytes allow. */
    const added: PublishedPage[] = [];
    /** For each page of `added`, the number of keys that were admitted before it. */
    const before: number[] = [];
    const budget = this.budgetOf(holder);
    for (const [key, page] of here) {
      const isNew = !this.#pages.has(key);
      if (!holder.pins.has(key) && !budget?.take(key, page.length, isNew)) continue;
      if (isNew) {
        before.push(admitted.size);
        added.push(page);
      }
      admitted.add(key);
    }
    const fitting = this.#countLeavingGap(added);
    if (fitting === added.length) return admitted;
    return new Set([...admitted].slice(0, before[fitting]));
  }

  /** How many of these pages, in order, can still be pinned if the longest page of the pool must find room. */
  #countLeavingGap(added: readonly PublishedPage[]): number {
    const { pool, segmentBytes } = this.#parts;
    const shape = { capacity: pool.capacity, segmentBytes };
    const pinned = [...this.#pages.values()].map(({ lease }) => lease.page);
    const leaves = (count: number): boolean =>
      leavesGap([...pinned, ...added.slice(0, count)], pool.longestBytes, shape);
    if (added.length === 0 || leaves(added.length)) return added.length;
    let [fits, tooMany] = [0, added.length];
    while (tooMany - fits > 1) {
      const middle = (fits + tooMany) >>> 1;
      if (leaves(middle)) fits = middle;
      else tooMany = middle;
    }
    return fits;
  }

  #leaseNew(keys: readonly string[]): void {
    const unpinned = keys.filter((key) => !this.#pages.has(key));
    if (unpinned.length === 0) return;
    for (const lease of this.#parts.pool.lease(unpinned, (ended) => this.#endedEarly(ended))) {
      if (lease === null) continue;
      const page = { key: lease.key, tenant: this.#limits.tenantOf(lease.key), lease, pins: new Map<Holder, Pin>() };
      this.#pages.set(lease.key, page);
      this.#sum(page, 1);
    }
  }

  /** Adds a page to the sums, or subtracts it. */
  #sum({ tenant, lease }: PinnedPage, sign: 1 | -1): void {
    const { length } = lease.page;
    this.#bytes += sign * length;
    this.#tenantBytes[tenant] = (this.#tenantBytes[tenant] as number) + sign * spaceOf(length);
  }

  #pin(holder: Holder, page: PinnedPage, untilMs: number): void {
    const known = holder.pins.get(page.key);
    if (known !== undefined) {
      known.untilMs = Math.max(known.untilMs, untilMs);
      return;
    }
    const pin: Pin = { page, holder, untilMs, tick: 0 };
    page.pins.set(holder, pin);
    holder.pins.set(page.key, pin);
    holder.bytes += page.lease.page.length;
    holder.owner.bytes += page.lease.page.length;
    this.#schedule(pin);
  }

  /** Called when the page has been removed or overwritten. */
  #endedEarly({ key }: PageLease): void {
    for (const pin of [...(this.#pages.get(key)?.pins.values() ?? [])]) this.#drop(pin);
  }

  #drop(pin: Pin): void {
    const { page, holder } = pin;
    const due = this.#due.get(pin.tick);
    due?.delete(pin);
    if (due?.size === 0) this.#due.delete(pin.tick);
    page.pins.delete(holder);
    holder.pins.delete(page.key);
    holder.bytes -= page.lease.page.length;
    holder.owner.bytes -= page.lease.page.length;
    if (page.pins.size > 0) return;
    this.#pages.delete(page.key);
    this.#sum(page, -1);
    this.#parts.pool.unlease([page.lease]);
  }

  #schedule(pin: Pin): void {
    pin.tick = Math.ceil(pin.untilMs / TICK_MS);
    const due = this.#due.get(pin.tick);
    if (due === undefined) this.#due.set(pin.tick, new Set([pin]));
    else due.add(pin);
    this.#setTimer(pin.tick * TICK_MS);
  }

  /** Has the pins checked by that time. */
  #setTimer(atMs: number): void {
    if (this.#isClosed || atMs >= this.#timerMs) return;
    this.#cancelTimer();
    this.#timerMs = atMs;
    const { clock } = this.#parts;
    this.#cancelTimer = clock.after(Math.max(0, atMs - clock.nowMs()), () => {
      this.#timerMs = Number.POSITIVE_INFINITY;
      this.#endDue();
    });
  }

  /** Ends pins whose time is over, a limited number at a time. */
  #endDue(): void {
    const nowMs = this.#parts.clock.nowMs();
    let leftCount = ENDED_AT_ONCE_MAX_COUNT;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const [tick, pins] of this.#due) {
      const atMs = tick * TICK_MS;
      if (atMs > nowMs || leftCount === 0) {
        nextMs = Math.min(nextMs, atMs);
        continue;
      }
      for (const pin of pins) {
        if (leftCount-- === 0) break;
        if (pin.untilMs <= nowMs) this.#drop(pin);
        else this.#postpone(pin);
      }
      leftCount = Math.max(0, leftCount);
      if (pins.size > 0) nextMs = nowMs;
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#setTimer(nextMs);
  }

  /** Moves a pin whose time was extended to its later tick. */
  #postpone(pin: Pin): void {
    const due = this.#due.get(pin.tick);
    due?.delete(pin);
    if (due?.size === 0) this.#due.delete(pin.tick);
    this.#schedule(pin);
  }

  #count(outcomes: ReadonlyMap<string, PinOutcome>): void {
    const counts = { pinned: 0, absent: 0, refused: 0 };
    for (const outcome of outcomes.values()) counts[outcome]++;
    const { metrics } = this.#parts;
    for (const [result, count] of Object.entries(counts)) {
      if (count > 0) metrics.count('meshcache_pins_total', count, { result });
    }
  }

  /**
   * Throws `InvariantError` unless the accounting of this class holds, each pinned page is leased, and each pin will
   * end.
   */
  verify(): void {
    const { pool, segmentBytes } = this.#parts;
    let [bytes, pinsCount] = [0, 0];
    const byTenant = this.#tenantBytes.map(() => 0);
    for (const [key, { lease, tenant, pins }] of this.#pages) {
      const name = (): string => `page pins: ${JSON.stringify(key)}`;
      assert(lease.isLive && lease.key === key, () => `${name()} is pinned without a lease`);
      assert(pins.size > 0, () => `${name()} is pinned by nobody`);
      bytes += lease.page.length;
      byTenant[tenant] = (byTenant[tenant] as number) + spaceOf(lease.page.length);
      for (const [holder, pin] of pins) {
        pinsCount++;
        assert(this.#holders.has(holder), () => `${name()} is pinned by a client that has ended`);
        assert(holder.pins.get(key) === pin, () => `${name()} is pinned, and its client does not know`);
        assert(this.#due.get(pin.tick)?.has(pin) === true, () => `${name()} is pinned for ever`);
      }
    }
    assertEqual('page pins: bytes', this.#bytes, bytes);
    for (const [i, space] of byTenant.entries()) {
      assertEqual(`page pins: space of tenant ${i}`, this.#tenantBytes[i] as number, space);
    }
    this.#limits.verify({ all: bytes, byTenant });
    const ranges = [...this.#pages.values()].map(({ lease }) => lease.page);
    const hasGap = ranges.length === 0 || leavesGap(ranges, 1, { capacity: pool.capacity, segmentBytes });
    assert(hasGap, () => `page pins: ${ranges.length} pinned pages leave no room`);
    for (const { pins, bytes: holderBytes } of this.#holders) {
      let sum = 0;
      for (const { page } of pins.values()) sum += page.lease.page.length;
      pinsCount -= pins.size;
      assertEqual('page pins: bytes of a client', holderBytes, sum);
      this.#limits.verifyClient(sum, pins.size);
    }
    assertEqual('page pins: pins that a client knows and no page', pinsCount, 0);
    for (const tick of this.#due.keys()) {
      assert(tick * TICK_MS >= this.#timerMs, () => `page pins: no timer for those that end at tick ${tick}`);
    }
  }
}
