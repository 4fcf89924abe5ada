import { List } from '../../list';
import { NONE, Records } from '../../records';
import { LIVE, setSlotExpected, slotExpected, slotPins, slotStatus } from '../../slot';
import { TickRate } from './tick-rate';

/** Milliseconds of one bucket. */
const BUCKET_MS: f64 = 8192;
/** Later times count as this one, some 285,000 years: whole milliseconds, and numbers of buckets, stay exact. */
const TIME_MAX_MS: f64 = 9007199254740992;
/**
 * What the field `expected` of a slot says: nothing is known of the page, it is never asked for again, or, from FIRST
 * on, the bucket of the time at which it is.
 */
const NOTHING: u32 = 0;
const NEVER: u32 = 1;
const FIRST: u32 = 2;
const BUCKETS: u32 = 254;
/** How far ahead pages can be expected, in buckets; what is expected later is in the last one. */
const AHEAD_MAX: i64 = BUCKETS - 1;
const WAIT_MAX_MS: f64 = (<f64>BUCKETS) * BUCKET_MS;

/**
 * The pages of which callers have said when they will be asked for again, in buckets of that time, up to 34 minutes
 * ahead. In each bucket, what was put there first is evicted first.
 */
@unmanaged
export class Awaited {
  private slots: Records;
  private lists: usize;
  private rate: TickRate;
  /** The latest time told. */
  private nowMs: f64;
  /** Number of the bucket up to which no page is awaited any more: whole buckets since time 0. */
  private present: i64;
  /** Number of the latest bucket that may have pages; not after `present`: none has. */
  private latest: i64;
  count: u32;

  /** `tick`: the current one. */
  constructor(slots: Records, tick: u32) {
    this.slots = slots;
    this.rate = new TickRate(tick);
    this.lists = heap.alloc((FIRST + BUCKETS) * offsetof<List>());
    const empty = new List(slots);
    for (let i: u32 = 0; i < FIRST + BUCKETS; i++) {
      memory.copy(changetype<usize>(this.list(i)), changetype<usize>(empty), offsetof<List>());
    }
    empty.dispose();
    this.nowMs = 0;
    this.present = 0;
    this.latest = 0;
    this.count = 0;
  }

  /**
   * Adds a page that is expected in so many milliseconds; Infinity: never. It goes before the slot `newer` if that is
   * in the same bucket. Returns false, and adds nothing, if its time is within the bucket of now.
   */
  insert(slot: u32, inMs: f64, newer: u32): bool {
    const expected = this.expectedAt(inMs);
    if (expected == NOTHING) return false;
    const list = this.list(expected);
    setSlotExpected(this.slots.at(slot), expected);
    if (newer != NONE && isAwaited(this.slots.at(newer)) && slotExpected(this.slots.at(newer)) == expected) {
      list.insertBefore(slot, newer);
    } else {
      list.append(slot);
    }
    this.count++;
    return true;
  }

  remove(slot: u32): void {
    const at = this.slots.at(slot);
    this.list(slotExpected(at)).remove(slot);
    setSlotExpected(at, NOTHING);
    this.count--;
  }

  /** Any awaited page, or NONE. */
  any(): u32 {
    const ended = this.ended();
    return ended == NONE ? this.last() : ended;
  }

  /** Tells the time and the tick. Returns whether it is later than any before; an earlier time counts as the latest. */
  @inline
  tell(nowMs: f64, tick: u32): bool {
    const now = min(nowMs, TIME_MAX_MS);
    if (now <= this.nowMs) return false;
    this.nowMs = now;
    this.rate.measure(now, tick);
    return true;
  }

  /** A page whose time has come, or NONE; it stays until `remove`. */
  overdue(): u32 {
    const now = bucketOf(this.nowMs);
    // After a long time in which nothing was told, a loop over all its buckets would take long.
    if (this.count == this.list(NEVER).count) this.present = now;
    while (this.present < now) {
      const head = this.list(place(this.present + 1)).head;
      if (head != NONE) return head;
      this.present++;
    }
    return NONE;
  }

  /** The page of which it was said first that it is never asked for again, or NONE. */
  @inline
  ended(): u32 {
    return this.list(NEVER).head;
  }

  /** The page that is expected last, or NONE. */
  last(): u32 {
    for (; this.latest > this.present; this.latest--) {
      const head = this.list(place(this.latest)).head;
      if (head != NONE) return head;
    }
    return NONE;
  }

  /** Ticks until the page that {@link last} has just returned is expected; 0: unknown. */
  ticksUntilLast(): f64 {
    return this.rate.ticksOf(<f64>(this.latest - this.present) * BUCKET_MS);
  }

  /** Writes all slots as u32, in the order of eviction; returns the address after the last. */
  writeOrder(out: usize): usize {
    out = this.list(NEVER).write(out);
    for (let bucket = this.present + AHEAD_MAX; bucket > this.present; bucket--) out = this.list(place(bucket)).write(out);
    return out;
  }

  /** Whether lists, slots and the count agree. */
  isConsistent(): bool {
    let count: u32 = 0;
    for (let expected: u32 = NEVER; expected < FIRST + BUCKETS; expected++) {
      const list = this.list(expected);
      if (!list.isConsistent()) return false;
      count += list.count;
      for (let slot = list.head; slot != NONE; slot = list.next(slot)) {
        const at = this.slots.at(slot);
        if (slotStatus(at) != LIVE || slotPins(at) != 0 || slotExpected(at) != expected) return false;
      }
    }
    return count == this.count && this.list(place(this.present)).count == 0;
  }

  dispose(): void {
    this.rate.dispose();
    heap.free(this.lists);
    heap.free(changetype<usize>(this));
  }

  private expectedAt(inMs: f64): u32 {
    if (inMs == Infinity) return NEVER;
    const bucket = min(bucketOf(this.nowMs + min(inMs, WAIT_MAX_MS)), this.present + AHEAD_MAX);
    if (bucket <= this.present) return NOTHING;
    this.latest = max(this.latest, bucket);
    return place(bucket);
  }

  @inline
  private list(expected: u32): List {
    return changetype<List>(this.lists + <usize>expected * offsetof<List>());
  }
}

/** Whether a slot is a page whose return is awaited. */
// @ts-ignore: decorator
@inline
export function isAwaited(at: usize): bool {
  return slotExpected(at) != NOTHING;
}

// @ts-ignore: decorator
@inline
function bucketOf(ms: f64): i64 {
  return <i64>(ms / BUCKET_MS);
}

// @ts-ignore: decorator
@inline
function place(bucket: i64): u32 {
  return FIRST + <u32>(bucket % BUCKETS);
}
