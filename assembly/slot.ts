/**
 * A slot: one page of a pool, or the memory of one that was evicted.
 *
 *     slot (64 bytes, one cache line)
 *      0 digest     2 x u64   low word, high word
 *     16 bytes      u64       as asked for, not rounded
 *     24 block      u32       of the allocator
 *     28 previous   u32      32 next u32          in the list that the policy keeps it in, or NONE
 *     36 pins       u32
 *     40 frequency  u32      44 queue u32         the policy's own; LRU and S3-FIFO: [request that had it last: 30 bits][uses: 2 bits]
 *     48 stamp      u32       number of the publish or restore that wrote it
 *     52 status     u8        VACANT, LIVE, HELD or GHOST
 *     53 tenant     u8        number of the tenant whose page it is
 *     54 priority   u8        NORMAL, LOW or HIGH; a ghost is NORMAL
 *     55 expected   u8        of a normal page in the order: see `policy/awaited.ts`; else 0
 *     56 offset     u64 units
 */

export const SLOT_BYTES: u32 = 64;

export const VACANT: u32 = 0;
export const LIVE: u32 = 1;
/** Removed while pinned: no longer found; its range waits for the last unpin. */
export const HELD: u32 = 2;
/** Evicted, without a range: only the policy remembers it. */
export const GHOST: u32 = 3;

/** The priority of most pages: the policy orders them. */
export const NORMAL: u32 = 0;
/** Evicted before all others of its tenant. */
export const LOW: u32 = 1;
/** Evicted after all others of its tenant. */
export const HIGH: u32 = 2;

// @ts-ignore: decorator
@inline
export function slotLow(slot: usize): u64 {
  return load<u64>(slot);
}
// @ts-ignore: decorator
@inline
export function slotHigh(slot: usize): u64 {
  return load<u64>(slot, 8);
}
// @ts-ignore: decorator
@inline
export function slotBytes(slot: usize): u64 {
  return load<u64>(slot, 16);
}
// @ts-ignore: decorator
@inline
export function slotBlock(slot: usize): u32 {
  return load<u32>(slot, 24);
}
// @ts-ignore: decorator
@inline
export function slotNext(slot: usize): u32 {
  return load<u32>(slot, 32);
}
// @ts-ignore: decorator
@inline
export function slotPins(slot: usize): u32 {
  return load<u32>(slot, 36);
}
// @ts-ignore: decorator
@inline
export function setSlotPins(slot: usize, pins: u32): void {
  store<u32>(slot, pins, 36);
}
// @ts-ignore: decorator
@inline
export function slotFrequency(slot: usize): u32 {
  return load<u32>(slot, 40);
}
// @ts-ignore: decorator
@inline
export function setSlotFrequency(slot: usize, frequency: u32): void {
  store<u32>(slot, frequency, 40);
}
/** The number of uses, and the request that had the page last, share the field `frequency`. */
// @ts-ignore: decorator
@inline
export function slotUses(slot: usize): u32 {
  return load<u32>(slot, 40) & 3;
}
// @ts-ignore: decorator
@inline
export function slotRequest(slot: usize): u32 {
  return load<u32>(slot, 40) >> 2;
}
// @ts-ignore: decorator
@inline
export function setSlotUses(slot: usize, uses: u32, request: u32): void {
  store<u32>(slot, (request << 2) | uses, 40);
}
// @ts-ignore: decorator
@inline
export function slotQueue(slot: usize): u32 {
  return load<u32>(slot, 44);
}
// @ts-ignore: decorator
@inline
export function setSlotQueue(slot: usize, queue: u32): void {
  store<u32>(slot, queue, 44);
}
// @ts-ignore: decorator
@inline
export function slotStamp(slot: usize): u32 {
  return load<u32>(slot, 48);
}
// @ts-ignore: decorator
@inline
export function slotStatus(slot: usize): u32 {
  return load<u8>(slot, 52);
}
// @ts-ignore: decorator
@inline
export function setSlotStatus(slot: usize, status: u32): void {
  store<u8>(slot, status, 52);
}
// @ts-ignore: decorator
@inline
export function slotTenant(slot: usize): u32 {
  return load<u8>(slot, 53);
}
// @ts-ignore: decorator
@inline
export function setSlotTenant(slot: usize, tenant: u32): void {
  store<u8>(slot, tenant, 53);
}
// @ts-ignore: decorator
@inline
export function slotPriority(slot: usize): u32 {
  return load<u8>(slot, 54);
}
// @ts-ignore: decorator
@inline
export function setSlotPriority(slot: usize, priority: u32): void {
  store<u8>(slot, priority, 54);
}
// @ts-ignore: decorator
@inline
export function slotExpected(slot: usize): u32 {
  return load<u8>(slot, 55);
}
// @ts-ignore: decorator
@inline
export function setSlotExpected(slot: usize, expected: u32): void {
  store<u8>(slot, expected, 55);
}
// @ts-ignore: decorator
@inline
export function slotOffset(slot: usize): u64 {
  return load<u64>(slot, 56);
}

/** Writes everything that a publish knows except tenant and priority; the policy writes its own fields. */
// @ts-ignore: decorator
@inline
export function describeSlot(slot: usize, low: u64, high: u64, bytes: u64, block: u32, offset: u64, stamp: u32): void {
  store<u64>(slot, low);
  store<u64>(slot, high, 8);
  store<u64>(slot, bytes, 16);
  store<u32>(slot, block, 24);
  store<u32>(slot, 0, 36);
  store<u32>(slot, stamp, 48);
  store<u8>(slot, LIVE, 52);
  store<u8>(slot, 0, 55);
  store<u64>(slot, offset, 56);
}
