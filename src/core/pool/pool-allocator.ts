import { ArgumentError, ClosedError, MeshCacheError } from '../../base/errors.js';
import { type Core, defaultCore } from '../binding/core.js';
import { POLICY_NUMBERS, STATS_COUNT, TENANT_STATS_COUNT } from '../binding/exports.js';
import { type Keys, stringsOf } from '../binding/key-batch.js';
import { type PagePriority, priorityNumber } from '../binding/page-priority.js';
import {
  BROKEN_INVARIANTS,
  statsFrom,
  tenantStatsFrom,
  writeOffsets,
  writeSizes,
  writeTenants,
} from './pool-columns.js';
import { aboutOf, checkBytes, checkTenant, checkTime, checkWait, settingsOf } from './pool-settings.js';
import type {
  BatchLookup,
  BatchPlacement,
  PageLocation,
  Placement,
  PoolAllocatorOptions,
  PoolAllocatorStats,
  PoolPublishOptions,
  PoolRequestOptions,
  PoolTenantStats,
} from './pool-types.js';
import { SlotKeys } from './slot-keys.js';

const LENGTH_MIN_BYTES = 1;
/** Bytes of results per key: [sizes: f64][offsets: f64][slots: i32][evicted ends: u32], each for the whole batch. */
const PUBLISH_RESULT_BYTES = 24;
/** Bytes of results per key: [offsets: f64][sizes: f64][slots: i32] */
const LOOKUP_RESULT_BYTES = 20;
/** Bytes of results per key: [sizes: f64][offsets: f64][slots: i32][tenants: u8] */
const RESTORE_RESULT_BYTES = 21;
const SLOT_RESULT_BYTES = 4;
const NO_SLOT = -1;

/**
 * Index, allocator and order of eviction of a pool. It holds no page bytes: it decides the offset of each page, and
 * which pages are evicted for it. Keys are compared by their XXH3-128. The caller passes the time, in milliseconds from
 * any start.
 *
 * Pinned pages are never evicted. They leave the order of eviction, and return with their last unpin as most recently
 * used (S3-FIFO: last in their queue; yield: as old as a page used now). A pinned page that is removed or replaced
 * cannot be found any more, but its range stays untouched, and its key cannot be published, until the last unpin.
 *
 * With several priorities, low pages are evicted first and high ones last, each the least recently used first; normal
 * pages follow the policy, which ignores the others. High pages take at most half of the capacity, or of their tenant's
 * maximum: the least recently used beyond that become normal.
 *
 * With tenants, each tenant has its own order of eviction. If its quota is used up, a new page takes the room of the
 * tenant's own pages. If the pool is full, a new page takes the room of the tenant with the most bytes above its
 * minimum (on a tie: its own tenant, else the one with the lowest number), or of its own tenant if none is above its
 * minimum. So other tenants leave each one its minimum, to within one page.
 *
 * @example
 * import { PoolAllocator } from 'meshcache/core';
 *
 * const pool = new PoolAllocator({ capacityBytes: 2 ** 30, policy: 'lru' });
 * const placed = pool.publish('page-1', 2 ** 20); // null: no room
 * console.log(placed?.offset, placed?.evicted, pool.lookup('page-1')?.bytes);
 */
export class PoolAllocator {
  /** Usable bytes: the requested capacity, rounded down to the alignment. */
  readonly capacityBytes: number;
  /** Number of tenants: those in the options, plus tenant 0. */
  readonly tenantCount: number;
  private readonly core: Core;
  private readonly alignmentBytes: number;
  private handle: number;
  /** Whether any page was ever given a low or high priority. */
  private hasPriorities = false;
  /** Offset at which the last restore ended. */
  private restoredOffset = -1;
  private readonly slotKeys = new SlotKeys();
  private evictedLast: string[] = [];

  /** Throws `ArgumentError` for invalid options. */
  constructor(options: PoolAllocatorOptions) {
    const settings = settingsOf(options);
    const { capacityBytes, segmentBytes, alignmentBytes, policy, tenants } = settings;
    this.alignmentBytes = alignmentBytes;
    this.capacityBytes = capacityBytes;
    this.tenantCount = 1 + tenants.length;
    this.core = options.core ?? defaultCore();
    const { exports } = this.core;
    const handle = exports.poolNew(capacityBytes, segmentBytes, alignmentBytes, POLICY_NUMBERS[policy]) >>> 0;
    const { quarantineMs, quarantineMaxBytes, neverReuseEarly } = settings;
    exports.poolSetQuarantine(handle, quarantineMs, quarantineMaxBytes, neverReuseEarly ? 1 : 0);
    exports.poolSetKeepsHeads(handle, settings.keepsHeads ? 1 : 0);
    for (const { minBytes, maxBytes } of tenants) exports.poolAddTenant(handle, minBytes, maxBytes);
    this.handle = handle;
    this.core.freeWhenCollected(this, () => exports.poolFree(handle));
  }

  /** Whether {@link free} was called. */
  get isFreed(): boolean {
    return this.handle === 0;
  }

  /** Number of findable pages. */
  get size(): number {
    return this.core.exports.poolCount(this.open());
  }

  /** Sum of the pages' lengths, as requested. */
  get usedBytes(): number {
    return this.stats().usedBytes;
  }

  /** Keys of pages that the last publish evicted, even if it was refused. */
  get lastEvicted(): readonly string[] {
    return this.evictedLast;
  }

  /**
   * Allocates a range for a page. An existing key is replaced: its old range goes into quarantine, and it does not
   * count as evicted. Null: the page is larger than a segment, everything else is pinned or withheld, or this very key
   * is pinned. Even then the old page is gone, and {@link lastEvicted} lists other evicted pages.
   */
  publish(key: string, bytes: number, nowMs = 0): Placement | null {
    const { offsets, slots, evicted } = this.publishBatch([key], bytes, nowMs);
    const [offset = -1] = offsets;
    return offset < 0 ? null : { offset, slot: slots[0] as number, evicted };
  }

  /**
   * Publishes the keys one after the other, as {@link publish} does; `bytes` is one length for all, or one per key. A
   * page that was evicted or replaced for a later key of the batch has offset -1; evicted ones are in `evicted`.
   */
  publishBatch(
    keys: Keys,
    bytes: number | ArrayLike<number>,
    nowMs = 0,
    request: PoolPublishOptions = {},
  ): BatchPlacement {
    const handle = this.open();
    checkTime(nowMs);
    const about = aboutOf(request);
    const tenant = this.tenantOf(request);
    const priority = priorityNumber(request.priority);
    if (priority !== 0) this.hasPriorities = true;
    const area = this.core.area;
    area.writeDigests(keys, PUBLISH_RESULT_BYTES);
    const { count } = area;
    const sizes = area.results;
    const [offsets, slots, ends] = [sizes + 8 * count, sizes + 16 * count, sizes + 20 * count];
    const one =
      typeof bytes === 'number' ? checkBytes(bytes, LENGTH_MIN_BYTES) : writeSizes(area, bytes, LENGTH_MIN_BYTES);
    const evictedCount = this.core.exports.poolPublishBatch(
      handle,
      area.hashes,
      count,
      one < 0 ? sizes : 0,
      one,
      nowMs,
      about,
      tenant,
      priority,
      offsets,
      slots,
      ends,
    );
    const evictedAt = evictedCount === 0 ? 0 : this.core.exports.poolEvicted(handle) >>> 2;
    const evictedSlots = area.u32.slice(evictedAt, evictedAt + evictedCount);
    const changes = { words: area.u32, slotsAt: slots >>> 2, endsAt: ends >>> 2, evictedSlots };
    const evicted = this.slotKeys.follow(stringsOf(keys), changes);
    const placedOffsets = area.f64.slice(offsets >>> 3, (offsets >>> 3) + count);
    const placedSlots = area.i32.slice(slots >>> 2, (slots >>> 2) + count);
    for (let i = 0; i < count; i++) if ((placedOffsets[i] as number) < 0) placedSlots[i] = NO_SLOT;
    this.evictedLast = evicted;
    return { offsets: placedOffsets, slots: placedSlots, evicted, evictedSlots };
  }

  /**
   * Restores pages at former offsets, for example after a restart. `bytes` and `offsets` have one element per key; the
   * offsets must be multiples of the alignment and strictly ascend, also across calls. No page is evicted or replaced.
   * The pages enter the order of eviction as new ones; call {@link renewBatch} afterwards to restore their order of
   * use. `tenants`: the tenant of each page; default: tenant 0. Returns the slots; -1: not restored, because the range
   * is not free or not inside one segment, or the key exists. A tenant may then be above its maximum, see {@link
   * evictOverMax}. Throws `ArgumentError`, without restoring any, for invalid arguments and if a page was ever
   * published or removed in this pool.
   */
  restoreBatch(
    keys: Keys,
    bytes: ArrayLike<number>,
    offsets: ArrayLike<number>,
    tenants?: ArrayLike<number>,
  ): Int32Array {
    const handle = this.open();
    const area = this.core.area;
    area.writeDigests(keys, RESTORE_RESULT_BYTES);
    const { count } = area;
    writeSizes(area, bytes);
    const at = area.results + 8 * count;
    const slotsAt = at + 8 * count;
    const tenantsAt = tenants === undefined ? 0 : slotsAt + 4 * count;
    const restoredOffset = writeOffsets(area, offsets, at >>> 3, {
      above: this.restoredOffset,
      alignmentBytes: this.alignmentBytes,
    });
    if (tenants !== undefined) writeTenants(area, tenants, tenantsAt, this.tenantCount);
    const { exports } = this.core;
    if (exports.poolRestoreBatch(handle, area.hashes, count, area.results, at, tenantsAt, slotsAt) === 0) {
      throw new ArgumentError(
        'restoreBatch: pages were already published or removed in this pool; restore into a new one',
      );
    }
    this.restoredOffset = restoredOffset;
    const slots = area.i32.slice(slotsAt >>> 2, (slotsAt >>> 2) + count);
    const strings = stringsOf(keys);
    for (let i = 0; i < count; i++) {
      const slot = slots[i] as number;
      if (slot !== NO_SLOT) this.slotKeys.set(slot, strings[i]);
    }
    return slots;
  }

  /**
   * Evicts the next victim (with several tenants, the victim for a page of `tenant`) and returns its key. Null if no
   * page may be evicted: the pool is empty, all pages are pinned, or the quarantine is at its limit and never cut
   * short. {@link lastEvicted} does not change.
   */
  evictNext(nowMs = 0, tenant = 0): string | null {
    return this.evict(nowMs, tenant)?.key ?? null;
  }

  /**
   * Evicts a page of a tenant that is above its maximum, which only {@link restoreBatch} and {@link giveBatch} can
   * cause; returns its key and former slot. Null: no tenant is above it, or none of its pages may be evicted.
   */
  evictOverMax(nowMs = 0): { readonly key: string; readonly slot: number } | null {
    return this.evict(nowMs);
  }

  /** Like {@link evictNext} for a page of the tenant, with the former slot; without a tenant, {@link evictOverMax}. */
  protected evict(nowMs: number, tenant?: number): { readonly key: string; readonly slot: number } | null {
    const handle = this.open();
    checkTime(nowMs);
    checkTenant(tenant ?? 0, this.tenantCount);
    const { poolEvictNext, poolEvictOverMax } = this.core.exports;
    const slot = tenant === undefined ? poolEvictOverMax(handle, nowMs) : poolEvictNext(handle, nowMs, tenant);
    const key = this.slotKeys.take(slot);
    return key === null ? null : { key, slot };
  }

  /**
   * Changes the priority of existing pages. A page whose priority changes becomes the newest page of its new order; if
   * normal, one without any history. Pinned pages enter the order with their last unpin.
   */
  setPriorityBatch(keys: Keys, priority: PagePriority): void {
    const handle = this.open();
    const number = priorityNumber(priority);
    if (number !== 0) this.hasPriorities = true;
    if (!this.hasPriorities) return;
    const area = this.core.area;
    area.writeDigests(keys, 0);
    this.core.exports.poolSetPriorityBatch(handle, area.hashes, area.count, number);
  }

  /**
   * Notes that existing pages, in the order of a prefix, will be asked for again in `inMs` milliseconds; Infinity:
   * never. The policy `yield` evicts pages that are never asked for again before others, then those that are expected
   * last, if that is later than a hit of the page that would go otherwise. A page is expected until it is used,
   * published or pinned, or its time has come. Pinned, low and high pages are left as they are; other policies ignore
   * it. `nowMs`: as for {@link publish}; a time that goes back counts as the latest one.
   */
  expectBatch(keys: Keys, inMs: number, nowMs: number): void {
    const handle = this.open();
    checkWait('inMs', inMs);
    checkTime(nowMs);
    const area = this.core.area;
    area.writeDigests(keys, 0);
    this.core.exports.poolExpectBatch(handle, area.hashes, area.count, inMs, nowMs);
  }

  /**
   * Moves existing pages to a tenant, each in turn as its newest normal page. The tenant may then be above its maximum.
   */
  giveBatch(keys: Keys, tenant: number): void {
    const handle = this.open();
    checkTenant(tenant, this.tenantCount);
    const area = this.core.area;
    area.writeDigests(keys, 0);
    this.core.exports.poolGiveBatch(handle, area.hashes, area.count, tenant);
  }

  /** Looks up a page, which counts as a use. */
  lookup(key: string): PageLocation | null {
    const { offsets, bytes, slots } = this.lookupBatch([key]);
    const offset = offsets[0] as number;
    return offset < 0 ? null : { offset, bytes: bytes[0] as number, slot: slots[0] as number };
  }

  /** Looks up pages and counts a use of each, in the order of the keys. */
  lookupBatch(keys: Keys, request: PoolRequestOptions = {}): BatchLookup {
    return this.locate(keys, aboutOf(request), this.tenantOf(request));
  }

  /** Like {@link lookupBatch}, but does not count as a use. */
  peekBatch(keys: Keys): BatchLookup {
    return this.locate(keys, null);
  }

  /** Whether the page exists. Does not count as a use. */
  has(key: string): boolean {
    return this.hasBatch([key])[0] === 1;
  }

  /** One byte per key; 1: the page exists. Does not count as a use. */
  hasBatch(keys: Keys): Uint8Array {
    const handle = this.open();
    const area = this.core.area;
    area.writeDigests(keys, SLOT_RESULT_BYTES);
    this.core.exports.poolHasBatch(handle, area.hashes, area.count, area.results);
    return area.u8.slice(area.results, area.results + area.count);
  }

  /**
   * Counts a use of each page in the order of the keys, as {@link lookupBatch} does, for reads done elsewhere; returns
   * the number of existing pages.
   */
  touchBatch(keys: Keys, request: PoolRequestOptions = {}): number {
    const handle = this.open();
    const about = aboutOf(request);
    const tenant = this.tenantOf(request);
    const area = this.core.area;
    area.writeDigests(keys, 0);
    return this.core.exports.poolTouchBatch(handle, area.hashes, area.count, about, tenant);
  }

  /** Makes each page in turn the most recently used, without counting a use; for restored pages, oldest first. */
  renewBatch(keys: Keys): void {
    const handle = this.open();
    const area = this.core.area;
    area.writeDigests(keys, 0);
    this.core.exports.poolRenewBatch(handle, area.hashes, area.count);
  }

  /** Removes a page; false if it did not exist. */
  remove(key: string, nowMs = 0): boolean {
    return this.removeBatch([key], nowMs)[0] === 1;
  }

  /** Removes pages; 1 for each key that existed. */
  removeBatch(keys: Keys, nowMs = 0): Uint8Array {
    const handle = this.open();
    checkTime(nowMs);
    const area = this.core.area;
    area.writeDigests(keys, SLOT_RESULT_BYTES);
    this.core.exports.poolRemoveBatch(handle, area.hashes, area.count, nowMs, area.results);
    const slots = area.i32;
    const start = area.results >>> 2;
    const removed = new Uint8Array(area.count);
    for (let i = 0; i < removed.length; i++) {
      const slot = slots[start + i] as number;
      if (slot === NO_SLOT) continue;
      removed[i] = 1;
      this.slotKeys.forget(slot);
    }
    return removed;
  }

  /** Pins a page: it is not evicted until it has been unpinned as often. False if it does not exist. */
  pin(key: string): boolean {
    return this.pinBatch([key])[0] === 1;
  }

  /** Pins pages as {@link pin} does; 1 for each that exists. */
  pinBatch(keys: Keys): Uint8Array {
    const handle = this.open();
    const area = this.core.area;
    area.writeDigests(keys, SLOT_RESULT_BYTES);
    this.core.exports.poolPinBatch(handle, area.hashes, area.count, area.results);
    return area.u8.slice(area.results, area.results + area.count);
  }

  /** Ends one pin; false if no page of that key, removed or not, is pinned. */
  unpin(key: string): boolean {
    return this.unpinBatch([key])[0] === 1;
  }

  /** Unpins pages as {@link unpin} does; 1 for each that had a pin. */
  unpinBatch(keys: Keys): Uint8Array {
    const handle = this.open();
    const area = this.core.area;
    area.writeDigests(keys, SLOT_RESULT_BYTES);
    this.core.exports.poolUnpinBatch(handle, area.hashes, area.count, area.results);
    return area.u8.slice(area.results, area.results + area.count);
  }

  /** Removes all pages. */
  clear(nowMs = 0): void {
    checkTime(nowMs);
    this.core.exports.poolClear(this.open(), nowMs);
    this.slotKeys.clear();
  }

  /** All keys in the order of eviction, the next victim first (exact for LRU; pinned ones last). */
  keys(): string[] {
    return this.keysOf(this.order()) as string[];
  }

  /** The slots of all pages in the order of {@link keys}; the caller owns the array. */
  order(): Uint32Array {
    const handle = this.open();
    const count = this.size;
    const area = this.core.area;
    area.layOut(count, SLOT_RESULT_BYTES, 0);
    this.core.exports.poolOrder(handle, area.results);
    const start = area.results >>> 2;
    return area.u32.slice(start, start + count);
  }

  /** Keys of the pages in these slots; the result for a slot whose page has since gone is arbitrary. */
  keysOf(slots: Uint32Array): (string | undefined)[] {
    return this.slotKeys.of(slots);
  }

  /** Checks every internal invariant; throws `ERR_CORE` with the broken one. Takes time in proportion to the pages. */
  verify(): void {
    const broken = this.core.exports.poolVerify(this.open());
    if (broken !== 0) throw new MeshCacheError('ERR_CORE', `pool: ${BROKEN_INVARIANTS[broken] ?? broken}`);
  }

  /** Current counts and bytes, and totals since the pool was created. */
  stats(): PoolAllocatorStats {
    const handle = this.open();
    return statsFrom(this.read(STATS_COUNT, (at) => this.core.exports.poolStats(handle, at)));
  }

  /** Current counts and bytes of a tenant, and its quota. */
  tenantStats(tenant: number): PoolTenantStats {
    const handle = this.open();
    checkTenant(tenant, this.tenantCount);
    return tenantStatsFrom(
      this.read(TENANT_STATS_COUNT, (at) => this.core.exports.poolTenantStats(handle, tenant, at)),
    );
  }

  /** Frees the memory; idempotent. Without it, the memory is freed when the object is collected. */
  free(): void {
    if (this.handle === 0) return;
    this.core.forget(this);
    this.core.exports.poolFree(this.handle);
    this.handle = 0;
    this.slotKeys.clear();
  }

  private open(): number {
    if (this.handle === 0) throw new ClosedError('the pool');
    return this.handle;
  }

  private read(count: number, write: (at: number) => void): number[] {
    const area = this.core.area;
    area.layOut(count, 8, 0);
    write(area.results);
    return Array.from(area.f64.subarray(area.results >>> 3, (area.results >>> 3) + count));
  }

  private tenantOf({ tenant = 0 }: PoolRequestOptions): number {
    if (tenant !== 0) checkTenant(tenant, this.tenantCount);
    return tenant;
  }

  /** Locates pages. `about` describes the request; null: the lookup does not count as a use. */
  private locate(keys: Keys, about: number | null, tenant = 0): BatchLookup {
    const handle = this.open();
    const area = this.core.area;
    area.writeDigests(keys, LOOKUP_RESULT_BYTES);
    const { count } = area;
    const offsets = area.results;
    const sizes = offsets + 8 * count;
    const slots = sizes + 8 * count;
    const isUse = about === null ? 0 : 1;
    this.core.exports.poolLookupBatch(handle, area.hashes, count, isUse, about ?? 0, tenant, offsets, sizes, slots);
    return {
      offsets: area.f64.slice(offsets >>> 3, (offsets >>> 3) + count),
      bytes: area.f64.slice(sizes >>> 3, (sizes >>> 3) + count),
      slots: area.i32.slice(slots >>> 2, (slots >>> 2) + count),
    };
  }
}
