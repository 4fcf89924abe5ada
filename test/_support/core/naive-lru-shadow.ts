/** Buckets whose pages are told apart by the time of their last use; all that are older count as one. */
const BUCKETS = 1024;
/** Makes buckets of ticks begin where those of the core do, whose clock starts before a wrap. */
const TICKS_BEFORE = 2 ** 15;

function bucketOf(tick: number): number {
  return Math.floor((tick + TICKS_BEFORE) / 4);
}

/** What LRU would hold in the room that the pages of a policy take: units by bucket of ticks of the last use. */
export class NaiveLruShadow {
  /** Units of the pages that are there. */
  roomUnits = 0;
  private readonly units = new Map<number, number>();
  private oldest: number;
  private newest: number;

  constructor(tick: number) {
    this.oldest = bucketOf(tick);
    this.newest = this.oldest;
  }

  holds(tick: number): boolean {
    const bucket = bucketOf(tick);
    if (bucket < this.oldest) return false;
    const place = this.placeOf(bucket);
    return place !== this.placeOf(this.oldest) || this.at(place) > this.excess;
  }

  leave(tick: number, units: number): void {
    const bucket = bucketOf(tick);
    if (bucket < this.oldest) return;
    const place = this.placeOf(bucket);
    this.units.set(place, Math.max(0, this.at(place) - units));
  }

  enter(tick: number, units: number): void {
    while (this.newest < bucketOf(tick)) {
      this.newest++;
      const old = this.newest - BUCKETS;
      // The place of what is older moves up by one bucket, and takes that one in.
      if (old >= this.oldest) this.units.set(old, this.at(old) + this.at(old - 1));
      this.units.delete(old - 1);
    }
    this.units.set(this.newest, this.at(this.newest) + units);
    while (this.oldest < this.newest && this.at(this.placeOf(this.oldest)) <= this.excess) {
      const place = this.placeOf(this.oldest);
      this.units.delete(place);
      this.oldest = place + 1;
    }
  }

  private at(place: number): number {
    return this.units.get(place) ?? 0;
  }

  /** The bucket under which the units of one are counted. */
  private placeOf(bucket: number): number {
    return Math.max(bucket, this.newest - BUCKETS);
  }

  private get excess(): number {
    return Math.max(0, [...this.units.values()].reduce((sum, units) => sum + units, 0) - this.roomUnits);
  }
}
