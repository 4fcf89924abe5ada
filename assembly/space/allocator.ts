import { NONE, Records } from '../records';

/**
 * TLSF-style allocator over an address range it never touches: all metadata lies in block records.
 * Sizes and offsets are in units (the alignment). The range is cut into segments; the blocks of a
 * segment are a doubly linked list in address order and cover it without gaps; free neighbours are
 * always merged. Invariant: free + used + waiting units = all units.
 *
 * Free blocks stand in bins by size: 64 equal steps for every power of two. A request takes the
 * tightest of the first few blocks of its own bin that are large enough, else the first block of the
 * next bin that is not empty (everything there fits), and gives the rest back. O(1).
 *
 *     block (48 bytes)
 *      0 offset   u64 units      8 size    u64 units
 *     16 lower    u32           20 upper   u32        neighbours in the segment, or NONE
 *     24 previous u32           28 next    u32        in the bin, or in the quarantine
 *     32 state    u32           36 slot    u32        FREE, USED or WAITING; the page's slot
 *     40 releaseMs f64                                when the quarantine ends
 */

const BLOCK_BYTES: u32 = 48;
const STEP_BITS: u32 = 6;
const STEPS: u32 = 1 << STEP_BITS;
/** Powers of two: sizes below 2^(LEVELS + STEP_BITS - 1) units. */
const LEVELS: u32 = 48;
/** Blocks of the request's own bin that are tried. */
const OWN_BIN_TRIES: i32 = 8;

export const FREE: u32 = 0;
export const USED: u32 = 1;
/** Withheld: in quarantine, or the page was removed while pinned. */
export const WAITING: u32 = 2;

// @ts-ignore: decorator
@inline
export function blockOffset(block: usize): u64 {
  return load<u64>(block);
}
// @ts-ignore: decorator
@inline
export function blockSize(block: usize): u64 {
  return load<u64>(block, 8);
}
// @ts-ignore: decorator
@inline
export function blockLower(block: usize): u32 {
  return load<u32>(block, 16);
}
// @ts-ignore: decorator
@inline
export function blockUpper(block: usize): u32 {
  return load<u32>(block, 20);
}
// @ts-ignore: decorator
@inline
export function blockNext(block: usize): u32 {
  return load<u32>(block, 28);
}
// @ts-ignore: decorator
@inline
export function setBlockNext(block: usize, next: u32): void {
  store<u32>(block, next, 28);
}
// @ts-ignore: decorator
@inline
export function blockState(block: usize): u32 {
  return load<u32>(block, 32);
}
// @ts-ignore: decorator
@inline
export function setBlockState(block: usize, state: u32): void {
  store<u32>(block, state, 32);
}
// @ts-ignore: decorator
@inline
export function blockSlot(block: usize): u32 {
  return load<u32>(block, 36);
}
// @ts-ignore: decorator
@inline
export function setBlockSlot(block: usize, slot: u32): void {
  store<u32>(block, slot, 36);
}
// @ts-ignore: decorator
@inline
export function blockReleaseMs(block: usize): f64 {
  return load<f64>(block, 40);
}
// @ts-ignore: decorator
@inline
export function setBlockReleaseMs(block: usize, releaseMs: f64): void {
  store<f64>(block, releaseMs, 40);
}

/** Bin for blocks of `units` units. */
export function binOf(units: u64): u32 {
  if (units < <u64>STEPS) return <u32>units;
  const shift = 63 - STEP_BITS - <u32>clz<u64>(units);
  return ((shift + 1) << STEP_BITS) + (<u32>(units >> shift) & (STEPS - 1));
}

@unmanaged
export class Allocator {
  blocks: Records;
  /** One bit per level that has a free block. */
  private levelBits: u64;
  /** One u64 per level, with one bit per bin that has a free block. */
  private stepBits: usize;
  /** Head block of each bin. */
  private heads: usize;
  freeUnits: u64;
  segmentUnits: u64;
  totalUnits: u64;
  /** Blocks 0 to segments - 1 are always the first blocks of the segments. */
  segments: u32;
  /**
   * Last block of the last segment that `allocateAt` cut from (initially of the first segment); each segment above is
   * one free block. NONE after the first `allocate` or `free`.
   */
  private restoreTail: u32;

  /** Segment i starts at i * segmentUnits; the last one may be shorter. */
  constructor(totalUnits: u64, segmentUnits: u64) {
    this.blocks = new Records(BLOCK_BYTES);
    this.levelBits = 0;
    this.stepBits = heap.alloc(LEVELS * 8);
    memory.fill(this.stepBits, 0, LEVELS * 8);
    this.heads = heap.alloc(LEVELS * STEPS * 4);
    memory.fill(this.heads, 0xff, LEVELS * STEPS * 4);
    this.freeUnits = totalUnits;
    this.segmentUnits = segmentUnits;
    this.totalUnits = totalUnits;
    this.segments = <u32>((totalUnits + segmentUnits - 1) / segmentUnits);
    this.restoreTail = 0;
    for (let i: u32 = 0; i < this.segments; i++) this.blocks.add();
    // The bins are filled downwards to the first segment, because they are last in, first out.
    for (let i = this.segments; i > 0; i--) {
      const offset = <u64>(i - 1) * segmentUnits;
      const size = min<u64>(segmentUnits, totalUnits - offset);
      this.describe(i - 1, offset, size);
      this.addToBin(i - 1, this.at(i - 1));
    }
  }

  @inline
  at(block: u32): usize {
    return this.blocks.at(block);
  }

  /** Returns a used block of exactly `units` units (at least 1), cut off the low end of a free block; or NONE. */
  allocate(units: u64): u32 {
    const block = this.findFree(units);
    if (block == NONE) return NONE;
    this.take(block, units);
    this.restoreTail = NONE;
    return block;
  }

  /** Whether there has been neither an `allocate` nor a `free` yet. */
  @inline
  get canRestore(): bool {
    return this.restoreTail != NONE;
  }

  /**
   * Returns a used block of exactly that range. NONE: the range is not free, not in one segment, or below a range taken
   * before. Only while `canRestore`: all free space above the last range taken is then the last block of its segment.
   * O(1).
   */
  allocateAt(offset: u64, units: u64): u32 {
    const end = offset + units;
    if (end > this.totalUnits) return NONE;
    const segment = <u32>(offset / this.segmentUnits);
    if (<u32>((end - 1) / this.segmentUnits) != segment) return NONE;
    let block = this.restoreTail;
    if (segment > <u32>(blockOffset(this.at(block)) / this.segmentUnits)) block = segment;
    const at = this.at(block);
    if (blockState(at) != FREE || blockOffset(at) > offset) return NONE;
    if (blockOffset(at) < offset) block = this.splitFree(block, offset - blockOffset(at));
    this.take(block, units);
    const rest = blockUpper(this.at(block));
    this.restoreTail = rest == NONE ? block : rest;
    return block;
  }

  /** Frees a used or waiting block and merges it with its free neighbours. */
  free(block: u32): void {
    this.restoreTail = NONE;
    let at = this.at(block);
    this.freeUnits += blockSize(at);
    setBlockState(at, FREE);
    const upper = blockUpper(at);
    if (upper != NONE && blockState(this.at(upper)) == FREE) {
      this.removeFromBin(upper, this.at(upper));
      this.absorbUpper(block, at, upper);
    }
    const lower = blockLower(at);
    if (lower != NONE && blockState(this.at(lower)) == FREE) {
      this.removeFromBin(lower, this.at(lower));
      this.absorbUpper(lower, this.at(lower), block);
      block = lower;
      at = this.at(lower);
    }
    this.addToBin(block, at);
  }

  /** Size of the largest free block, found by searching the largest bin. */
  largestFreeUnits(): u64 {
    if (this.levelBits == 0) return 0;
    const level = 63 - <u32>clz<u64>(this.levelBits);
    const step = 63 - <u32>clz<u64>(load<u64>(this.stepBits + (<usize>level << 3)));
    let block = this.head((level << STEP_BITS) + step);
    let largest: u64 = 0;
    while (block != NONE) {
      largest = max<u64>(largest, blockSize(this.at(block)));
      block = blockNext(this.at(block));
    }
    return largest;
  }

  @inline
  head(bin: u32): u32 {
    return load<u32>(this.heads + (<usize>bin << 2));
  }

  /** Whether the bit maps mark the bin as not empty. */
  isBinMarked(bin: u32): bool {
    const level = bin >> STEP_BITS;
    const bits = load<u64>(this.stepBits + (<usize>level << 3));
    const isLevelMarked = ((this.levelBits >> level) & 1) != 0;
    return isLevelMarked && ((bits >> (bin & (STEPS - 1))) & 1) != 0;
  }

  @inline
  get bins(): u32 {
    return LEVELS * STEPS;
  }

  dispose(): void {
    this.blocks.dispose();
    heap.free(this.stepBits);
    heap.free(this.heads);
    heap.free(changetype<usize>(this));
  }

  private findFree(units: u64): u32 {
    const own = binOf(units);
    let best: u32 = NONE;
    let bestSize: u64 = u64.MAX_VALUE;
    let block = this.head(own);
    for (let tries = OWN_BIN_TRIES; block != NONE && tries > 0; tries--) {
      const at = this.at(block);
      const size = blockSize(at);
      if (size >= units && size < bestSize) {
        best = block;
        bestSize = size;
        if (size == units) break;
      }
      block = blockNext(at);
    }
    if (best != NONE) return best;
    return this.firstAbove(own);
  }

  private firstAbove(bin: u32): u32 {
    let level = bin >> STEP_BITS;
    const step = bin & (STEPS - 1);
    let bits = step == STEPS - 1 ? 0 : load<u64>(this.stepBits + (<usize>level << 3)) & (~(<u64>0) << (step + 1));
    if (bits == 0) {
      const levels = this.levelBits & (~(<u64>0) << (level + 1));
      if (levels == 0) return NONE;
      level = <u32>ctz<u64>(levels);
      bits = load<u64>(this.stepBits + (<usize>level << 3));
    }
    return this.head((level << STEP_BITS) + <u32>ctz<u64>(bits));
  }

  private describe(block: u32, offset: u64, size: u64): void {
    const at = this.at(block);
    store<u64>(at, offset);
    store<u64>(at, size, 8);
    store<u32>(at, NONE, 16);
    store<u32>(at, NONE, 20);
    store<u32>(at, FREE, 32);
    store<u32>(at, NONE, 36);
  }

  /** Makes the low end of a free block used, `units` long, and frees the rest. */
  private take(block: u32, units: u64): void {
    const at = this.at(block);
    this.removeFromBin(block, at);
    setBlockState(at, USED);
    this.freeUnits -= units;
    const rest = blockSize(at) - units;
    if (rest > 0) this.split(block, at, units, rest);
  }

  /** Cuts a free block into two free ones, which stay unmerged for a moment; returns the upper one. */
  private splitFree(block: u32, units: u64): u32 {
    const at = this.at(block);
    this.removeFromBin(block, at);
    this.split(block, at, units, blockSize(at) - units);
    this.addToBin(block, at);
    return blockUpper(at);
  }

  private split(block: u32, at: usize, units: u64, rest: u64): void {
    const upper = blockUpper(at);
    const added = this.blocks.add();
    this.describe(added, blockOffset(at) + units, rest);
    const addedAt = this.at(added);
    store<u64>(at, units, 8);
    store<u32>(at, added, 20);
    store<u32>(addedAt, block, 16);
    store<u32>(addedAt, upper, 20);
    if (upper != NONE) store<u32>(this.at(upper), added, 16);
    this.addToBin(added, addedAt);
  }

  private absorbUpper(block: u32, at: usize, upper: u32): void {
    const upperAt = this.at(upper);
    const above = blockUpper(upperAt);
    store<u64>(at, blockSize(at) + blockSize(upperAt), 8);
    store<u32>(at, above, 20);
    if (above != NONE) store<u32>(this.at(above), block, 16);
    this.blocks.remove(upper);
  }

  private addToBin(block: u32, at: usize): void {
    const bin = binOf(blockSize(at));
    const head = this.head(bin);
    store<u32>(at, NONE, 24);
    store<u32>(at, head, 28);
    store<u32>(this.heads + (<usize>bin << 2), block);
    if (head != NONE) {
      store<u32>(this.at(head), block, 24);
      return;
    }
    const level = bin >> STEP_BITS;
    const bits = this.stepBits + (<usize>level << 3);
    store<u64>(bits, load<u64>(bits) | ((<u64>1) << (bin & (STEPS - 1))));
    this.levelBits |= (<u64>1) << level;
  }

  private removeFromBin(block: u32, at: usize): void {
    const previous = load<u32>(at, 24);
    const next = load<u32>(at, 28);
    if (next != NONE) store<u32>(this.at(next), previous, 24);
    if (previous != NONE) {
      store<u32>(this.at(previous), next, 28);
      return;
    }
    const bin = binOf(blockSize(at));
    store<u32>(this.heads + (<usize>bin << 2), next);
    if (next != NONE) return;
    const level = bin >> STEP_BITS;
    const bits = this.stepBits + (<usize>level << 3);
    const left = load<u64>(bits) & ~((<u64>1) << (bin & (STEPS - 1)));
    store<u64>(bits, left);
    if (left == 0) this.levelBits &= ~((<u64>1) << level);
  }
}
