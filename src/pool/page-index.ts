import { assert, assertEqual } from '../base/assert.js';
import { isExpired } from '../base/expiry.js';
import { CALL_LONGEST_KEYS_COUNT } from '../base/limits.js';
import { type KeyBatch, type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PoolAllocatorOptions, PoolAllocatorStats, PublishRequest, RequestOptions } from '../core/index.js';
import { PageStates } from './page-states.js';
import { ANY_STATE, FILLED, LocalPages, READABLE } from './slots/local-pages.js';
import { NO_ORIGIN, type PageOrigin } from './slots/page-origin.js';
import {
  keysOfRun,
  type Placement,
  type PublishedPage,
  type RestoredPage,
  type Run,
  type Vacancy,
  type Wish,
} from './slots/placement.js';
import { IndexTenants } from './tenants/index-tenants.js';
import type { TierTenants } from './tenants/namespace-tenants.js';
import { TenantAllocator } from './tenants/tenant-allocator.js';

export type { PageState } from './slots/local-pages.js';
export { isOf, NO_ORIGIN, type PageOrigin, type PagesOf } from './slots/page-origin.js';
export type { Placement, PublishedPage, RestoredPage, Vacancy, Wish } from './slots/placement.js';

export interface PageIndexOptions extends Omit<PoolAllocatorOptions, 'tenants'> {
  readonly tenants?: TierTenants | undefined;
  readonly nowMs: () => number;
  /** The present of the hybrid clock, by which pages expire. Default: pages do not expire. */
  readonly present?: (() => number) | undefined;
  /** Least space that a page takes, in bytes; default: its length. */
  readonly spaceMinBytes?: number;
  /** Called with the slot of a findable page that is leaving or has just left, before the index changes further. */
  readonly onFreed?: (slot: number) => void;
  /** Called with a readable page, still in place, that goes for a new one. Must not throw or change the index. */
  readonly onEvicted?: ((key: string, page: Omit<PublishedPage, 'offset'>) => void) | undefined;
}

/** Keys of one slice of a walk through all pages. */
const SLICE_KEYS = 4096;
const NO_REQUEST: PublishRequest = {};

/**
 * Records which pages a pool has, where, and with which checksums. It never touches their bytes.
 *
 * The {@link PageState} of a page says what may be done with it. A page that is being filled or read is *held*: its
 * range stays untouched, and no new page is placed under its key.
 *
 * An *expired* page cannot be found any more, but stays here until {@link nextExpired} or `PageStates.makingWay` names
 * it and its owner removes it: soon, and before another page is placed under its key.
 *
 * Accounting: every page of the allocator has its state at its slot in the columns; `#holds` counts the pins of the
 * allocator for each key.
 */
export class PageIndex {
  readonly tenants: IndexTenants;
  readonly states: PageStates;
  readonly #allocator: TenantAllocator;
  readonly #nowMs: () => number;
  readonly #holds = new Map<string, number>();
  readonly #spaceMinBytes: number;
  readonly #onFreed: (slot: number) => void;
  readonly #onEvicted: PageIndexOptions['onEvicted'];
  readonly #present: () => number;
  readonly #local = new LocalPages();
  #finalStats: PoolAllocatorStats | undefined;

  constructor({
    nowMs,
    present = () => 0,
    spaceMinBytes = 0,
    onFreed = () => {},
    onEvicted,
    tenants,
    ...options
  }: PageIndexOptions) {
    this.#allocator = new TenantAllocator(options, tenants);
    this.states = new PageStates(this.#allocator, this.#local, () => this.#expiryTime());
    this.tenants = new IndexTenants(this.#allocator, nowMs, (slot) => this.#freeing([slot]));
    this.#nowMs = nowMs;
    this.#present = present;
    this.#spaceMinBytes = spaceMinBytes;
    this.#onFreed = onFreed;
    this.#onEvicted = onEvicted;
  }

  /** Number of pages whose bytes are here, including expired and hidden ones. */
  get size(): number {
    return this.#allocator.size - this.#local.countOf('filling');
  }

  /** Bytes of all pages, including unfilled ones. */
  get usedBytes(): number {
    return this.#allocator.usedBytes;
  }

  get isFreed(): boolean {
    return this.#finalStats !== undefined;
  }

  /**
   * Restores pages at their places from before a restart, in this state. Offsets must strictly ascend, and the index
   * may only contain restored pages; {@link renewBatch} then restores their order of use. False: not restored, because
   * the range is not free or out of bounds, or the key exists. Throws `ArgumentError` for wrong offsets and for an
   * index that is not new; some of the pages may be in it then.
   */
  restore(pages: readonly RestoredPage[], state: 'live' | 'earlier' = 'live'): boolean[] {
    const taken: boolean[] = [];
    for (let start = 0; start < pages.length; start += CALL_LONGEST_KEYS_COUNT) {
      const call = pages.slice(start, start + CALL_LONGEST_KEYS_COUNT);
      const keys = call.map(({ key }) => key);
      const lengths = call.map(({ length }) => Math.max(length, this.#spaceMinBytes));
      const offsets = call.map(({ offset }) => offset);
      const slots = this.#allocator.restoreBatch(keys, lengths, offsets);
      for (const [i, page] of call.entries()) {
        const slot = slots[i] as number;
        taken.push(slot >= 0);
        if (slot >= 0) this.#local.set(slot, { ...NO_ORIGIN, ...page }, state);
      }
    }
    return taken;
  }

  /** Looks up live pages. Counts as a use, also of hidden ones. */
  lookupBatch(keys: Keys, request?: RequestOptions): (PublishedPage | null)[] {
    return this.#pages(this.#allocator.lookupBatch(keys, request), READABLE);
  }

  /** Like {@link lookupBatch}, but does not count as a use. */
  peekLive(keys: Keys): (PublishedPage | null)[] {
    return this.#pages(this.#allocator.peekBatch(keys), READABLE);
  }

  /** Like {@link peekLive}, but includes hidden pages, which nobody may find yet. */
  peekBatch(keys: Keys): (PublishedPage | null)[] {
    return this.#pages(this.#allocator.peekBatch(keys), FILLED);
  }

  /** Like {@link peekBatch}, but includes expired pages; for accounting, not for reading. */
  peekStored(keys: Keys): (PublishedPage | null)[] {
    return this.#pages(this.#allocator.peekBatch(keys), FILLED, 0);
  }

  /** Key of the page that has been expired longest, which the caller must remove; undefined if none is expired. */
  nextExpired(): string | undefined {
    const { expiring } = this.#local;
    const now = this.#expiryTime();
    return expiring.size > 0 && expiring.first <= now ? this.keysOf(Uint32Array.of(expiring.firstSlot))[0] : undefined;
  }

  /** The earliest expiry of any page; 0: none expires. */
  get firstExpiry(): number {
    return this.#local.expiring.first;
  }

  /** One byte for each key; 1: {@link peekBatch} finds the page. Does not count as a use. */
  hasBatch(keys: Keys): Uint8Array {
    if (this.#expiryTime() === 0 && this.#local.countOf('filling') === 0) return this.#allocator.hasBatch(keys);
    return this.states.areHere(keys);
  }

  /** Counts a use of each existing page, in the order of the keys. */
  touchBatch(keys: Keys, request?: RequestOptions): void {
    this.#allocator.touchBatch(keys, request);
  }

  /** Notes when existing pages will be asked for; see `PoolAllocator.expectBatch`. */
  expectBatch(keys: Keys, inMs: number): void {
    this.#allocator.expectBatch(keys, inMs, this.#nowMs());
  }

  /** Changes the eviction priority of existing pages. */
  readonly setPriority: TenantAllocator['setPriorityBatch'] = (...told) => this.#allocator.setPriorityBatch(...told);

  /** Makes each page in turn the newest one, without counting a use. */
  renewBatch(keys: Keys): void {
    this.#allocator.renewBatch(keys);
  }

  /** Keys of the pages whose bytes are here, including expired and hidden ones, next victim first. */
  keys(): string[] {
    if (this.#local.countOf('filling') === 0) return this.#allocator.keys();
    return this.keysOf(this.order()).filter((key) => key !== undefined);
  }

  /** Slots of the pages in {@link keys}, next victim first; for walks in slices. */
  order(): Uint32Array {
    const order = this.#allocator.order();
    return this.#local.countOf('filling') === 0 ? order : order.filter((slot) => this.#local.isIn(slot, FILLED));
  }

  /** The keys of {@link keys}, slice by slice. Those of pages that come or go meanwhile may be missing, or twice. */
  *keysInSlices(sliceKeys = SLICE_KEYS): Generator<string[], void> {
    const order = this.order();
    for (let start = 0; start < order.length; start += sliceKeys) {
      yield this.keysOf(order.subarray(start, start + sliceKeys)).filter((key) => key !== undefined);
    }
  }

  /** Keys of the pages in these slots. If a page has since left, the result is undefined or the key of another page. */
  keysOf(slots: Uint32Array): (string | undefined)[] {
    return this.#allocator.keysOf(slots);
  }

  /** Checksum of the page that has, or last had, this slot. */
  checksumAt(slot: number): number | undefined {
    return this.#local.checksumOf(slot);
  }

  isHeld(key: string): boolean {
    return this.#holds.has(key);
  }

  /**
   * Carries out the wishes in order; their keys must be distinct. The caller must fill or hold the vacancies before
   * control returns to the event loop; until then no reader finds the pages. `batch`: the wishes' keys, encoded.
   */
  place(wishes: readonly Wish[], batch?: KeyBatch): Placement {
    const intents = wishes.map(({ intent }) => intent);
    const indexOf = new Map(wishes.map(({ key }, i) => [key, i]));
    const vacancies = new Map<number, Vacancy>();
    const evictedAtOnce = new Set<number>();
    const gone = new Set<string>();
    let last: PublishRequest | undefined;
    // Wishes are placed run by run, so that existing and new pages are used in the order of the keys.
    for (let start = 0, end = 0; start < wishes.length; start = end) {
      const intent = intents[start];
      const request = wishes[start]?.request ?? NO_REQUEST;
      end = start + 1;
      while (end < wishes.length && intents[end] === intent && this.#allocator.isOneCall(wishes[start], wishes[end]))
        end++;
      if (intent === 'nothing') continue;
      const part = request === last ? { ...request, continues: true } : request;
      last = request;
      const run = { start, end, part, keys: keysOfRun(wishes, batch, start, end) };
      if (intent === 'use') {
        this.touchBatch(run.keys, part);
        this.#allocator.setPriorityBatch(run.keys, part.priority ?? 'normal');
        continue;
      }
      const { placed, evicted, lost } = this.#placeRun(wishes, run);
      for (const key of lost) gone.add(key);
      for (const key of evicted) {
        gone.add(key);
        const index = indexOf.get(key) ?? -1;
        if (index >= end && intents[index] === 'use') intents[index] = 'new';
        if (index < 0 || index >= end || intents[index] === 'nothing') continue;
        vacancies.delete(index);
        evictedAtOnce.add(index);
      }
      for (const vacancy of placed) {
        vacancies.set(vacancy.index, vacancy);
        // The evicted page was the old one under this key, not the new one.
        evictedAtOnce.delete(vacancy.index);
      }
    }
    const used = wishes.map(({ here }, i) => (intents[i] === 'use' && !evictedAtOnce.has(i) ? here : null));
    const ofBatch = vacancies.size + used.reduce((count, page) => count + Number(page !== null), 0);
    return {
      used,
      vacancies: [...vacancies.values()],
      evictedAtOnce: evictedAtOnce.size > 0 && this.#evictable() > ofBatch ? [...evictedAtOnce] : [],
      gone,
    };
  }

  /** Marks a new page as filled. */
  fill(
    { slot, offset }: Vacancy,
    length: number,
    checksum: number,
    origin = NO_ORIGIN,
    state: 'live' | 'unconfirmed' = 'live',
  ): PublishedPage {
    const { version, kind, expires, setBy } = origin;
    const content = { length, checksum, version, kind, expires, setBy };
    assert(slot >= 0 && offset >= 0, () => `page index: a page is filled at ${offset}, in slot ${slot}`);
    this.#local.set(slot, content, state);
    return { offset, slot, alreadyPresent: false, state, ...content };
  }

  /** Updates the origin of an existing page that was set again. */
  setOrigin({ slot }: PublishedPage, origin: PageOrigin): void {
    this.#local.setAgain(slot, origin);
  }

  /**
   * Holds new pages, which count as being filled until {@link fillHeld} or {@link abandonHeld}. `origins`: one per
   * vacancy.
   */
  holdUnfilled(vacancies: readonly Vacancy[], origins: readonly PageOrigin[] = []): void {
    this.hold(vacancies.map(({ key }) => key));
    vacancies.forEach(({ slot }, i) => {
      const origin = origins[i] ?? NO_ORIGIN;
      this.#local.set(slot, { ...origin, expires: 0, length: 0, checksum: 0 }, 'filling');
    });
  }

  /** Like {@link fill}, and ends the hold. Null: the page was removed meanwhile. */
  fillHeld(
    vacancy: Vacancy,
    length: number,
    checksum: number,
    origin = NO_ORIGIN,
    state: 'live' | 'unconfirmed' = 'live',
  ): PublishedPage | null {
    const isHere = this.#local.isIn(vacancy.slot, ANY_STATE);
    const page = isHere ? this.fill(vacancy, length, checksum, origin, state) : null;
    this.release([vacancy.key]);
    return page;
  }

  /** Drops a new page that gets no bytes, and ends its hold. */
  abandonHeld({ key, slot }: Vacancy): void {
    this.#local.freed(slot);
    this.#allocator.remove(key, this.#nowMs());
    this.release([key]);
  }

  /** Holds pages, so that their ranges stay. Each hold needs one call of {@link release}. */
  hold(keys: Keys): void {
    this.#allocator.pinBatch(keys);
    for (const key of stringsOf(keys)) this.#holds.set(key, (this.#holds.get(key) ?? 0) + 1);
  }

  release(keys: Keys): void {
    this.#allocator.unpinBatch(keys);
    for (const key of stringsOf(keys)) {
      const holds = (this.#holds.get(key) ?? 0) - 1;
      assert(holds >= 0, () => `page index: ${JSON.stringify(key)} is released and not held`);
      if (holds > 0) this.#holds.set(key, holds);
      else this.#holds.delete(key);
    }
  }

  /**
   * Removes a page; false if it was not here. A held page cannot be found any more, but keeps its range until released.
   */
  remove(key: string): boolean {
    const [slot = -1] = this.#allocator.peekBatch([key]).slots;
    if (slot < 0) return false;
    const wasFilled = this.#local.isIn(slot, FILLED);
    this.#freeing([slot]);
    return this.#allocator.remove(key, this.#nowMs()) && wasFilled;
  }

  /** Whether there may be copies of pages that the node with this origin has set; 0: of any node's pages. */
  hasCopiesOf(origin: number): boolean {
    return this.#local.hasCopiesOf(origin);
  }

  /** Origins of pages, including expired ones and those being filled; null: the page is not here. */
  originsOf(keys: readonly string[]): (PageOrigin | null)[] {
    return this.#pages(this.#allocator.peekBatch(keys), ANY_STATE, 0);
  }

  /** Evicts the next victim, chosen as for a page of `forKey`; returns its key, or null if none may be evicted. */
  evictNext(forKey = ''): string | null {
    const page = this.#allocator.evictNextFor(forKey, this.#nowMs());
    if (page === null) return null;
    this.#freeing([page.slot]);
    return page.key;
  }

  /** Statistics; after {@link free}, the last ones before it. */
  stats(): PoolAllocatorStats {
    return this.#finalStats ?? this.#allocator.stats();
  }

  free(): void {
    this.#finalStats ??= this.#allocator.stats();
    this.#allocator.free();
  }

  /** Places a run of wishes. `lost`: keys whose old page is gone although the new one found no room. */
  #placeRun(wishes: readonly Wish[], { start, end, part, keys }: Run) {
    const run = wishes.slice(start, end);
    const lengths = Float64Array.from(run, ({ length }) => Math.max(length, this.#spaceMinBytes));
    // A page that has expired just now is not among those found by the caller.
    const isExpiring = this.#local.expiring.size > 0;
    this.#freeing(isExpiring ? this.#allocator.peekBatch(keys).slots : run.map(({ here }) => here?.slot ?? -1));
    const nowMs = this.#nowMs();
    const { offsets, slots, evicted, evictedSlots } = this.#allocator.publishBatch(keys, lengths, nowMs, part);
    this.#freeEvicted(evicted, evictedSlots);
    const placed: Vacancy[] = [];
    const lost: string[] = [];
    run.forEach(({ key, here }, j) => {
      const [offset, slot] = [offsets[j] as number, slots[j] as number];
      if (offset >= 0) placed.push({ index: start + j, key, offset, slot });
      else if (here !== null) lost.push(key);
    });
    return { placed, evicted, lost };
  }

  #pages(
    found: { offsets: Float64Array; slots: Int32Array },
    states: number,
    now = this.#expiryTime(),
  ): (PublishedPage | null)[] {
    const local = this.#local;
    const pages: (PublishedPage | null)[] = [];
    for (let i = 0; i < found.slots.length; i++) {
      const slot = found.slots[i] as number;
      const isFound = slot >= 0 && local.isIn(slot, states) && !isExpired(local.expiring.expiresOf(slot), now);
      pages.push(isFound ? this.#pageAt(slot, found.offsets[i] as number) : null);
    }
    return pages;
  }

  #pageAt(slot: number, offset: number): PublishedPage {
    const local = this.#local;
    return {
      offset,
      slot,
      alreadyPresent: true,
      state: local.stateOf(slot),
      length: local.lengthOf(slot),
      checksum: local.checksumOf(slot) as number,
      version: local.versionOf(slot),
      kind: local.kindOf(slot),
      expires: local.expiring.expiresOf(slot),
      setBy: local.setByAt(slot),
    };
  }

  /** The present, for comparison with expiries; 0 while no page has an expiry. */
  #expiryTime(): number {
    return this.#local.expiring.size === 0 ? 0 : this.#present();
  }

  /** Frees slots one by one: of two keys with one slot, only the first has had its bytes there. */
  #freeEvicted(keys: readonly string[], slots: Uint32Array): void {
    const now = this.#expiryTime();
    keys.forEach((key, i) => {
      const slot = slots[i] as number;
      const isHere = this.#local.isIn(slot, READABLE) && !isExpired(this.#local.expiring.expiresOf(slot), now);
      if (isHere) this.#onEvicted?.(key, this.#pageAt(slot, 0));
      this.#freeing([slot]);
    });
  }

  #freeing(slots: ArrayLike<number>): void {
    for (let i = 0; i < slots.length; i++) {
      const slot = slots[i] as number;
      if (slot < 0) continue;
      this.#local.freed(slot);
      this.#onFreed(slot);
    }
  }

  #evictable(): number {
    const { entries, pinned } = this.#allocator.stats();
    return entries - pinned;
  }

  /** How often the key is held: calls of {@link hold} minus calls of {@link release}. */
  holdsOf(key: string): number {
    return this.#holds.get(key) ?? 0;
  }

  /** Keys of the pages that are being filled. */
  unfilledKeys(): string[] {
    return this.keysOf(this.#local.slotsIn('filling')).filter((key) => key !== undefined);
  }

  /** Every page of {@link keys}, with its key; does not count as a use. */
  *pages(): Generator<readonly [key: string, page: PublishedPage], void> {
    const order = this.order();
    for (let start = 0; start < order.length; start += CALL_LONGEST_KEYS_COUNT) {
      const keys = this.keysOf(order.subarray(start, start + CALL_LONGEST_KEYS_COUNT)).filter(
        (key) => key !== undefined,
      );
      for (const [i, page] of this.peekStored(keys).entries()) if (page !== null) yield [keys[i] as string, page];
    }
  }

  /** Throws `InvariantError`, or the allocator's `ERR_CORE`, unless the accounting holds; passes after {@link free}. */
  verify(): void {
    if (this.isFreed) return;
    this.#allocator.verify();
    this.tenants.verify();
    const slots = new Set<number>();
    for (const [key, { slot }] of this.pages()) {
      assert(!slots.has(slot), () => `page index: two pages in slot ${slot}, one is ${JSON.stringify(key)}`);
      slots.add(slot);
    }
    this.#local.verify(slots);
    assertEqual('page index: pages whose bytes are here', this.size, slots.size);
    for (const key of this.unfilledKeys()) {
      assert(this.#holds.has(key), () => `page index: ${JSON.stringify(key)} is unfilled and not held`);
    }
    for (const [key, count] of this.#holds) {
      assert(count > 0, () => `page index: ${count} holds of ${JSON.stringify(key)}`);
    }
    const held = this.#allocator.hasBatch([...this.#holds.keys()]).reduce((sum, flag) => sum + flag, 0);
    assertEqual('page index: pages that are here and held', this.#allocator.stats().pinned, held);
  }
}
