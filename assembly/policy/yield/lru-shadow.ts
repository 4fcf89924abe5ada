/** Ticks of one bucket, as a shift. */
const BUCKET_SHIFT: u32 = 2;
const BUCKET_MASK: u32 = 0xffffffff >> BUCKET_SHIFT;
/** Number of buckets, a power of two: together they reach back 4,096 ticks. One more has what is older. */
const BUCKETS: u32 = 1024;

/**
 * What LRU would hold in the space that the pages here take: the pages used last, however they were evicted here.
 * Counts the space of pages by the tick of their last use, in buckets, from the oldest one that still fits on.
 */
@unmanaged
export class LruShadow {
  /** Space of the pages last used in each bucket of ticks, at its number modulo BUCKETS, and of those used before. */
  private buckets: usize;
  /** Space of the pages that are here. */
  private roomUnits: u64;
  /** Space of all buckets from `oldest` to `newest`. */
  private units: u64;
  /** Numbers of buckets, modulo 2^30. */
  private oldest: u32;
  private newest: u32;

  constructor(tick: u32) {
    this.buckets = heap.alloc((BUCKETS + 1) << 3);
    memory.fill(this.buckets, 0, (BUCKETS + 1) << 3);
    this.roomUnits = 0;
    this.units = 0;
    this.newest = tick >> BUCKET_SHIFT;
    this.oldest = this.newest;
  }

  /** Counts a page that is here from now on. */
  @inline
  grow(units: u64): void {
    this.roomUnits += units;
  }

  /** Counts a page that is not here any more. */
  @inline
  shrink(units: u64): void {
    this.roomUnits -= units;
  }

  /**
   * Whether LRU would still have a page that was last used at that tick. Of the oldest bucket, it has what fits: the
   * pages that are used again first, as a request's last pages are evicted before its first ones.
   */
  @inline
  holds(tick: u32): bool {
    const bucket = tick >> BUCKET_SHIFT;
    if (!this.isIn(bucket)) return false;
    const at = this.at(bucket);
    return at != this.at(this.oldest) || load<u64>(at) > this.excess;
  }

  /** Takes out a page that was last used at that tick: it is used again, or gone for every policy. */
  @inline
  leave(tick: u32, units: u64): void {
    const bucket = tick >> BUCKET_SHIFT;
    if (!this.isIn(bucket)) return;
    const at = this.at(bucket);
    // A page leaves twice if it was to be published again and found no room.
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

  /** Whether the buckets and their sum agree, and pages that are here take so much space. */
  isConsistent(roomUnits: u64): bool {
    let units = load<u64>(this.before);
    const reach = min(BUCKETS - 1, distance(this.oldest, this.newest));
    for (let back: u32 = 0; back <= reach; back++) units += load<u64>(this.at((this.newest - back) & BUCKET_MASK));
    return units == this.units && roomUnits == this.roomUnits;
  }

  dispose(): void {
    heap.free(this.buckets);
    heap.free(changetype<usize>(this));
  }

  /** Space of the buckets beyond what is here: as much of the oldest one has been evicted. */
  @inline
  private get excess(): u64 {
    return this.units > this.roomUnits ? this.units - this.roomUnits : 0;
  }

  @inline
  private isIn(bucket: u32): bool {
    return distance(bucket, this.newest) <= distance(this.oldest, this.newest);
  }

  /** Begins the next bucket, in the place of one that becomes part of what is older. */
  private advance(): void {
    const newest = (this.newest + 1) & BUCKET_MASK;
    const at = this.buckets + (<usize>(newest & (BUCKETS - 1)) << 3);
    if (distance(this.oldest, newest) >= BUCKETS) store<u64>(this.before, load<u64>(this.before) + load<u64>(at));
    store<u64>(at, 0);
    this.newest = newest;
  }

  /** Forgets the oldest bucket, or all that are older than the others have room for. */
  private forgetOldest(): void {
    const at = this.at(this.oldest);
    this.units -= load<u64>(at);
    store<u64>(at, 0);
    const isBefore = distance(this.oldest, this.newest) >= BUCKETS;
    this.oldest = (isBefore ? this.newest - BUCKETS + 1 : this.oldest + 1) & BUCKET_MASK;
  }

  /** Address of the space of a bucket from `oldest` to `newest`. */
  @inline
  private at(bucket: u32): usize {
    const isBefore = distance(bucket, this.newest) >= BUCKETS;
    return isBefore ? this.before : this.buckets + (<usize>(bucket & (BUCKETS - 1)) << 3);
  }

  /** Address of the space of pages used before those of the last BUCKETS buckets. */
  @inline
  private get before(): usize {
    return this.buckets + (BUCKETS << 3);
  }
}

/** Number of buckets from one to a later one. */
// @ts-ignore: decorator
@inline
function distance(from: u32, to: u32): u32 {
  return (to - from) & BUCKET_MASK;
}
