/**
 * Which nodes probably have a page, for the pages of a whole cluster in a few bytes each. A page is known by 36 bits of
 * its position (see `ring.ts`): the upper 8 choose one of 256 parts, the next 28 stand in the entry. So of N entries, a
 * key that is not there finds one with a probability of N / 2^36.
 *
 * A part is a table with open addressing and linear probing. The home of an entry is its 28 bits scaled to the size of
 * the part, so that a part can grow by a quarter instead of doubling. It is at most four fifths full. A part grows
 * alone, so the longest stall is one part's. Removal shifts the followers back: no tombstones.
 *
 *     part (16 bytes):   [entries: usize][size: u32][count: u32][unused: u32]
 *     entry (5 bytes):   28 bits of the position, 1 bit: sure, 11 bits of the node's number + 1; 0: empty
 *
 * A mark says whether a node has a page: the page's position, of which the lowest bits are MARK_THERE and MARK_SURE. A
 * node is sure of a page if it can say by itself where the page is, without asking anybody.
 *
 * A page of several nodes has an entry for each. An entry is there once, however often it is added.
 */

const PARTS: u32 = 256;
const PART_BYTES: usize = 16;
const ENTRY_BYTES: usize = 5;
/** An entry is read as 8 bytes, of which the last 3 belong to its follower. */
const SPARE_BYTES: usize = 8 - ENTRY_BYTES;
const ENTRY_MASK: u64 = (1 << 40) - 1;
const NODE_BITS: u64 = 12;
const SURE: u64 = 1 << (NODE_BITS - 1);
const NODE_MASK: u64 = SURE - 1;
const KEY_MASK: u64 = (1 << 28) - 1;
const FIRST_SIZE: u32 = 8;

/** Number of nodes that a map can tell apart. */
export const PAGE_MAP_NODES: u32 = 2047;
const UNRANKED: u8 = 255;
const MARK_THERE: u64 = 1;
const MARK_SURE: u64 = 2;
/** Added to the number of a node that is sure of the page. */
const NODE_SURE: u32 = 1 << 15;

@unmanaged
export class PageMap {
  private parts: usize;
  /** For each node a byte, from 0: the lower, the sooner it is chosen; UNRANKED: never. */
  private ranks: usize;
  /** Number of entries. */
  count: u32;
  /** Bytes of all parts. */
  bytes: usize;
  /** Takes what `warm` has read, which the compiler would otherwise leave out. */
  warmed: u32;

  constructor() {
    this.parts = heap.alloc(<usize>PARTS * PART_BYTES);
    memory.fill(this.parts, 0, <usize>PARTS * PART_BYTES);
    this.ranks = heap.alloc(PAGE_MAP_NODES);
    memory.fill(this.ranks, UNRANKED, PAGE_MAP_NODES);
    this.count = 0;
    this.bytes = 0;
    this.warmed = 0;
  }

  setRank(node: u32, rank: u32): void {
    store<u8>(this.ranks + node, <u8>rank);
  }

  /** Takes a mark of a node; returns whether it was news. */
  note(mark: u64, node: u32): bool {
    return (mark & MARK_THERE) == 0 ? this.remove(mark, node) : this.add(mark, node);
  }

  private add(mark: u64, node: u32): bool {
    const part = this.partOf(mark);
    const wanted = entryOf(mark, node) | ((mark & MARK_SURE) == 0 ? 0 : SURE);
    let size = load<u32>(part, 4);
    if (size != 0) {
      const entries = load<usize>(part);
      const at = find(entries, size, wanted);
      if (at < size) {
        if (read(entries, at) == wanted) return false;
        write(entries, at, wanted);
        return true;
      }
    }
    const count = load<u32>(part, 8) + 1;
    // Four fifths of the size, without leaving 32 bits.
    if (<u64>count * 5 > <u64>size * 4) {
      this.grow(part);
      size = load<u32>(part, 4);
    }
    place(load<usize>(part), size, wanted);
    store<u32>(part, count, 8);
    this.count++;
    return true;
  }

  private remove(position: u64, node: u32): bool {
    const part = this.partOf(position);
    const size = load<u32>(part, 4);
    if (size == 0) return false;
    const entries = load<usize>(part);
    const at = find(entries, size, entryOf(position, node));
    if (at >= size) return false;
    close(entries, size, at);
    store<u32>(part, load<u32>(part, 8) - 1, 8);
    this.count--;
    return true;
  }

  /** Removes all entries of a node in one of the parts; returns how many there were. */
  removeNode(node: u32, number: u32): u32 {
    const part = this.parts + <usize>number * PART_BYTES;
    const size = load<u32>(part, 4);
    const entries = load<usize>(part);
    let removed: u32 = 0;
    for (let at: u32 = 0; at < size; ) {
      const entry = read(entries, at);
      if ((entry & NODE_MASK) == <u64>node + 1) {
        close(entries, size, at);
        removed++;
      } else {
        at++;
      }
    }
    store<u32>(part, load<u32>(part, 8) - removed, 8);
    this.count -= removed;
    return removed;
  }

  /**
   * Number of the node of the lowest rank that has an entry for a position, of several one that is sure, which adds
   * NODE_SURE. PAGE_MAP_NODES: none.
   */
  @inline
  nodeOf(position: u64): u32 {
    const part = this.partOf(position);
    const size = load<u32>(part, 4);
    if (size == 0) return PAGE_MAP_NODES;
    const entries = load<usize>(part);
    const key = keyOf(position);
    let best = PAGE_MAP_NODES;
    let bestCost: u32 = u32.MAX_VALUE;
    let at = homeOf(key, size);
    while (true) {
      const entry = read(entries, at);
      if (entry == 0) return best;
      if (entry >> NODE_BITS == key) {
        const node = <u32>(entry & NODE_MASK) - 1;
        const rank = load<u8>(this.ranks + node);
        const isSure = (entry & SURE) != 0;
        const cost: u32 = 2 * <u32>rank + (isSure ? 0 : 1);
        if (rank != UNRANKED && cost < bestCost) {
          best = isSure ? node + NODE_SURE : node;
          bestCost = cost;
        }
      }
      if (++at == size) at = 0;
    }
  }

  /**
   * Reads the place where the search for a position begins. Such reads for many positions overlap, and a search soon
   * after finds its line in the cache; otherwise each search would wait for memory.
   */
  @inline
  warm(position: u64): u32 {
    const part = this.partOf(position);
    const size = load<u32>(part, 4);
    if (size == 0) return 0;
    return load<u32>(load<usize>(part) + <usize>homeOf(keyOf(position), size) * ENTRY_BYTES);
  }

  /** Whether the counts agree with the entries, and each entry is found from its home. */
  isConsistent(): bool {
    let total: u32 = 0;
    let bytes: usize = 0;
    for (let number: u32 = 0; number < PARTS; number++) {
      const part = this.parts + <usize>number * PART_BYTES;
      const size = load<u32>(part, 4);
      const entries = load<usize>(part);
      let count: u32 = 0;
      for (let at: u32 = 0; at < size; at++) {
        const entry = read(entries, at);
        if (entry == 0) continue;
        if (find(entries, size, entry) != at) return false;
        count++;
      }
      if (count != load<u32>(part, 8)) return false;
      total += count;
      if (size != 0) bytes += bytesOf(size);
    }
    return total == this.count && bytes == this.bytes;
  }

  dispose(): void {
    for (let number: u32 = 0; number < PARTS; number++) {
      const entries = load<usize>(this.parts + <usize>number * PART_BYTES);
      if (entries != 0) heap.free(entries);
    }
    heap.free(this.parts);
    heap.free(this.ranks);
    heap.free(changetype<usize>(this));
  }

  @inline
  private partOf(position: u64): usize {
    return this.parts + <usize>(position >> 56) * PART_BYTES;
  }

  private grow(part: usize): void {
    const old = load<usize>(part);
    const oldSize = load<u32>(part, 4);
    const size = oldSize == 0 ? FIRST_SIZE : oldSize + (oldSize >> 2);
    const entries = heap.alloc(bytesOf(size));
    memory.fill(entries, 0, bytesOf(size));
    for (let at: u32 = 0; at < oldSize; at++) {
      const entry = read(old, at);
      if (entry != 0) place(entries, size, entry);
    }
    if (old != 0) {
      heap.free(old);
      this.bytes -= bytesOf(oldSize);
    }
    this.bytes += bytesOf(size);
    store<usize>(part, entries);
    store<u32>(part, size, 4);
  }
}

// @ts-ignore: decorator
@inline
function bytesOf(size: u32): usize {
  return <usize>size * ENTRY_BYTES + SPARE_BYTES;
}

// @ts-ignore: decorator
@inline
function keyOf(position: u64): u64 {
  return (position >> 28) & KEY_MASK;
}

// @ts-ignore: decorator
@inline
function entryOf(position: u64, node: u32): u64 {
  return (keyOf(position) << NODE_BITS) | (<u64>node + 1);
}

// @ts-ignore: decorator
@inline
function homeOf(key: u64, size: u32): u32 {
  return <u32>((key * <u64>size) >> 28);
}

// @ts-ignore: decorator
@inline
function read(entries: usize, at: u32): u64 {
  return load<u64>(entries + <usize>at * ENTRY_BYTES) & ENTRY_MASK;
}

// @ts-ignore: decorator
@inline
function write(entries: usize, at: u32, entry: u64): void {
  const address = entries + <usize>at * ENTRY_BYTES;
  store<u32>(address, <u32>entry);
  store<u8>(address, <u8>(entry >> 32), 4);
}

/** Place of an entry; `size`: it is not there. */
function find(entries: usize, size: u32, wanted: u64): u32 {
  let at = homeOf(wanted >> NODE_BITS, size);
  while (true) {
    const entry = read(entries, at);
    if (entry == 0) return size;
    if (((entry ^ wanted) & ~SURE) == 0) return at;
    if (++at == size) at = 0;
  }
}

/** Writes an entry that is not there into the first empty place from its home on. */
function place(entries: usize, size: u32, entry: u64): void {
  let at = homeOf(entry >> NODE_BITS, size);
  while (read(entries, at) != 0) if (++at == size) at = 0;
  write(entries, at, entry);
}

/** Removes the entry at a place, and moves those behind it back that are nearer to their homes then. */
function close(entries: usize, size: u32, hole: u32): void {
  let next = hole;
  while (true) {
    if (++next == size) next = 0;
    const entry = read(entries, next);
    if (entry == 0) break;
    const home = homeOf(entry >> NODE_BITS, size);
    // Whether the home lies behind the hole, up to the entry, going round the end.
    const isBehind = hole < next ? home > hole && home <= next : home > hole || home <= next;
    if (isBehind) continue;
    write(entries, hole, entry);
    hole = next;
  }
  write(entries, hole, 0);
}
