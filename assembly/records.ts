/**
 * Records of one fixed size, addressed by a small index that is reused (last freed, first reused).
 * They live in chunks that never move, so growing copies nothing but the short list of chunks.
 *
 *     directory:  [chunk 0][chunk 1]...        one address each, of the first record
 *     chunk:      CHUNK_RECORDS records, aligned to a cache line; before them the address that was allocated
 *
 * The first four bytes of a free record hold the index of the next free one.
 */

/** Index that stands for no record. */
export const NONE: u32 = 0xffffffff;

const CHUNK_SHIFT: u32 = 8;
const CHUNK_RECORDS: u32 = 1 << CHUNK_SHIFT;
const CHUNK_MASK: u32 = CHUNK_RECORDS - 1;
const CACHE_LINE: usize = 64;

@unmanaged
export class Records {
  private directory: usize;
  private directoryCapacity: u32;
  private chunks: u32;
  private freeHead: u32;
  private recordBytes: u32;
  /** Number of indices ever handed out: all live indices are below it. */
  top: u32;
  /** Number of live records. */
  count: u32;

  constructor(recordBytes: u32) {
    this.directoryCapacity = 16;
    this.directory = heap.alloc(16 * sizeof<usize>());
    this.chunks = 0;
    this.freeHead = NONE;
    this.recordBytes = recordBytes;
    this.top = 0;
    this.count = 0;
  }

  @inline
  at(index: u32): usize {
    const chunk = load<usize>(this.directory + ((<usize>index >> CHUNK_SHIFT) << alignof<usize>()));
    return chunk + (<usize>index & CHUNK_MASK) * this.recordBytes;
  }

  /** Adds a record, whose content is undefined; returns its index. */
  add(): u32 {
    this.count++;
    const reused = this.freeHead;
    if (reused != NONE) {
      this.freeHead = load<u32>(this.at(reused));
      return reused;
    }
    const index = this.top++;
    if (index >> CHUNK_SHIFT == this.chunks) this.addChunk();
    return index;
  }

  remove(index: u32): void {
    store<u32>(this.at(index), this.freeHead);
    this.freeHead = index;
    this.count--;
  }

  dispose(): void {
    for (let i: u32 = 0; i < this.chunks; i++) {
      heap.free(load<usize>(load<usize>(this.directory + (<usize>i << alignof<usize>())) - sizeof<usize>()));
    }
    heap.free(this.directory);
    heap.free(changetype<usize>(this));
  }

  private addChunk(): void {
    if (this.chunks == this.directoryCapacity) {
      this.directoryCapacity *= 2;
      this.directory = heap.realloc(this.directory, this.directoryCapacity * sizeof<usize>());
    }
    const allocated = heap.alloc(<usize>(CHUNK_RECORDS * this.recordBytes) + sizeof<usize>() + CACHE_LINE - 1);
    const chunk = (allocated + sizeof<usize>() + CACHE_LINE - 1) & ~(CACHE_LINE - 1);
    store<usize>(chunk - sizeof<usize>(), allocated);
    store<usize>(this.directory + (<usize>this.chunks << alignof<usize>()), chunk);
    this.chunks++;
  }
}
