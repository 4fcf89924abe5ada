import { assert, assertEqual } from '../base/assert.js';
import { isExpired } from '../base/expiry.js';
import { CALL_LONGEST_KEYS_COUNT } from '../base/limits.js';
import { type KeyBatch, type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PoolAllocatorOptions, PoolAllocatorStats, PublishRequest, RequestOptions } from '../core/index.js';
import { NO_ORIGIN, type PageOrigin } from './slots/page-origin.js';
import type { Placement, PublishedPage, RestoredPage, Vacancy, Wish } from './slots/placement.js';
import { SlotColumns } from './slots/slot-columns.js';
import { IndexTenants } from './tenants/index-tenants.js';
import type { TierTenants } from './tenants/namespace-tenants.js';
import { TenantAllocator } from './tenants/tenant-allocator.js';

export { isOf, NO_ORIGIN, type PageOrigin, type PagesOf } from './slots/page-origin.js';
export type { Placement, PublishedPage, RestoredPage, Vacancy, Wish } from './slots/placement.js';

export interface PageIndexOptions extends Omit<PoolAllocatorOptions, 'tenants'> {
  readonly tenants?: TierTenants | undefined;
  readonly nowMs: () => number;
  /** The present of the hybrid clock, by which pages expire. Default: none expires. */
  readonly present?: (() => number) | undefined;
  /** Least space that a page takes, in bytes; default: its length. */
  readonly spaceMinBytes?: number;
  /** Called with the slot of a findable page that is about to go or has just gone, before the index changes further. */
  readonly onFreed?: (slot: number) => void;
}

const NO_REQUEST: PublishRequest = {};

/**
 * Which pages a pool has, where, and with which checksums. It never touches their bytes.
 *
 * A page whose bytes are still to be written is *unfilled*: it has its range, and no reader finds it. A page that is
 * unfilled or being read is *held*: its range stays untouched, and no new page is placed under its key.
 *
 * An *expired* page is not found any more, but is here until {@link nextExpired} or {@link expiredAmong} names it and
 * its owner removes it: soon, and before another page is placed under its key.
 *
 * Accounting: every key of the allocator has its checksum and origin at its slot in the columns, or is in `#unfilled`;
 * `#holds` counts the pins of the allocator, key by key.
 */
export class PageIndex {
  readonly tenants: IndexTenants;
  readonly #allocator: TenantAllocator;
  readonly #nowMs: () => number;
  readonly #unfilled = new Map<string, PageOrigin>();
  readonly #holds = new Map<string, number>();
  readonly #spaceMinBytes: number;
  readonly #onFreed: (slot: number) => void;
  readonly #present: () => number;
  readonly #slots = new SlotColumns();
  /** Slot -> length in bytes, for pages that take more space than their length. */
  readonly #shortLengths = new Map<number, number>();
  #finalStats: PoolAllocatorStats | undefined;

  constructor({
    nowMs,
    present = () => 0,
    spaceMinBytes = 0,
    onFreed = () => {},
    tenants,
    ...options
  }: PageIndexOptions) {
    this.#allocator = new TenantAllocator(options, tenants);
    this.tenants = new IndexTenants(this.#allocator, nowMs, (slot) => this.#freeing([slot]));
    this.#nowMs = nowMs;
    this.#present = present;
    this.#spaceMinBytes = spaceMinBytes;
    this.#onFreed = onFreed;
  }

  /** Number of pages that can be found, and of expired ones. */
  get size(): number {
    return this.#allocator.size - this.#liveUnfilled();
  }

  /** Bytes of all pages, unfilled ones included. */
  get usedBytes(): number {
    return this.#allocator.usedBytes;
  }

  get isFreed(): boolean {
    return this.#finalStats !== undefined;
  }

  /**
   * Puts pages back at their places from before a restart. Offsets must strictly ascend, and the index may only have
   * had restored pages; {@link renewBatch} then restores their order of use. False: not taken, because the range is not
   * free or out of bounds, or the key is there. Throws `ArgumentError` for wrong offsets and for an index that is not
   * new; some of the pages may be in it then.
   */
  restore(pages: readonly RestoredPage[]): boolean[] {
    const taken: boolean[] = [];
    for (let start = 0; start < pages.length; start += CALL_LONGEST_KEYS_COUNT) {
      const call = pages.slice(start, start + CALL_LONGEST_KEYS_COUNT);
      const keys = call.map(({ key }) => key);
      const lengths = call.map(({ length }) => Math.max(length, this.#spaceMinBytes));
      const offsets = call.map(({ offset }) => offset);
      const slots = this.#allocator.restoreBatch(keys, lengths, offsets);
      for (const [i, { checksum, length, ...origin }] of call.entries()) {
        const slot = slots[i] as number;
        taken.push(slot >= 0);
        if (slot < 0) continue;
        this.#slots.set(slot, checksum, { ...NO_ORIGIN, ...origin });
        if (length < this.#spaceMinBytes) this.#shortLengths.set(slot, length);
      }
    }
    return taken;
  }

  /** Looks pages up, which counts as a use. */
  lookupBatch(keys: Keys, request?: RequestOptions): (PublishedPage | null)[] {
    return this.#pages(keys, this.#allocator.lookupBatch(keys, request));
  }

  /** Like {@link lookupBatch}, but does not count as a use. */
  peekBatch(keys: Keys): (PublishedPage | null)[] {
    return this.#pages(keys, this.#allocator.peekBatch(keys));
  }

  /** Like {@link peekBatch}, with expired pages: for those who account for pages instead of reading them. */
  peekStored(keys: Keys): (PublishedPage | null)[] {
    return this.#pages(keys, this.#allocator.peekBatch(keys), 0);
  }

  /** The keys whose pages are here and expired. */
  expiredAmong(keys: Keys): string[] {
    const now = this.#expiryTime();
    if (now === 0) return [];
    const stored = this.peekStored(keys);
    return stringsOf(keys).filter((_, i) => isExpired(stored[i]?.expires ?? 0, now));
  }

  /** Key of the page that has been expired for longest; the caller must remove it. Undefined: none is expired. */
  nextExpired(): string | undefined {
    const { expiring } = this.#slots;
    for (const now = this.#expiryTime(); expiring.size > 0 && expiring.first <= now; ) {
      const slot = expiring.firstSlot;
      const [key] = this.keysOf(Uint32Array.of(slot));
      const isHere = key !== undefined && this.#allocator.peekBatch([key]).slots[0] === slot;
      if (isHere && !this.#unfilled.has(key)) return key;
      // An evicted page has left its expiry behind.
      expiring.set(slot, 0);
    }
    return undefined;
  }

  /** The earliest expiry of a page; 0: none expires. */
  get firstExpiry(): number {
    return this.#slots.expiring.first;
  }

  /** One byte for each key; 1: the page can be found. Does not count as a use. */
  hasBatch(keys: Keys): Uint8Array {
    if (this.#expiryTime() > 0) return Uint8Array.from(this.peekBatch(keys), (page) => Number(page !== null));
    const flags = this.#allocator.hasBatch(keys);
    if (this.#unfilled.size === 0) return flags;
    for (const [i, key] of stringsOf(keys).entries()) if (this.#unfilled.has(key)) flags[i] = 0;
    return flags;
  }

  /** Counts a use of each page that is here, in the order of the keys. */
  touchBatch(keys: Keys, request?: RequestOptions): void {
    this.#allocator.touchBatch(keys, request);
  }

  /** Gives pages that are here a priority in eviction. */
  readonly setPriority: TenantAllocator['setPriorityBatch'] = (...told) => this.#allocator.setPriorityBatch(...told);

  /** Makes each page the newest one in turn, without counting a use. */
  renewBatch(keys: Keys): void {
    this.#allocator.renewBatch(keys);
  }

  /** Keys of the pages that can be found, and of expired ones, next victim first. */
  keys(): string[] {
    const keys = this.#allocator.keys();
    return this.#unfilled.size === 0 ? keys : keys.filter((key) => !this.#unfilled.has(key));
  }

  /** Slots of the pages that can be found, and of expired ones, next victim first; for walks in slices. */
  order(): Uint32Array {
    const order = this.#allocator.order();
    if (this.#unfilled.size === 0) return order;
    const unfilled = new Set(this.#allocator.peekBatch([...this.#unfilled.keys()]).slots);
    return order.filter((slot) => !unfilled.has(slot));
  }

  /** Keys of the pages in these slots. If a page has gone since, the result is undefined or the key of another page. */
  keysOf(slots: Uint32Array): (string | undefined)[] {
    return this.#allocator.keysOf(slots);
  }

  /** Checksum of the page that has, or last had, this slot. */
  checksumAt(slot: number): number | undefined {
    return this.#slots.checksumOf(slot);
  }

  isHeld(key: string): boolean {
    return this.#holds.has(key);
  }

  /**
   * Carries the wishes out in order; their keys must be distinct. The caller must fill the vacancies before control
   * returns to the event loop, or hold them; until then no reader finds the pages. `batch`: the wishes' keys, encoded.
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

  /** Makes a new page, whose bytes are written now, findable. */
  fill({ slot, offset }: Vacancy, length: number, checksum: number, origin = NO_ORIGIN): PublishedPage {
    this.#slots.set(slot, checksum, origin);
    if (length < this.#spaceMinBytes) this.#shortLengths.set(slot, length);
    else this.#shortLengths.delete(slot);
    const { version, kind, expires, setBy } = origin;
    return { offset, length, checksum, slot, alreadyPresent: false, version, kind, expires, setBy };
  }

  /** Updates the origin of an existing page that was set again. */
  setOrigin({ slot, checksum }: PublishedPage, origin: PageOrigin): void {
    this.#slots.set(slot, checksum, origin);
  }

  /**
   * Hides the new pages until {@link fillHeld} or {@link abandonHeld}, and holds them. `origins`: one for each vacancy.
   */
  holdUnfilled(vacancies: readonly Vacancy[], origins: readonly PageOrigin[] = []): void {
    this.hold(vacancies.map(({ key }) => key));
    vacancies.forEach(({ key }, i) => {
      this.#unfilled.set(key, origins[i] ?? NO_ORIGIN);
    });
  }

  /** Like {@link fill}, and ends the hold. Null: the page was removed meanwhile. */
  fillHeld(vacancy: Vacancy, length: number, checksum: number): PublishedPage | null {
    const { key } = vacancy;
    const origin = this.#unfilled.get(key);
    this.#unfilled.delete(key);
    const isHere = this.#allocator.has(key);
    const page = isHere ? this.fill(vacancy, length, checksum, origin) : null;
    this.release([key]);
    return page;
  }

  /** Drops a new page that gets no bytes, and ends its hold. */
  abandonHeld(key: string): void {
    this.#allocator.remove(key, this.#nowMs());
    this.#unfilled.delete(key);
    this.release([key]);
  }

  /** Holds pages: their ranges stay. Each hold needs one call of {@link release}. */
  hold(keys: Keys): void {
    this.#allocator.pinBatch(keys);
    for (const key of stringsOf(keys)) this.#holds.set(key, (this.#holds.get(key) ?? 0) + 1);
  }

  release(keys: Keys): void {
    this.#allocator.unpinBatch(keys);
    for (const key of stringsOf(keys)) {
      const holds = (this.#holds.get(key) ?? 0) - 1;
      if (holds > 0) this.#holds.set(key, holds);
      else this.#holds.delete(key);
    }
  }

  /**
   * Removes a page; false: it was not here. A held page cannot be found any more, but keeps its range until released.
   */
  remove(key: string): boolean {
    const wasFilled = !this.#unfilled.has(key);
    this.#freeing(this.#allocator.peekBatch([key]).slots);
    return this.#allocator.remove(key, this.#nowMs()) && wasFilled;
  }

  /** Whether there may be copies of what the node with this origin has set; 0: of any node's pages. */
  hasCopiesOf(origin: number): boolean {
    return this.#unfilled.size > 0 || this.#slots.hasCopiesOf(origin);
  }

  /** Origins of the pages, even of unfilled and expired ones; null: the page is not here. */
  originsOf(keys: readonly string[]): (PageOrigin | null)[] {
    const origins: (PageOrigin | null)[] = this.peekStored(keys);
    if (this.#unfilled.size === 0) return origins;
    keys.forEach((key, i) => {
      const unfilled = this.#unfilled.get(key);
      if (unfilled !== undefined && this.#allocator.has(key)) origins[i] = unfilled;
    });
    return origins;
  }

  /** Evicts the next victim, as for a page of `forKey`; returns its key, null: none may be. Does not call `onFreed`. */
  evictNext(forKey = ''): string | null {
    return this.#allocator.evictNextFor(forKey, this.#nowMs());
  }

  /** Statistics; after {@link free} the last ones. */
  stats(): PoolAllocatorStats {
    return this.#finalStats ?? this.#allocator.stats();
  }

  free(): void {
    this.#finalStats ??= this.#allocator.stats();
    this.#allocator.free();
  }

  /** Places a run of wishes. `lost`: keys whose old page is gone although the new one has found no room. */
  #placeRun(wishes: readonly Wish[], { start, end, part, keys }: Run) {
    const run = wishes.slice(start, end);
    const lengths = Float64Array.from(run, ({ length }) => Math.max(length, this.#spaceMinBytes));
    const { expiring } = this.#slots;
    // A page that has expired just now is not among those that the caller has found.
    if (expiring.size > 0) this.#freeing(this.#allocator.peekBatch(keys).slots);
    else for (const { here } of run) if (here !== null) this.#onFreed(here.slot);
    const nowMs = this.#nowMs();
    const { offsets, slots, evicted, evictedSlots } = this.#allocator.publishBatch(keys, lengths, nowMs, part);
    this.#freeing(evictedSlots);
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
    keys: Keys,
    found: { offsets: Float64Array; bytes: Float64Array; slots: Int32Array },
    now = this.#expiryTime(),
  ): (PublishedPage | null)[] {
    const strings = stringsOf(keys);
    const pages: (PublishedPage | null)[] = [];
    for (let i = 0; i < found.offsets.length; i++) {
      const offset = found.offsets[i] as number;
      const isFound = offset >= 0 && !(this.#unfilled.size > 0 && this.#unfilled.has(strings[i] as string));
      if (!isFound) {
        pages.push(null);
        continue;
      }
      const slot = found.slots[i] as number;
      const expires = this.#slots.expiring.expiresOf(slot);
      if (isExpired(expires, now)) {
        pages.push(null);
        continue;
      }
      pages.push({
        offset,
        length: this.#shortLengths.get(slot) ?? (found.bytes[i] as number),
        checksum: this.#slots.checksumOf(slot) as number,
        slot,
        alreadyPresent: true,
        version: this.#slots.versionOf(slot),
        kind: this.#slots.kindOf(slot),
        expires,
        setBy: this.#slots.setByAt(slot),
      });
    }
    return pages;
  }

  /** The present, to compare expiries with; 0 while no page has one. */
  #expiryTime(): number {
    return this.#slots.expiring.size === 0 ? 0 : this.#present();
  }

  #freeing(slots: ArrayLike<number>): void {
    for (let i = 0; i < slots.length; i++) {
      const slot = slots[i] as number;
      if (slot < 0) continue;
      this.#slots.freed(slot);
      this.#onFreed(slot);
    }
  }

  #evictable(): number {
    const { entries, pinned } = this.#allocator.stats();
    return entries - pinned;
  }

  #liveUnfilled(): number {
    if (this.#unfilled.size === 0) return 0;
    return this.#allocator.hasBatch([...this.#unfilled.keys()]).reduce((count, flag) => count + flag, 0);
  }

  /** How often the key is held: calls of {@link hold} minus calls of {@link release}. */
  holdsOf(key: string): number {
    return this.#holds.get(key) ?? 0;
  }

  /** Keys of unfilled pages, including those that were removed meanwhile. */
  unfilledKeys(): IterableIterator<string> {
    return this.#unfilled.keys();
  }

  /** Every page that can be found or is expired, with its key; does not count as a use. */
  *pages(): Generator<readonly [key: string, page: PublishedPage], void> {
    const order = this.order();
    for (let start = 0; start < order.length; start += CALL_LONGEST_KEYS_COUNT) {
      const keys = this.keysOf(order.subarray(start, start + CALL_LONGEST_KEYS_COUNT)).filter(
        (key) => key !== undefined,
      );
      for (const [i, page] of this.peekStored(keys).entries()) if (page !== null) yield [keys[i] as string, page];
    }
  }

  /** Throws `InvariantError`, or `ERR_CORE` of the allocator, unless the accounting holds; passes once it is freed. */
  verify(): void {
    if (this.isFreed) return;
    this.#allocator.verify();
    this.#slots.expiring.verify();
    this.tenants.verify();
    const slots = new Set<number>();
    for (const [key, page] of this.pages()) {
      assert(!slots.has(page.slot), () => `page index: two pages in slot ${page.slot}, one is ${JSON.stringify(key)}`);
      slots.add(page.slot);
      this.#verifyPage(key, page);
    }
    assertEqual('page index: pages that can be found', this.size, slots.size);
    for (const key of this.#unfilled.keys()) {
      assert(this.#holds.has(key), () => `page index: ${JSON.stringify(key)} is unfilled and not held`);
    }
    for (const [key, count] of this.#holds) {
      assert(count > 0, () => `page index: ${count} holds of ${JSON.stringify(key)}`);
    }
    const held = this.#allocator.hasBatch([...this.#holds.keys()]).reduce((sum, flag) => sum + flag, 0);
    assertEqual('page index: pages that are here and held', this.#allocator.stats().pinned, held);
  }

  #verifyPage(key: string, { slot, length }: PublishedPage): void {
    this.#slots.verifySlot(slot);
    const isShort = this.#shortLengths.has(slot);
    assert(
      !isShort || length < this.#spaceMinBytes,
      () => `page index: ${JSON.stringify(key)} is short, of ${length} bytes`,
    );
  }
}

/** A run of wishes with one intent and one request (`end` excluded), and the request for the allocator. */
interface Run {
  readonly start: number;
  readonly end: number;
  readonly part: PublishRequest;
  readonly keys: Keys;
}

function keysOfRun(wishes: readonly Wish[], batch: KeyBatch | undefined, start: number, end: number): Keys {
  if (batch === undefined) return wishes.slice(start, end).map(({ key }) => key);
  return batch.pick(Array.from({ length: end - start }, (_, i) => start + i));
}
