import { NONE, Records } from '../../records';
import {
  GHOST,
  LIVE,
  setSlotFrequency,
  setSlotQueue,
  slotBytes,
  slotFrequency,
  slotPins,
  slotQueue,
  slotStatus,
} from '../../slot';
import { AgedLists, STAGES, stageAt } from './aged-lists';
import { Awaited, isAwaited } from './awaited';
import { Calls } from './calls';
import { Duel, EXPECTATIONS, LAST_USE } from './duel';
import { Lessons } from './lessons';
import { LruShadow } from './lru-shadow';
import { PageValues } from './page-values';
import { FIRST_TICK, GHOSTS_MIN, REQUEST_TICKS_MAX, TICKS_PER_TURNOVER } from './yield-pace';
import { CLASS_BITS, LAST, slotClassOf } from './yield-slot';

/** Number of classes; a class is `hits * 8 + isLast * 4 + hint`. */
const CLASSES: u32 = 24;
const HITS_MAX: u32 = 2;
/** Quarter ticks of a tick, and one hit per quarter tick, as `PageValues` counts. */
const QUARTER_TICKS: f64 = 4;
const VALUE_ONE: f64 = 4294967296;

/**
 * Evicts the page that is expected to yield the fewest hits for the time it stays. A page's class says how many
 * requests found it known, whether it was the last of its request, and the caller's hint. By class and age, the policy
 * counts how many pages were hit, evicted ones included, which it remembers as ghosts (`page-values.ts`).
 *
 * The clock counts the space of the pages requested: a tick is 1/64 of the capacity. A hit on a large page saves as
 * much more work as the page takes more space, so that hits per page and tick compare pages of all sizes.
 *
 * A call is a request, or a part of one (`callers.ts`), its keys in the order of a prefix. Each page goes before the
 * one that came before it in the request, so that a request is evicted from its end: a prefix without its head is
 * useless.
 *
 * Pages of which callers have said when they return are awaited, in buckets of that time (`awaited.ts`). Where LRU
 * would hit more, expectations are ignored, and learned values are, too (`duel.ts`).
 */
@unmanaged
export class Yield {
  private slots: Records;
  pages: AgedLists;
  ghosts: AgedLists;
  private values: PageValues;
  /** Pages that callers expect: they are in no list of `pages`. */
  awaited: Awaited;
  private shadow: LruShadow;
  private duel: Duel;
  private calls: Calls;
  private unitShift: u64;
  private tickUnits: u64;
  /** The current tick, modulo 2^32. */
  private tick: u32;
  /** Space of requested pages that the clock has not counted yet. */
  private waitingUnits: u64;
  private lessons: Lessons;
  private ghostsMax: u32;
  /**
   * List of the next victim, or NONE if it must be searched for again because lists have lost their oldest page, or
   * were filled, aged or revalued.
   */
  private victimList: u32;

  /** `unitBytes`: the power of two in multiples of which pages take space. */
  constructor(slots: Records, tenant: u32, capacityBytes: u64, unitBytes: u64) {
    this.slots = slots;
    this.unitShift = ctz(unitBytes);
    this.pages = new AgedLists(slots, CLASSES);
    this.ghosts = new AgedLists(slots, CLASSES);
    this.values = new PageValues(CLASSES);
    this.calls = new Calls(slots, tenant);
    this.tickUnits = max<u64>(1, capacityBytes / unitBytes / TICKS_PER_TURNOVER);
    this.tick = FIRST_TICK;
    this.awaited = new Awaited(slots, FIRST_TICK);
    this.shadow = new LruShadow(FIRST_TICK);
    this.duel = new Duel(FIRST_TICK);
    this.waitingUnits = 0;
    this.lessons = new Lessons(FIRST_TICK - 1);
    this.ghostsMax = GHOSTS_MIN;
    this.victimList = NONE;
    this.values.learn(this.pages, this.ghosts, 0);
  }

  /**
   * A call of `keys` keys. `about`: the hint in the lowest two bits; bit 2: it goes on with the request of the caller's
   * last call; bit 3: it does not; neither: see {@link continues}. Bit 4: none of its pages is the last one of the
   * request. Above: the caller's number.
   */
  begin(keys: u32, about: u32, isWrite: bool, request: u32): void {
    const calls = this.calls;
    calls.begin(keys, about, isWrite, request);
    // All pages of a request are of one age, so that its last ones go first also if it is longer than the pool. A
    // caller that never ends a request must not stop the clock, nor must requests of one length, which look like parts
    // of one.
    const ticksMax = calls.isTold ? REQUEST_TICKS_MAX : TICKS_PER_TURNOVER;
    if (!calls.isContinued || this.waitingUnits >= this.tickUnits * ticksMax) this.advance();
    if (this.duel.judge(this.tick)) this.changeJudge();
    // At least as many ghosts as the call could ask for: else it would push out the ones that its last keys are about
    // to find.
    this.ghostsMax = max(this.ghostsMax, max(keys, this.pages.count + this.awaited.count + GHOSTS_MIN));
    if (!calls.isContinued) this.beginRequest();
    // What looks like a slice may as well be a request as long as the one before.
    else if (calls.isSlice) this.duel.beginRequest();
  }

  end(): void {
    this.calls.end();
  }

  /**
   * Counts a hit on a page or a ghost that is about to be published anew; returns how many it has had, for `insert`.
   */
  @inline
  recall(slot: u32): u32 {
    const at = this.slots.at(slot);
    const hits = slotClassOf(at) >> 3;
    const isCounted = this.calls.hasHad(at);
    if (!isCounted) this.countHit(at);
    // A page that is here is removed next, and leaves then.
    if (slotStatus(at) == GHOST) this.shadow.leave(slotFrequency(at), this.unitsOf(at));
    return isCounted ? hits : min(HITS_MAX, hits + 1);
  }

  @inline
  insert(slot: u32, hits: u32): void {
    if (hits == 0) this.duel.count(0, false, false);
    this.shadow.grow(this.unitsOf(this.slots.at(slot)));
    this.place(slot, hits);
    this.link(slot, this.calls.previous);
    this.calls.follow(slot);
  }

  use(slot: u32): void {
    const at = this.slots.at(slot);
    if (this.calls.hasHad(at)) return;
    this.countHit(at);
    this.shadow.leave(slotFrequency(at), this.unitsOf(at));
    const isPinned = slotPins(at) > 0;
    if (!isPinned) this.unlink(this.listOf(at), slot);
    this.place(slot, min(HITS_MAX, (slotClassOf(at) >> 3) + 1));
    if (isPinned) return;
    this.link(slot, this.calls.previous);
    this.calls.follow(slot);
  }

  /**
   * After a pin. Pages of a request come back in its order, from one call and those that go on with it, and are placed
   * as they were.
   */
  restore(slot: u32): void {
    const at = this.slots.at(slot);
    this.shadow.leave(slotFrequency(at), this.unitsOf(at));
    this.stamp(at);
    this.link(slot, this.calls.unpin(slot));
  }

  /** Adds a page from before a restart: it is the newest one now, and belongs to no request. */
  adopt(slot: u32): void {
    const at = this.slots.at(slot);
    this.waitingUnits += this.unitsOf(at);
    this.advance();
    this.shadow.grow(this.unitsOf(at));
    this.stamp(at);
    setSlotQueue(at, this.calls.current << CLASS_BITS);
    this.link(slot, NONE);
  }

  /** Makes the page the newest one, without counting a use. */
  renew(slot: u32): void {
    const at = this.slots.at(slot);
    this.waitingUnits += this.unitsOf(at);
    this.advance();
    const isPinned = slotPins(at) > 0;
    if (!isPinned) this.unlink(this.listOf(at), slot);
    this.shadow.leave(slotFrequency(at), this.unitsOf(at));
    this.stamp(at);
    if (!isPinned) this.link(slot, NONE);
  }

  /** Takes a page that is being pinned out of the order. */
  remove(slot: u32): void {
    this.unlink(this.listOf(this.slots.at(slot)), slot);
  }

  /** Removes a page for good, pinned or not: LRU would not have it any more, either. */
  drop(slot: u32, isPinned: bool): void {
    const at = this.slots.at(slot);
    const units = this.unitsOf(at);
    this.shadow.leave(slotFrequency(at), units);
    this.shadow.shrink(units);
    if (!isPinned) this.unlink(this.listOf(at), slot);
  }

  /** Tells the time; an earlier one counts as the latest. Pages that were expected by now are in their lists again. */
  @inline
  tellTime(nowMs: f64): void {
    if (this.awaited.tell(nowMs, this.tick)) this.putOverdueBack();
  }

  private putOverdueBack(): void {
    for (let slot = this.awaited.overdue(); slot != NONE; slot = this.awaited.overdue()) this.putBack(slot);
  }

  /** Something else decides from now on. Unless expectations do, all awaited pages are in their lists again. */
  private changeJudge(): void {
    this.victimList = NONE;
    if (this.duel.decides == EXPECTATIONS) return;
    for (let slot = this.awaited.any(); slot != NONE; slot = this.awaited.any()) this.putBack(slot);
  }

  /** Puts an awaited page back into its list. */
  private putBack(slot: u32): void {
    this.awaited.remove(slot);
    this.insertInto(this.listOf(this.slots.at(slot)), slot, NONE);
  }

  /**
   * Notes that a page in the order will be asked for in so many milliseconds; Infinity: never again. `newer`: the page
   * before it in its request, or NONE. Ignored while expectations are not what decides.
   */
  expect(slot: u32, inMs: f64, newer: u32): void {
    this.duel.hasExpectations = true;
    if (this.duel.decides != EXPECTATIONS) return;
    const at = this.slots.at(slot);
    this.unlink(this.listOf(at), slot);
    if (!this.awaited.insert(slot, inMs, newer)) this.insertInto(this.listOf(at), slot, NONE);
  }

  /** Evicts the slot that {@link victim} has just named; it is always kept, as a ghost of the same class and stage. */
  @inline
  evict(slot: u32): void {
    const at = this.slots.at(slot);
    this.shadow.shrink(this.unitsOf(at));
    if (isAwaited(at)) {
      this.awaited.remove(slot);
      this.ghosts.insert(this.listOf(at), slot);
      return;
    }
    const list = this.victimList;
    this.unlink(list, slot);
    // The next page of the list, if it is as old, is due as well.
    const next = this.pages.at(list).head;
    if (next != NONE && slotFrequency(this.slots.at(next)) == slotFrequency(this.slots.at(slot))) this.victimList = list;
    this.ghosts.insert(list, slot);
  }

  /** Whether this request had the page last. */
  isOwn(slot: u32, request: u32): bool {
    return this.calls.requestOf(this.slots.at(slot)) == request;
  }

  /** Learns of a new page that gets no place: it is evicted at once. */
  refuse(slot: u32, hits: u32): void {
    this.place(slot, hits);
    this.ghosts.insert(this.listOf(this.slots.at(slot)), slot);
    this.calls.follow(slot);
  }

  forgetGhost(slot: u32): void {
    this.ghosts.remove(this.listOf(this.slots.at(slot)), slot);
  }

  /** Like {@link forgetGhost}, for a ghost that is too old: its page would have had no hit. */
  @inline
  expireGhost(slot: u32): void {
    const list = this.listOf(this.slots.at(slot));
    this.values.countSurvived(list, 1);
    this.ghosts.remove(list, slot);
  }

  /** The oldest ghost if there are too many, or NONE; keeps at least as many as the longest call could ask for. */
  @inline
  overdueGhost(): u32 {
    return this.ghosts.count <= this.ghostsMax ? NONE : this.oldestGhost();
  }

  /** The oldest ghost; there must be one. */
  oldestGhost(): u32 {
    const stage = this.ghosts.oldestStage();
    return this.ghosts.at(ctz(this.ghosts.classesIn(stage)) * STAGES + stage).head;
  }

  /** A page that is never asked for again, the one that is expected last, or the oldest one of least value; or NONE. */
  @inline
  victim(): u32 {
    if (this.awaited.count == 0) return this.victimOfLists();
    const ended = this.awaited.ended();
    if (ended != NONE) return ended;
    const last = this.awaited.last();
    const other = this.victimOfLists();
    return other == NONE || (last != NONE && this.isLater(other)) ? last : other;
  }

  @inline
  private victimOfLists(): u32 {
    if (this.victimList == NONE) this.victimList = this.leastList();
    return this.victimList == NONE ? NONE : this.pages.at(this.victimList).head;
  }

  /**
   * Writes all slots as u32: awaited pages, then lists by what decides, value or age; returns the address after the
   * last.
   */
  writeOrder(out: usize): usize {
    out = this.awaited.writeOrder(out);
    if (this.duel.decides == LAST_USE) return this.pages.writeByAge(out);
    for (let rank: u32 = 0; rank < CLASSES * STAGES; rank++) out = this.pages.at(this.values.atRank(rank)).write(out);
    return out;
  }

  /** Whether lists, ranks and slots agree. `units`: space of all pages, pinned ones included. */
  isConsistent(units: u64): bool {
    if (!this.pages.isConsistent(this.tick, LIVE) || !this.ghosts.isConsistent(this.tick, GHOST)) return false;
    if (!this.values.isConsistent(this.pages) || !this.awaited.isConsistent()) return false;
    if (!this.shadow.isConsistent(units)) return false;
    if (this.victimList != NONE && this.victimList != this.leastList()) return false;
    return this.overdueGhost() == NONE;
  }

  dispose(): void {
    this.pages.dispose();
    this.ghosts.dispose();
    this.values.dispose();
    this.calls.dispose();
    this.lessons.dispose();
    this.awaited.dispose();
    this.shadow.dispose();
    this.duel.dispose();
    heap.free(changetype<usize>(this));
  }

  /** Advances the clock by the requested space, and learns when it is time to. */
  private advance(): void {
    while (this.waitingUnits >= this.tickUnits) {
      this.waitingUnits -= this.tickUnits;
      this.tick++;
      for (let stage = min<u32>(ctz(this.tick), STAGES - 2) + 1; stage-- > 0; ) this.age(stage);
    }
    if (this.lessons.isHalvingDue(this.tick)) this.values.halve();
    if (this.lessons.isDue(this.tick)) {
      this.values.learn(this.pages, this.ghosts, this.lessons.pagesOfRequest);
      this.victimList = NONE;
    }
  }

  private age(stage: u32): void {
    for (let bits = this.pages.classesIn(stage) | this.ghosts.classesIn(stage); bits != 0; bits &= bits - 1) {
      const list = ctz(bits) * STAGES + stage;
      const pages = this.pages.at(list).count;
      this.values.countSurvived(list, pages + this.ghosts.at(list).count);
      this.ghosts.age(list);
      if (pages == 0) continue;
      this.pages.age(list);
      this.values.unmark(list);
      this.values.mark(list + 1);
      this.victimList = NONE;
    }
  }

  private beginRequest(): void {
    this.lessons.countRequest();
    this.duel.beginRequest();
    const last = this.calls.beginRequest();
    if (last != NONE) this.markLast(last);
  }

  /** Sets the current class and age of the slot. */
  @inline
  private place(slot: u32, hits: u32): void {
    const at = this.slots.at(slot);
    this.stamp(at);
    setSlotQueue(at, (this.calls.current << CLASS_BITS) | (hits << 3) | this.calls.hint);
    this.calls.placed();
    this.waitingUnits += this.unitsOf(at);
    this.lessons.countPage();
  }

  /** Gives a page the tick of now. */
  @inline
  private stamp(at: usize): void {
    setSlotFrequency(at, this.tick);
    this.shadow.enter(this.tick, this.unitsOf(at));
  }

  /** Counts a hit on the request's next page, which is here or a ghost, before it is stamped anew. */
  @inline
  private countHit(at: usize): void {
    if (this.calls.isRepeat(at)) this.beginRequest();
    this.duel.count(this.unitsOf(at), slotStatus(at) == LIVE, this.shadow.holds(slotFrequency(at)));
    this.values.countHit(this.listOf(at));
  }

  /**
   * Puts a page that has its class and the tick of now into its list: before `newer` if that is there, as the first to
   * go if that has been evicted, else at the end.
   */
  @inline
  private link(slot: u32, newer: u32): void {
    const at = this.slots.at(slot);
    const list = slotClassOf(at) * STAGES;
    let before = NONE;
    if (newer != NONE && newer != slot) {
      const other = this.slots.at(newer);
      if (slotStatus(other) == GHOST) before = this.pages.at(list).head;
      else if (this.isBeside(at, other)) before = newer;
    }
    this.insertInto(list, slot, before);
  }

  /** Whether a slot is a page in the same list as the page at `at`, which was used at the current tick. */
  @inline
  private isBeside(at: usize, other: usize): bool {
    const isInList = slotStatus(other) == LIVE && slotPins(other) == 0 && !isAwaited(other);
    return isInList && slotFrequency(other) == this.tick && slotClassOf(other) == slotClassOf(at);
  }

  @inline
  private insertInto(list: u32, slot: u32, newer: u32): void {
    if (!this.pages.insert(list, slot, newer)) return;
    this.values.mark(list);
    this.victimList = NONE;
  }

  @inline
  private unlink(list: u32, slot: u32): void {
    if (isAwaited(this.slots.at(slot))) {
      this.awaited.remove(slot);
      return;
    }
    if (this.pages.at(list).head == slot) this.victimList = NONE;
    if (this.pages.remove(list, slot)) this.values.unmark(list);
  }

  /** Whether the page that is expected last comes later than a hit of this one, as far as is known. */
  private isLater(other: u32): bool {
    return this.awaited.ticksUntilLast() * QUARTER_TICKS * <f64>this.values.value(this.victimList) > VALUE_ONE;
  }

  private markLast(slot: u32): void {
    const at = this.slots.at(slot);
    const isInList = slotPins(at) == 0 && !isAwaited(at);
    if (isInList) this.unlink(this.listOf(at), slot);
    setSlotQueue(at, slotQueue(at) | LAST);
    if (isInList) this.insertInto(this.listOf(at), slot, NONE);
  }

  /**
   * The list of the next victim: of all that are hardly worth more than the least one, the one whose oldest page has
   * waited longest. Where nothing is learned that tells pages apart, that is the least recently used one.
   */
  private leastList(): u32 {
    if (this.duel.decides == LAST_USE) return this.pages.oldest(this.tick);
    const least = this.values.least();
    if (least == NONE) return NONE;
    const limit = this.values.value(least) * 8;
    let oldest = least;
    let longest = this.ageOfHead(least);
    for (let list = this.values.next(least); list != NONE; list = this.values.next(list)) {
      if (this.values.value(list) * 7 > limit) break;
      const age = this.ageOfHead(list);
      if (age <= longest) continue;
      longest = age;
      oldest = list;
    }
    return oldest;
  }

  /** Ticks since the oldest page of the list was used. */
  @inline
  private ageOfHead(list: u32): u32 {
    return this.tick - slotFrequency(this.slots.at(this.pages.at(list).head));
  }

  @inline
  private unitsOf(at: usize): u64 {
    return max<u64>(1, (slotBytes(at) + (<u64>1 << this.unitShift) - 1) >> this.unitShift);
  }

  @inline
  private listOf(at: usize): u32 {
    return slotClassOf(at) * STAGES + stageAt(this.tick, slotFrequency(at));
  }
}
