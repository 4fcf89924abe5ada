import { NONE, Records } from './records';

/**
 * Digest -> record index: open addressing with linear probing in 256 parts, each a power of two of
 * entries, at most three quarters full. A part grows alone, so the longest stall is one part's
 * rehash. Removal shifts the followers back: no tombstones, so churn does not degrade it.
 *
 *     part (16 bytes):   [entries: usize][mask: u32][count: u32][unused: u32]
 *     entry (8 bytes):   [index + 1: u32, 0 = empty][tag: u32]
 *
 * The part is the digest's high word's low byte; home entry and tag are the low word's low 32 bits.
 * The records hold the whole digest in their first 16 bytes: low word, high word.
 */

const PARTS: usize = 256;
const PART_BYTES: usize = 16;
const FIRST_ENTRIES: u32 = 8;

@unmanaged
export class Table {
  private parts: usize;
  private records: Records;

  constructor(records: Records) {
    this.records = records;
    this.parts = heap.alloc(PARTS * PART_BYTES);
    memory.fill(this.parts, 0, PARTS * PART_BYTES);
  }

  /** Index of the record with that digest, or NONE. */
  find(low: u64, high: u64): u32 {
    const part = this.part(high);
    const entries = load<usize>(part);
    if (entries == 0) return NONE;
    const mask = load<u32>(part, 4);
    const tag = <u32>low;
    let home = tag & mask;
    while (true) {
      const entry = load<u64>(entries + (<usize>home << 3));
      const index = <u32>entry;
      if (index == 0) return NONE;
      if (<u32>(entry >> 32) == tag) {
        const record = this.records.at(index - 1);
        if (load<u64>(record) == low && load<u64>(record, 8) == high) return index - 1;
      }
      home = (home + 1) & mask;
    }
  }

  /**
   * Reads the place where the search for a digest begins, and returns its content. Such reads for many digests overlap,
   * and a search soon after finds its line in the cache; otherwise each search would wait for memory.
   */
  @inline
  warm(low: u64, high: u64): u32 {
    const part = this.part(high);
    const entries = load<usize>(part);
    return entries == 0 ? 0 : load<u32>(entries + ((<usize>low & load<u32>(part, 4)) << 3));
  }

  /** Inserts a digest, which must not exist yet. */
  insert(low: u64, high: u64, index: u32): void {
    const part = this.part(high);
    const count = load<u32>(part, 8) + 1;
    const mask = load<u32>(part, 4);
    if (load<usize>(part) == 0 || count > ((mask + 1) >> 2) * 3) this.grow(part);
    store<u32>(part, count, 8);
    place(load<usize>(part), load<u32>(part, 4), (low << 32) | (<u64>index + 1));
  }

  /** Removes a digest, which must exist with that index. */
  remove(low: u64, high: u64, index: u32): void {
    const part = this.part(high);
    const entries = load<usize>(part);
    const mask = load<u32>(part, 4);
    let hole = <u32>low & mask;
    while (load<u32>(entries + (<usize>hole << 3)) != index + 1) hole = (hole + 1) & mask;
    store<u32>(part, load<u32>(part, 8) - 1, 8);
    let next = hole;
    while (true) {
      next = (next + 1) & mask;
      const entry = load<u64>(entries + (<usize>next << 3));
      if (<u32>entry == 0) break;
      const home = <u32>(entry >> 32) & mask;
      if (((next - home) & mask) < ((next - hole) & mask)) continue;
      store<u64>(entries + (<usize>hole << 3), entry);
      hole = next;
    }
    store<u64>(entries + (<usize>hole << 3), 0);
  }

  /** Number of entries, recounted; NONE if a part's own count is wrong. */
  recount(): u32 {
    let total: u32 = 0;
    for (let i: usize = 0; i < PARTS; i++) {
      const part = this.parts + i * PART_BYTES;
      const entries = load<usize>(part);
      if (entries == 0) continue;
      let inPart: u32 = 0;
      const mask = load<u32>(part, 4);
      for (let j: u32 = 0; j <= mask; j++) {
        if (load<u32>(entries + (<usize>j << 3)) != 0) inPart++;
      }
      if (inPart != load<u32>(part, 8)) return NONE;
      total += inPart;
    }
    return total;
  }

  dispose(): void {
    for (let i: usize = 0; i < PARTS; i++) {
      const entries = load<usize>(this.parts + i * PART_BYTES);
      if (entries != 0) heap.free(entries);
    }
    heap.free(this.parts);
    heap.free(changetype<usize>(this));
  }

  @inline
  private part(high: u64): usize {
    return this.parts + (<usize>high & (PARTS - 1)) * PART_BYTES;
  }

  private grow(part: usize): void {
    const old = load<usize>(part);
    const oldSize: u32 = old == 0 ? 0 : load<u32>(part, 4) + 1;
    const size: u32 = old == 0 ? FIRST_ENTRIES : oldSize * 2;
    const entries = heap.alloc(<usize>size << 3);
    memory.fill(entries, 0, <usize>size << 3);
    for (let i: u32 = 0; i < oldSize; i++) {
      const entry = load<u64>(old + (<usize>i << 3));
      if (<u32>entry != 0) place(entries, size - 1, entry);
    }
    if (old != 0) heap.free(old);
    store<usize>(part, entries);
    store<u32>(part, size - 1, 4);
  }
}

// @ts-ignore: decorator
@inline
function place(entries: usize, mask: u32, entry: u64): void {
  let at = <u32>(entry >> 32) & mask;
  while (load<u32>(entries + (<usize>at << 3)) != 0) at = (at + 1) & mask;
  store<u64>(entries + (<usize>at << 3), entry);
}
