/**
 * The module's exports. It imports nothing, and has no state except its heap: rings, pools and maps are addresses that
 * the caller frees with `ringFree`, `poolFree` and `mapFree`.
 *
 * A batch of keys is `count` keys, one after the other from `keys` on, with their lengths in bytes as u32 from
 * `lengths` on. Pools and rings take hashes of keys instead of keys, so that a key is hashed once for all calls:
 *
 *     digests    2 x u64 a key: XXH3-128, low word and high word     `digestKeys`, for pools
 *     positions  u64 a key: where it stands on every ring            `placeKeys`, for rings and maps
 *
 * Addresses and output areas come from `allocate`, 16-byte aligned. Sizes and
 * offsets cross as f64 (whole, below 2^53). The caller checks arguments; broken invariants trap.
 */
import './abort';
import { give } from './giving';
import { digestHigh, digestLow, xxh3, xxh64 } from './hash';
import { PAGE_MAP_NODES, PageMap } from './page-map';
import { POLICY_LRU, POLICY_S3FIFO, POLICY_YIELD } from './policy/policy';
import { Pool } from './pool';
import { NONE } from './records';
import { keyPosition, Ring } from './ring';
import { HIGH, LIVE, LOW, NORMAL, slotBytes, slotOffset, slotStamp, slotStatus } from './slot';
import { TENANTS_MAX } from './tenants';
import { verifyPool } from './verify';
import { warm, warmLeaving, warmMap } from './warming';

/** Compared with `src/core/binding/exports.ts` at load: raised whenever the meaning of an export changes. */
export const CORE_VERSION: i32 = 7;
export const NO_INDEX: i32 = <i32>NONE;
export const STATS_COUNT: i32 = 10;
export const TENANT_STATS_COUNT: i32 = 5;
export { PAGE_MAP_NODES, POLICY_LRU, POLICY_S3FIFO, POLICY_YIELD, TENANTS_MAX };
export { NORMAL as PRIORITY_NORMAL, LOW as PRIORITY_LOW, HIGH as PRIORITY_HIGH };

export function allocate(bytes: usize): usize {
  return heap.alloc(bytes);
}

export function release(address: usize): void {
  heap.free(address);
}

/** Writes XXH64 of each key, with the seed given in two halves, as u64 little endian. */
export function hashBatch(keys: usize, lengths: usize, count: u32, seedLow: u32, seedHigh: u32, out: usize): void {
  const seed = (<u64>seedHigh << 32) | <u64>seedLow;
  for (let i: u32 = 0; i < count; i++) {
    const bytes = load<u32>(lengths + (<usize>i << 2));
    store<u64>(out + (<usize>i << 3), xxh64(keys, bytes, seed));
    keys += bytes;
  }
}

/** Writes XXH3-128 of each key, 16 bytes in canonical (big endian) order. */
export function digestBatch(keys: usize, lengths: usize, count: u32, out: usize): void {
  for (let i: u32 = 0; i < count; i++) {
    const bytes = load<u32>(lengths + (<usize>i << 2));
    xxh3(keys, bytes);
    store<u64>(out, bswap<u64>(digestHigh));
    store<u64>(out, bswap<u64>(digestLow), 8);
    out += 16;
    keys += bytes;
  }
}

/** Writes the digest of each key, in the layout described at the top of this file. */
export function digestKeys(keys: usize, lengths: usize, count: u32, out: usize): void {
  for (let i: u32 = 0; i < count; i++) {
    const bytes = load<u32>(lengths + (<usize>i << 2));
    xxh3(keys, bytes);
    store<u64>(out, digestLow);
    store<u64>(out, digestHigh, 8);
    out += 16;
    keys += bytes;
  }
}

/** Writes the position of each key, in the layout described at the top of this file. */
export function placeKeys(keys: usize, lengths: usize, count: u32, out: usize): void {
  for (let i: u32 = 0; i < count; i++) {
    const bytes = load<u32>(lengths + (<usize>i << 2));
    store<u64>(out + (<usize>i << 3), keyPosition(keys, bytes));
    keys += bytes;
  }
}

export function ringNew(vnodes: u32): Ring {
  return new Ring(vnodes);
}

/** See {@link Ring.setNodes} for the layout of `ids`, which differs from a batch of keys. */
export function ringSetNodes(ring: Ring, ids: usize, lengths: usize, count: u32): void {
  ring.setNodes(ids, lengths, count);
}

/** Sets the zones of the nodes of a ring that is not empty, see {@link Ring.setZones}. Every zone must have a node. */
export function ringSetZones(ring: Ring, zoneOf: usize, zones: u32): void {
  ring.setZones(zoneOf, zones);
}

/** Node number of the key's owner; NO_INDEX if the ring is empty. */
export function ringOwner(ring: Ring, key: usize, bytes: usize): u32 {
  return ring.nodes == 0 ? NONE : ring.owner(keyPosition(key, bytes));
}

/**
 * Writes `owners` u32 for each position: its owners, or with `isPlain` distinct nodes clockwise, ignoring zones; padded
 * with NO_INDEX.
 */
export function ringOwnersBatch(ring: Ring, positions: usize, count: u32, owners: u32, isPlain: u32, out: usize): void {
  const end = positions + (<usize>count << 3);
  if (owners == 1 && ring.nodes > 0) {
    for (; positions < end; positions += 8) {
      store<u32>(out, ring.owner(load<u64>(positions)));
      out += 4;
    }
    return;
  }
  const step = <usize>owners << 2;
  if (isPlain != 0 || ring.zones == 0) {
    for (; positions < end; positions += 8) {
      ring.nextOf(load<u64>(positions), owners, out);
      out += step;
    }
    return;
  }
  for (; positions < end; positions += 8) {
    ring.ownersAcrossZones(load<u64>(positions), owners, out);
    out += step;
  }
}

export function ringFree(ring: Ring): void {
  ring.dispose();
}

/** Creates a pool. Capacity and segment must be multiples of the alignment, and the segment at most the capacity. */
export function poolNew(capacityBytes: f64, segmentBytes: f64, alignmentBytes: f64, policy: u32): Pool {
  return new Pool(<u64>capacityBytes, <u64>segmentBytes, <u64>alignmentBytes, policy);
}

export function poolSetQuarantine(pool: Pool, quarantineMs: f64, maxBytes: f64, neverReuseEarly: u32): void {
  pool.quarantine.configure(quarantineMs, <u64>maxBytes / pool.alignmentBytes, neverReuseEarly != 0);
}

/** Whether publishes refuse a page instead of evicting an earlier one of its own request. */
export function poolSetKeepsHeads(pool: Pool, keepsHeads: u32): void {
  pool.keepsHeads = keepsHeads != 0;
}

/**
 * Adds a tenant with this quota. Only before there is any page, and at most TENANTS_MAX in total. Returns its number;
 * tenant 0 always exists. The maximum, and the sum of all minima, must be at most the capacity.
 */
export function poolAddTenant(pool: Pool, minBytes: f64, maxBytes: f64): u32 {
  return pool.addTenant(<u64>minBytes, <u64>maxBytes);
}

/**
 * Publishes each key with `sizes[i]` (f64), or with `bytes` if `sizes` is 0, for one tenant and with one priority.
 * Output per key: `offsets` (f64; -1: not there at the end of the call), `slots` (i32; the slot that the key took, or
 * -1) and `evictedEnds` (u32: length of the evicted list after this key; a slot may be evicted and taken again).
 * `about`, here and in other calls, tells the policy about the call, see `Yield.begin`. Returns the length of the list
 * at `poolEvicted`.
 */
export function poolPublishBatch(
  pool: Pool,
  digests: usize,
  count: u32,
  sizes: usize,
  bytes: f64,
  nowMs: f64,
  about: u32,
  tenant: u32,
  priority: u32,
  offsets: usize,
  slots: usize,
  evictedEnds: usize,
): u32 {
  pool.begin(nowMs);
  pool.tenants.begin(tenant, count, about, true);
  const firstStamp = pool.stamp;
  if (count > 1) {
    warm(pool, digests, count);
    warmLeaving(pool, count, tenant);
  }
  for (let i: u32 = 0; i < count; i++) {
    const digest = digests + (<usize>i << 4);
    const size = sizes == 0 ? bytes : load<f64>(sizes + (<usize>i << 3));
    store<u32>(slots + (<usize>i << 2), pool.publish(load<u64>(digest), load<u64>(digest, 8), <u64>size, tenant, priority));
    store<u32>(evictedEnds + (<usize>i << 2), pool.evictedCount);
  }
  pool.tenants.end();
  for (let i: u32 = 0; i < count; i++) {
    const slot = load<u32>(slots + (<usize>i << 2));
    store<f64>(offsets + (<usize>i << 3), slot == NONE ? -1 : offsetIfStamped(pool, slot, firstStamp + i));
  }
  return pool.evictedCount;
}

/** Address of the slots (u32) that the last publish evicted, in order. */
export function poolEvicted(pool: Pool): usize {
  return pool.evicted;
}

/**
 * Restores each key, with `sizes[i]`, at `offsets[i]` (both f64; offsets are multiples of the alignment and strictly
 * ascend, also across calls), for `tenants[i]` (u8), or for tenant 0 if `tenants` is 0. Output per key: `slots` (i32;
 * -1: not restored). Returns 1; or 0, without doing anything, if anything but this call has taken or freed space
 * before.
 */
export function poolRestoreBatch(
  pool: Pool,
  digests: usize,
  count: u32,
  sizes: usize,
  offsets: usize,
  tenants: usize,
  slots: usize,
): u32 {
  if (!pool.canRestore) return 0;
  for (let i: u32 = 0; i < count; i++) {
    const digest = digests + (<usize>i << 4);
    const bytes = <u64>load<f64>(sizes + (<usize>i << 3));
    const offset = <u64>load<f64>(offsets + (<usize>i << 3)) / pool.alignmentBytes;
    const tenant: u32 = tenants == 0 ? 0 : load<u8>(tenants + i);
    store<u32>(slots + (<usize>i << 2), pool.restore(load<u64>(digest), load<u64>(digest, 8), bytes, offset, tenant));
  }
  return 1;
}

/** Evicts a page as for a new page of that tenant. Returns its former slot; -1 if none may be evicted. */
export function poolEvictNext(pool: Pool, nowMs: f64, tenant: u32): u32 {
  pool.begin(nowMs);
  return pool.evictNext(tenant);
}

/** Evicts a page of a tenant above its maximum. Returns its former slot; -1 if there is none that may be evicted. */
export function poolEvictOverMax(pool: Pool, nowMs: f64): u32 {
  pool.begin(nowMs);
  return pool.evictOverMax();
}

/** Moves existing pages to a tenant, each as its newest one; the tenant may then be above its maximum. */
export function poolGiveBatch(pool: Pool, digests: usize, count: u32, tenant: u32): void {
  for (let i: u32 = 0; i < count; i++) {
    const slot = pageAt(pool, digests, i);
    if (slot != NONE) give(pool, slot, tenant);
  }
}

/** Changes the priority of existing pages. A page whose priority changes becomes the newest one of its new order. */
export function poolSetPriorityBatch(pool: Pool, digests: usize, count: u32, priority: u32): void {
  for (let i: u32 = 0; i < count; i++) {
    const slot = pageAt(pool, digests, i);
    if (slot != NONE) pool.setPriority(slot, priority);
  }
}

/**
 * Notes that existing pages, in the order of a prefix, will be asked for again in so many milliseconds (0 or more);
 * Infinity: never.
 */
export function poolExpectBatch(pool: Pool, digests: usize, count: u32, inMs: f64, nowMs: f64): void {
  pool.begin(nowMs);
  let newer = NONE;
  for (let i: u32 = 0; i < count; i++) {
    const slot = pageAt(pool, digests, i);
    if (slot == NONE) continue;
    pool.expect(slot, inMs, newer);
    newer = slot;
  }
}

/**
 * Looks up pages. With `isUse`, each page counts as used, in order, in a call of that tenant. Output per key: `offsets`
 * and `sizes` (f64; -1: miss), `slots` (i32; -1: miss).
 */
export function poolLookupBatch(
  pool: Pool,
  digests: usize,
  count: u32,
  isUse: bool,
  about: u32,
  tenant: u32,
  offsets: usize,
  sizes: usize,
  slots: usize,
): void {
  if (isUse) pool.tenants.begin(tenant, count, about, false);
  if (count > 1) warm(pool, digests, count);
  for (let i: u32 = 0; i < count; i++) {
    store<u32>(slots + (<usize>i << 2), pageAt(pool, digests, i));
  }
  for (let i: u32 = 0; i < count; i++) {
    const slot = load<u32>(slots + (<usize>i << 2));
    if (slot == NONE) {
      store<f64>(offsets + (<usize>i << 3), -1);
      store<f64>(sizes + (<usize>i << 3), -1);
      continue;
    }
    if (isUse) pool.use(slot);
    store<f64>(offsets + (<usize>i << 3), byteOffset(pool, slot));
    store<f64>(sizes + (<usize>i << 3), <f64>slotBytes(pool.slots.at(slot)));
  }
  if (isUse) pool.tenants.end();
}

/** Writes one byte per key: 1 if the page exists. Does not count as a use. */
export function poolHasBatch(pool: Pool, digests: usize, count: u32, out: usize): void {
  if (count > 1) warm(pool, digests, count);
  for (let i: u32 = 0; i < count; i++) {
    store<u8>(out + i, pageAt(pool, digests, i) == NONE ? 0 : 1);
  }
}

/** Counts a use of each page in order, in a call of that tenant; returns the number of existing pages. */
export function poolTouchBatch(pool: Pool, digests: usize, count: u32, about: u32, tenant: u32): u32 {
  let there: u32 = 0;
  pool.tenants.begin(tenant, count, about, false);
  if (count > 1) warm(pool, digests, count);
  for (let i: u32 = 0; i < count; i++) {
    const slot = pageAt(pool, digests, i);
    if (slot == NONE) continue;
    pool.use(slot);
    there++;
  }
  pool.tenants.end();
  return there;
}

/** Makes each page in turn the newest one, without counting a use. */
export function poolRenewBatch(pool: Pool, digests: usize, count: u32): void {
  for (let i: u32 = 0; i < count; i++) {
    const slot = pageAt(pool, digests, i);
    if (slot != NONE) pool.renew(slot);
  }
}

/** Removes pages. Writes to `slots` (i32) the slot that each key had, or -1. */
export function poolRemoveBatch(pool: Pool, digests: usize, count: u32, nowMs: f64, slots: usize): void {
  pool.begin(nowMs);
  for (let i: u32 = 0; i < count; i++) {
    const slot = pageAt(pool, digests, i);
    store<u32>(slots + (<usize>i << 2), slot);
    if (slot != NONE) pool.remove(slot);
  }
}

/** Pins pages. Writes one byte per key: 1 if the page exists and now has one more pin. */
export function poolPinBatch(pool: Pool, digests: usize, count: u32, out: usize): void {
  for (let i: u32 = 0; i < count; i++) {
    const slot = pageAt(pool, digests, i);
    store<u8>(out + i, slot == NONE ? 0 : 1);
    if (slot != NONE) pool.pin(slot);
  }
}

/** Unpins pages. Writes one byte per key: 1 if the page, removed or not, had a pin and now has one less. */
export function poolUnpinBatch(pool: Pool, digests: usize, count: u32, out: usize): void {
  for (let i: u32 = 0; i < count; i++) {
    const digest = digests + (<usize>i << 4);
    store<u8>(out + i, pool.unpin(load<u64>(digest), load<u64>(digest, 8)) ? 1 : 0);
  }
}

export function poolClear(pool: Pool, nowMs: f64): void {
  pool.begin(nowMs);
  pool.clear();
}

/** Writes the slots of all pages (u32 each), next victim first, pinned ones last. */
export function poolOrder(pool: Pool, out: usize): void {
  pool.writeOrder(out);
}

export function poolCount(pool: Pool): u32 {
  return pool.entries;
}

/** Writes STATS_COUNT f64; for their order see `src/core/pool/pool-allocator.ts`. */
export function poolStats(pool: Pool, out: usize): void {
  const unit = pool.alignmentBytes;
  const allocator = pool.allocator;
  store<f64>(out, <f64>pool.entries);
  store<f64>(out, <f64>pool.usedBytes, 8);
  store<f64>(out, <f64>(allocator.freeUnits * unit), 16);
  store<f64>(out, <f64>(pool.quarantine.units * unit), 24);
  store<f64>(out, <f64>(pool.heldUnits * unit), 32);
  store<f64>(out, <f64>(allocator.totalUnits * unit), 40);
  store<f64>(out, <f64>pool.evictions, 48);
  store<f64>(out, <f64>pool.quarantine.earlyReuses, 56);
  store<f64>(out, <f64>pool.pinned, 64);
  store<f64>(out, <f64>(allocator.largestFreeUnits() * unit), 72);
}

/** Writes TENANT_STATS_COUNT f64: pages, bytes of their ranges, minimum and maximum in bytes, evictions. */
export function poolTenantStats(pool: Pool, number: u32, out: usize): void {
  const unit = pool.alignmentBytes;
  const tenant = pool.tenants.at(number);
  const maxUnits = min(tenant.maxUnits, pool.allocator.totalUnits);
  store<f64>(out, <f64>tenant.entries);
  store<f64>(out, <f64>(tenant.usedUnits * unit), 8);
  store<f64>(out, <f64>(tenant.minUnits * unit), 16);
  store<f64>(out, <f64>(maxUnits * unit), 24);
  store<f64>(out, <f64>tenant.evictions, 32);
}

/** Returns 0, or the number of the first broken invariant (`verify.ts`). */
export function poolVerify(pool: Pool): i32 {
  return verifyPool(pool);
}

export function poolFree(pool: Pool): void {
  pool.dispose();
}

export function mapNew(): PageMap {
  return new PageMap();
}

/** Sets the rank of a node, 0 to 255; of several nodes that have a page, the lowest is found, and 255 never. */
export function mapSetRank(map: PageMap, node: u32, rank: u32): void {
  map.setRank(node, rank);
}

/** Takes marks of a node, see `page-map.ts`; returns the number of those that were news. */
export function mapNoteBatch(map: PageMap, marks: usize, count: u32, node: u32): u32 {
  let news: u32 = 0;
  for (const end = marks + (<usize>count << 3); marks < end; marks += 8) {
    if (map.note(load<u64>(marks), node)) news++;
  }
  return news;
}

/** Forgets what a node has in one of the 256 parts; returns the number of pages. */
export function mapRemoveNode(map: PageMap, node: u32, part: u32): u32 {
  return map.removeNode(node, part);
}

/** Writes a u16 for each position: the result of `nodeOf`. */
export function mapNodesBatch(map: PageMap, positions: usize, count: u32, out: usize): void {
  warmMap(map, positions, count);
  for (const end = positions + (<usize>count << 3); positions < end; positions += 8) {
    store<u16>(out, <u16>map.nodeOf(load<u64>(positions)));
    out += 2;
  }
}

export function mapEntries(map: PageMap): u32 {
  return map.count;
}

/** Bytes that the entries take. */
export function mapBytes(map: PageMap): f64 {
  return <f64>map.bytes;
}

export function mapIsConsistent(map: PageMap): bool {
  return map.isConsistent();
}

export function mapFree(map: PageMap): void {
  map.dispose();
}

/** Slot of the page with digest `i`, or NONE. */
// @ts-ignore: decorator
@inline
function pageAt(pool: Pool, digests: usize, i: u32): u32 {
  const digest = digests + (<usize>i << 4);
  return pool.find(load<u64>(digest), load<u64>(digest, 8));
}

// @ts-ignore: decorator
@inline
function byteOffset(pool: Pool, slot: u32): f64 {
  return <f64>(slotOffset(pool.slots.at(slot)) * pool.alignmentBytes);
}

/** Byte offset of the page if this very publish wrote it and it still exists; else -1. */
function offsetIfStamped(pool: Pool, slot: u32, stamp: u32): f64 {
  const at = pool.slots.at(slot);
  return slotStatus(at) == LIVE && slotStamp(at) == stamp ? byteOffset(pool, slot) : -1;
}
