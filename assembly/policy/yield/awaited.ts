import { List } from '../../list';
import { NONE, Records } from '../../records';
import { LIVE, setSlotExpected, slotExpected, slotPins, slotStatus } from '../../slot';
import { Pace } from './pace';

/** Milliseconds of one bucket. */
const BUCKET_MS: f64 = 8192;
/** What `expected` of a slot says: nothing is, the page is never asked for again, or the number of a bucket from 2 on. */
const NOTHING: u32 = 0;
const NEVER: u32 = 1;
const FIRST: u32 = 2;
const BUCKETS: u32 = 254;
/** How far ahead pages can be expected, in buckets. */
const AHEAD_MAX: i64 = BUCKETS - 1;

/**
 * The pages of which callers have said when they will be asked for again, in buckets of that time, up to 34 minutes
 * ahead. In each bucket, what was put there first is evicted first.
 */
@unmanaged
export class Awaited {
  private slots: Records;
  private lists: usize;
  private pace: Pace;
  /** Number of the bucket of now: whole buckets since time 0. All later ones may have pages. */
  private present: i64;
  /** Number of the latest bucket that may have pages; not after `present`: none has. */
  private latest: i64;
  count: u32;

  /** `tick`: the current one. */
  constructor(slots: Records, tick: u32) {
    this.slots = slots;
    this.pace = new Pace(tick);
    this.lists = heap.alloc((FIRST + BUCKETS) * offsetof<List>());
    const empty = new List(slots);
    for (let i: u32 = 0; i < FIRST + BUCKETS; i++) {
      memory.copy(changetype<usize>(this.list(i)), changetype<usize>(empty), offsetof<List>());
    }
    empty.dispose();
    this.present = 0;
    this.latest = 0;
    this.count = 0;
  }

  /**
   * Adds a page that is expected in so many milliseconds; Infinity: never. Goes before the slot `newer` if that is in
   * the same bucket. Returns false, and adds nothing, if that is within the bucket of now.
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

  /** A page of those that are awaited, or NONE. */
  any(): u32 {
    const ended = this.ended();
    return ended == NONE ? this.last() : ended;
  }

  /** Tells the time, which does not go back, and the tick. */
  @inline
  tell(nowMs: f64, tick: u32): void {
    if (nowMs != this.pace.nowMs) this.pace.tell(nowMs, tick);
  }

  /** A page whose time has come, or NONE; it stays until `remove`. */
  overdue(): u32 {
    const now = bucketOf(this.pace.nowMs);
    if (this.count == this.list(NEVER).count) this.present = max(this.present, now);
    while (this.present < now) {
      const head = this.list(place(this.present + 1)).head;
      if (head != NONE) return head;
      this.present++;
    }
    return NONE;
  }

  /** The page that is never asked for again, and was put there first, or NONE. */
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

  /** Ticks until `last` is expected, a page that there is; 0: unknown. */
  ticksUntilLast(): f64 {
    return this.pace.ticksOf(<f64>(this.latest - this.present) * BUCKET_MS);
  }

  /** Writes all slots as u32, in the order of eviction; returns the address after the last. */
  writeOrder(out: usize): usize {
    out = this.write(NEVER, out);
    for (let bucket = this.present + AHEAD_MAX; bucket > this.present; bucket--) out = this.write(place(bucket), out);
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
    this.pace.dispose();
    heap.free(this.lists);
    heap.free(changetype<usize>(this));
  }

  private expectedAt(inMs: f64): u32 {
    if (inMs == Infinity) return NEVER;
    const nowMs = this.pace.nowMs;
    // The bucket of now is behind while pages of earlier ones are still to be taken.
    const bucket = min(bucketOf(nowMs + inMs), this.present + AHEAD_MAX);
    if (bucket <= bucketOf(nowMs) || bucket <= this.present) return NOTHING;
    this.latest = max(this.latest, bucket);
    return place(bucket);
  }

  private write(expected: u32, out: usize): usize {
    const list = this.list(expected);
    for (let slot = list.head; slot != NONE; slot = list.next(slot)) {
      store<u32>(out, slot);
      out += 4;
    }
    return out;
  }

  @inline
  private list(expected: u32): List {
    return changetype<List>(this.lists + <usize>expected * offsetof<List>());
  }
}

/** Whether a slot is a page of which it was said when it will be asked for. */
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
