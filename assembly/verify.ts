import { Pool } from './pool';
import { NONE } from './records';
import {
  HELD,
  HIGH,
  LIVE,
  LOW,
  NORMAL,
  slotBlock,
  slotBytes,
  slotHigh,
  slotLow,
  slotOffset,
  slotPins,
  slotPriority,
  slotStatus,
  slotTenant,
} from './slot';
import { Allocator, binOf, blockLower, blockNext, blockOffset, blockSize, blockSlot, blockState, blockUpper, FREE, USED } from './space/allocator';

/** Results of {@link verifyPool}: the first broken invariant; `src/core` has the texts. */
export const VERIFY_OK: i32 = 0;
export const VERIFY_COVERAGE: i32 = 1;
export const VERIFY_UNMERGED: i32 = 2;
export const VERIFY_SPACE_SUMS: i32 = 3;
export const VERIFY_BINS: i32 = 4;
export const VERIFY_PAGES: i32 = 5;
export const VERIFY_PAGE_SUMS: i32 = 6;
export const VERIFY_INDEX: i32 = 7;
export const VERIFY_ORDER: i32 = 8;
export const VERIFY_QUARANTINE: i32 = 9;
export const VERIFY_TENANTS: i32 = 10;
export const VERIFY_MINIMUM: i32 = 11;

/** Checks every invariant of the pool; takes time in proportion to its blocks and slots. */
export function verifyPool(pool: Pool): i32 {
  const space = verifySpace(pool);
  if (space != VERIFY_OK) return space;
  if (!areBinsRight(pool.allocator)) return VERIFY_BINS;
  const pages = verifyPages(pool);
  if (pages != VERIFY_OK) return pages;
  return verifyQuarantine(pool);
}

/** Checks that blocks cover each segment without gap or overlap, free neighbours are merged, and sums are exact. */
function verifySpace(pool: Pool): i32 {
  const allocator = pool.allocator;
  let freeUnits: u64 = 0;
  let waitingUnits: u64 = 0;
  let blocks: u32 = 0;
  for (let segment: u32 = 0; segment < allocator.segments; segment++) {
    let offset = <u64>segment * allocator.segmentUnits;
    const end = min<u64>(offset + allocator.segmentUnits, allocator.totalUnits);
    let lower: u32 = NONE;
    let isLowerFree = false;
    for (let block = segment; block != NONE; block = blockUpper(allocator.at(block))) {
      const at = allocator.at(block);
      if (blockOffset(at) != offset || blockSize(at) == 0 || blockLower(at) != lower) return VERIFY_COVERAGE;
      const isFree = blockState(at) == FREE;
      if (isFree && isLowerFree) return VERIFY_UNMERGED;
      if (isFree) freeUnits += blockSize(at);
      else if (blockState(at) != USED) waitingUnits += blockSize(at);
      offset += blockSize(at);
      lower = block;
      isLowerFree = isFree;
      blocks++;
    }
    if (offset != end) return VERIFY_COVERAGE;
  }
  if (blocks != allocator.blocks.count || freeUnits != allocator.freeUnits) return VERIFY_SPACE_SUMS;
  return waitingUnits == pool.quarantine.units + pool.heldUnits ? VERIFY_OK : VERIFY_SPACE_SUMS;
}

/**
 * Checks that every free block, and no other, is in the bin of its size, and that the bit maps mark the non-empty bins.
 */
function areBinsRight(allocator: Allocator): bool {
  let units: u64 = 0;
  for (let bin: u32 = 0; bin < allocator.bins; bin++) {
    if (allocator.isBinMarked(bin) != (allocator.head(bin) != NONE)) return false;
    for (let block = allocator.head(bin); block != NONE; block = blockNext(allocator.at(block))) {
      const at = allocator.at(block);
      if (blockState(at) != FREE || binOf(blockSize(at)) != bin) return false;
      units += blockSize(at);
      if (units > allocator.freeUnits) return false;
    }
  }
  return units == allocator.freeUnits;
}

/**
 * Checks that every page has its own used block of the right size, is found by its digest, and is in the order unless
 * pinned.
 */
function verifyPages(pool: Pool): i32 {
  let usedBytes: u64 = 0;
  let usedUnits: u64 = 0;
  let live: u32 = 0;
  let held: u32 = 0;
  let pinned: u32 = 0;
  let heldUnits: u64 = 0;
  for (let slot: u32 = 0; slot < pool.slots.top; slot++) {
    const at = pool.slots.at(slot);
    const status = slotStatus(at);
    if (status != LIVE && status != HELD) continue;
    const block = pool.allocator.at(slotBlock(at));
    const units = max<u64>(1, (slotBytes(at) + pool.alignmentBytes - 1) / pool.alignmentBytes);
    if (blockSlot(block) != slot || blockOffset(block) != slotOffset(at) || blockSize(block) != units) return VERIFY_PAGES;
    if ((blockState(block) == USED) != (status == LIVE) || blockState(block) == FREE) return VERIFY_PAGES;
    if (pool.table.find(slotLow(at), slotHigh(at)) != slot) return VERIFY_INDEX;
    if (status == HELD) {
      if (slotPins(at) == 0) return VERIFY_PAGES;
      held++;
      heldUnits += units;
      continue;
    }
    live++;
    usedBytes += slotBytes(at);
    usedUnits += units;
    if (slotPins(at) > 0) pinned++;
  }
  const withheldUnits = pool.allocator.freeUnits + pool.quarantine.units + pool.heldUnits;
  if (usedUnits + withheldUnits != pool.allocator.totalUnits) return VERIFY_SPACE_SUMS;
  if (live != pool.entries || usedBytes != pool.usedBytes || pinned != pool.pinned) return VERIFY_PAGE_SUMS;
  if (heldUnits != pool.heldUnits || live + held + pool.tenants.ghosts != pool.slots.count) return VERIFY_PAGE_SUMS;
  if (pool.table.recount() != pool.slots.count) return VERIFY_INDEX;
  for (let i: u32 = 0; i < pool.tenants.count; i++) {
    const tenant = verifyTenant(pool, i);
    if (tenant != VERIFY_OK) return tenant;
  }
  return pool.tenants.pages == live - pinned ? VERIFY_OK : VERIFY_ORDER;
}

/**
 * Checks that a tenant's order holds exactly its unpinned pages, each by its priority, and that its sums are those of
 * its pages.
 */
function verifyTenant(pool: Pool, number: u32): i32 {
  let units: u64 = 0;
  let normalUnits: u64 = 0;
  let live: u32 = 0;
  let ordered: u32 = 0;
  let lows: u32 = 0;
  let highs: u32 = 0;
  for (let slot: u32 = 0; slot < pool.slots.top; slot++) {
    const at = pool.slots.at(slot);
    const status = slotStatus(at);
    if ((status != LIVE && status != HELD) || slotTenant(at) != number) continue;
    const unitsHere = max<u64>(1, (slotBytes(at) + pool.alignmentBytes - 1) / pool.alignmentBytes);
    units += unitsHere;
    if (status == HELD) continue;
    live++;
    if (slotPriority(at) == NORMAL) normalUnits += unitsHere;
    if (slotPins(at) > 0) continue;
    ordered++;
    if (slotPriority(at) == LOW) lows++;
    else if (slotPriority(at) == HIGH) highs++;
  }
  const tenant = pool.tenants.at(number);
  if (tenant.usedUnits != units || tenant.entries != live) return VERIFY_TENANTS;
  if (pool.tenants.count > 1 && tenant.takenUnits <= tenant.minUnits) return VERIFY_MINIMUM;
  return tenant.policy.isRight(ordered - lows - highs, lows, highs, normalUnits) ? VERIFY_OK : VERIFY_ORDER;
}

function verifyQuarantine(pool: Pool): i32 {
  let units: u64 = 0;
  for (let block = pool.quarantine.head; block != NONE; block = blockNext(pool.allocator.at(block))) {
    const at = pool.allocator.at(block);
    if (blockState(at) == FREE || blockState(at) == USED || blockSlot(at) != NONE) return VERIFY_QUARANTINE;
    units += blockSize(at);
    if (units > pool.quarantine.units) return VERIFY_QUARANTINE;
  }
  return units == pool.quarantine.units ? VERIFY_OK : VERIFY_QUARANTINE;
}
