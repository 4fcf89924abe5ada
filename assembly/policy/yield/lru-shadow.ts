/** Ticks of one bucket, as a shift, and number of buckets, a power of two: together they reach back 4,096 ticks. */
const BUCKET_SHIFT: u32 = 2;
const BUCKETS: u32 = 1024;

/**
 * What an LRU pool of the same capacity would hold: the pages used last, however they were evicted here. Counts the
 * space of pages by the tick of their last use, in buckets, and keeps the oldest bucket that still fits.
 */
@unmanaged
export class LruShadow {
  /** Space of the pages last used in each bucket of ticks, in units. */
  private buckets: usize;
  private capacityUnits: u64;
  /** Space of all buckets from `oldest` to `newest`. */
  private units: u64;
  /** Numbers of buckets, modulo 2^30. */
  private oldest: u32;
  private newest: u32;

  constructor(capacityUnits: u64, tick: u32) {
    this.buckets = heap.alloc(BUCKETS << 3);
    memory.fill(this.buckets, 0, BUCKETS << 3);
    this.capacityUnits = capacityUnits;
    this.units = 0;
    this.newest = tick >> BUCKET_SHIFT;
    this.oldest = this.newest;
  }

  /**
   * Whether LRU would still have a page that was last used at that tick. Of the oldest bucket, it has what fits: the
   * pages that are used again first, as a request's last pages are evicted before its first ones.
   */
  @inline
  holds(tick: u32): bool {
    const bucket = tick >> BUCKET_SHIFT;
    return this.isIn(bucket) && (bucket != this.oldest || load<u64>(this.at(bucket)) > this.excess);
  }

  /** Takes out a page that was last used at that tick, before it is used again. */
  @inline
  leave(tick: u32, units: u64): void {
    const bucket = tick >> BUCKET_SHIFT;
    if (!this.isIn(bucket)) return;
    const at = this.at(bucket);
    // Its space may have changed since.
    const there = min(units, load<u64>(at));
    store<u64>(at, load<u64>(at) - there);
    this.units -= there;
  }

  /** Adds a page that is used at that tick, which is the current one. */
  @inline
  enter(tick: u32, units: u64): void {
    const bucket = tick >> BUCKET_SHIFT;
    while (this.newest != bucket) this.advance();
    const at = this.at(bucket);
    store<u64>(at, load<u64>(at) + units);
    this.units += units;
    while (this.oldest != this.newest && load<u64>(this.at(this.oldest)) <= this.excess) this.forgetOldest();
  }

  /** Whether the buckets and their sum agree. */
  isConsistent(): bool {
    let units: u64 = 0;
    for (let bucket = this.oldest; ; bucket = next(bucket)) {
      units += load<u64>(this.at(bucket));
      if (bucket == this.newest) break;
    }
    return units == this.units;
  }

  dispose(): void {
    heap.free(this.buckets);
    heap.free(changetype<usize>(this));
  }

  /** Space of the buckets beyond the capacity: as much of the oldest one has been evicted. */
  @inline
  private get excess(): u64 {
    return this.units > this.capacityUnits ? this.units - this.capacityUnits : 0;
  }

  @inline
  private isIn(bucket: u32): bool {
    return distance(bucket, this.newest) <= distance(this.oldest, this.newest);
  }

  private advance(): void {
    if (distance(this.oldest, this.newest) == BUCKETS - 1) this.forgetOldest();
    this.newest = next(this.newest);
    store<u64>(this.at(this.newest), 0);
  }

  private forgetOldest(): void {
    this.units -= load<u64>(this.at(this.oldest));
    this.oldest = next(this.oldest);
  }

  @inline
  private at(bucket: u32): usize {
    return this.buckets + (<usize>(bucket & (BUCKETS - 1)) << 3);
  }
}

const BUCKET_MASK: u32 = 0xffffffff >> BUCKET_SHIFT;

// @ts-ignore: decorator
@inline
function next(bucket: u32): u32 {
  return (bucket + 1) & BUCKET_MASK;
}

/** Buckets from one to a later one. */
// @ts-ignore: decorator
@inline
function distance(from: u32, to: u32): u32 {
  return (to - from) & BUCKET_MASK;
}
