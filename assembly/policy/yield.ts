import { List } from '../list';
import { NONE, Records } from '../records';
import {
  GHOST,
  LIVE,
  NORMAL,
  setSlotFrequency,
  setSlotQueue,
  slotBytes,
  slotFrequency,
  slotPins,
  slotPriority,
  slotQueue,
  slotStatus,
  slotTenant,
} from '../slot';
import { BEGINS, CALLER_SHIFT, CONTINUES, ENDS_ELSEWHERE, HINT_MASK } from './about';
import { AgedLists, STAGES, stageAt } from './aged-lists';
import { Awaited, isAwaited } from './awaited';
import { CallChain } from './call-chain';
import { callerFirst, Callers, callerSlot, callerSlotCall, continues, noteCall, setCallerFirst, setCallerSlot } from './callers';
import { Duel, EXPECTATIONS, LAST_USE } from './duel';
import { LruShadow } from './lru-shadow';
import { PageValues } from './page-values';
import { GHOSTS_MIN, HALVE_PAGES, HALVE_TICKS, LEARN_PAGES, LEARN_TICKS, REQUEST_TICKS_MAX, TICKS_PER_TURNOVER } from './yield-pace';
import { CLASS_BITS, slotCall, slotClassOf } from './yield-slot';

/** Number of classes; a class is `hits * 8 + isLast * 4 + hint`. */
const CLASSES: u32 = 24;
const HITS_MAX: u32 = 2;
const LAST: u32 = 4;
/**
 * Ticks before the clock's first wrap. A small pool gets there within years; starting close to it makes a wrap
 * ordinary, and tests cover it. All stages begin at a multiple of their length.
 */
const TICKS_BEFORE_WRAP: u32 = 1 << (STAGES - 1);
/** Mask of call numbers, which wrap. */
/** Ticks over which the pace of the clock is measured. */
const PACE_TICKS: u32 = 16;
/** Quarter ticks of a tick, and one hit per quarter tick, as `PageValues` counts. */
const QUARTER_TICKS: f64 = 4;
const VALUE_ONE: f64 = 4294967296;
const CALL_MASK: u32 = 0xffffffff >> CLASS_BITS;

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
 */
@unmanaged
export class Yield {
  private slots: Records;
  /**
   * Number of the tenant whose order this is: slots of others, which count calls of their own, are none of its pages.
   */
  private tenant: u32;
  pages: AgedLists;
  ghosts: AgedLists;
  private values: PageValues;
  /** Pages that are in no list of `pages`. */
  awaited: Awaited;
  private shadow: LruShadow;
  private duel: Duel;
  private callers: Callers;
  private unitShift: u64;
  private tickUnits: u64;
  /** The current tick, modulo 2^32. */
  private tick: u32;
  /** The time that was told last, and how long a tick takes; 0: unknown. Measured from `paceTick`, which was at `paceMs`. */
  private nowMs: f64;
  private paceTick: u32;
  private paceMs: f64;
  private msPerTick: f64;
  /** Space of requested pages that the clock has not counted yet. */
  private waitingUnits: u64;
  /** Number of recent requests. */
  private requests: u64;
  /** Pages requested so far; those up to `pagesBefore` are not recent. */
  private requested: u64;
  private pagesBefore: u64;
  /** Pages requested, and the tick, when learning, and halving, was last done. */
  private learnPages: u64;
  private learnTick: u32;
  private halvePages: u64;
  private halveTick: u32;
  private ghostsMax: u32;
  /** The running call, or the last one: number, hint and caller. */
  private call: u32;
  private hint: u32;
  private caller: usize;
  private endsElsewhere: bool;
  /** Whether no page was found yet in a call that may prove to begin a request: see {@link checkRepeat}. */
  private mayRepeat: bool;
  /** Whether the running call was stated to continue a request. */
  private isTold: bool;
  private chain: CallChain;
  /** The page that came before in the request, or NONE, and the call that had it. */
  private previous: u32;
  private previousCall: u32;
  /** The page that was last returned after an unpin, or NONE, and the call that had it. */
  private unpinned: u32;
  private unpinnedCall: u32;
  /**
   * List of the next victim, or NONE if it must be searched for again because lists have lost their oldest page, or
   * were filled, aged or revalued.
   */
  private victimList: u32;

  /** `unitBytes`: the power of two in multiples of which pages take space. */
  constructor(slots: Records, tenant: u32, capacityBytes: u64, unitBytes: u64) {
    this.slots = slots;
    this.tenant = tenant;
    this.unitShift = ctz(unitBytes);
    this.pages = new AgedLists(slots, CLASSES);
    this.ghosts = new AgedLists(slots, CLASSES);
    this.values = new PageValues(CLASSES);
    this.callers = new Callers();
    this.chain = new CallChain();
    this.tickUnits = max<u64>(1, capacityBytes / unitBytes / TICKS_PER_TURNOVER);
    this.tick = 1 - TICKS_BEFORE_WRAP;
    this.awaited = new Awaited(slots);
    this.nowMs = 0;
    this.paceTick = 1 - TICKS_BEFORE_WRAP;
    this.paceMs = 0;
    this.msPerTick = 0;
    this.shadow = new LruShadow(capacityBytes / unitBytes, 1 - TICKS_BEFORE_WRAP);
    this.duel = new Duel(1 - TICKS_BEFORE_WRAP);
    this.waitingUnits = 0;
    this.requests = 0;
    this.requested = 0;
    this.pagesBefore = 0;
    this.learnPages = 0;
    this.learnTick = 0 - TICKS_BEFORE_WRAP;
    this.halvePages = 0;
    this.halveTick = 0 - TICKS_BEFORE_WRAP;
    this.ghostsMax = GHOSTS_MIN;
    this.call = 0;
    this.hint = 0;
    this.caller = this.callers.at(0);
    this.endsElsewhere = false;
    this.mayRepeat = false;
    this.isTold = false;
    this.previous = NONE;
    this.previousCall = 0;
    this.unpinned = NONE;
    this.unpinnedCall = 0;
    this.victimList = NONE;
    this.values.learn(this.pages, this.ghosts, 0);
  }

  /**
   * A call of `keys` keys. `about`: the hint in the lowest two bits; bit 2: it goes on with the request of the caller's
   * last call; bit 3: it does not; neither: see {@link continues}. Bit 4: none of its pages is the last one of the
   * request. Above: the caller's number.
   */
  begin(keys: u32, about: u32, isWrite: bool, request: u32): void {
    const isTold = (about & CONTINUES) != 0;
    // At least as many ghosts as the call could ask for: else it would push out the ones that its last keys are about
    // to find.
    this.ghostsMax = max(this.ghostsMax, max(keys, this.pages.count + GHOSTS_MIN));
    this.call = (this.call + 1) & CALL_MASK;
    this.hint = about & HINT_MASK;
    const caller = this.callers.at(about >> CALLER_SHIFT);
    this.caller = caller;
    this.endsElsewhere = (about & ENDS_ELSEWHERE) != 0;
    this.previous = callerSlot(caller);
    this.previousCall = callerSlotCall(caller);
    if (!this.isPrevious(LIVE) && !this.isPrevious(GHOST)) this.previous = NONE;
    this.isTold = isTold;
    const isContinued = isTold || ((about & BEGINS) == 0 && continues(caller, isWrite));
    // All pages of a request are of one age, so that the last ones go first also when it is longer than the pool. Who
    // never ends one must not stop the clock; nor must requests of one length, which look like slices of one.
    const ticksMax = isTold ? REQUEST_TICKS_MAX : TICKS_PER_TURNOVER;
    if (!isContinued || this.waitingUnits >= this.tickUnits * ticksMax) this.advance();
    if (this.duel.judge(this.tick)) this.changeJudge();
    this.mayRepeat = isContinued && !isTold;
    this.chain.note(this.call, isContinued ? this.previousCall : this.call);
    this.chain.setRequest(this.call, request);
    if (!isContinued) this.beginRequest();
    noteCall(caller, keys, isWrite);
  }

  end(): void {
    const isLast = !this.endsElsewhere && (this.isPrevious(LIVE) || this.isPrevious(GHOST));
    setCallerSlot(this.caller, isLast ? this.previous : NONE, this.previousCall);
  }

  /**
   * Counts a hit on a page or a ghost that is about to be published anew; returns how many it has had, for `insert`.
   */
  @inline
  recall(slot: u32): u32 {
    const at = this.slots.at(slot);
    const hits = slotClassOf(at) >> 3;
    if (this.isRepeated(at)) {
      this.shadow.leave(slotFrequency(at), this.unitsOf(at));
      return hits;
    }
    this.checkRepeat(at);
    this.countKnown(at);
    this.values.countHit(this.listOf(at));
    return min(HITS_MAX, hits + 1);
  }

  @inline
  insert(slot: u32, hits: u32): void {
    if (hits == 0) this.duel.count(0, false, false);
    this.place(slot, hits);
    this.link(slot, this.previous);
    this.follow(slot);
  }

  use(slot: u32): void {
    const at = this.slots.at(slot);
    if (this.isRepeated(at)) return;
    this.checkRepeat(at);
    this.countKnown(at);
    const list = this.listOf(at);
    this.values.countHit(list);
    const isPinned = slotPins(at) > 0;
    if (!isPinned) this.unlink(list, slot);
    this.place(slot, min(HITS_MAX, (slotClassOf(at) >> 3) + 1));
    if (isPinned) return;
    this.link(slot, this.previous);
    this.follow(slot);
  }

  /**
   * After a pin. Pages of a request come back in its order, from one call and those that go on with it, and are placed
   * as they were.
   */
  restore(slot: u32): void {
    const at = this.slots.at(slot);
    this.shadow.leave(slotFrequency(at), this.unitsOf(at));
    this.stamp(at);
    const call = slotCall(at);
    const last = this.unpinned;
    const isThere = last != NONE && this.isOf(this.slots.at(last), this.unpinnedCall);
    this.link(slot, isThere && this.chain.continues(call, this.unpinnedCall) ? last : NONE);
    this.unpinned = slot;
    this.unpinnedCall = call;
  }

  /** Adds a page from before a restart: it is the newest one now, and belongs to no request. */
  adopt(slot: u32): void {
    const at = this.slots.at(slot);
    this.waitingUnits += this.unitsOf(at);
    this.advance();
    this.stamp(at);
    setSlotQueue(at, this.call << CLASS_BITS);
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

  remove(slot: u32): void {
    this.unlink(this.listOf(this.slots.at(slot)), slot);
  }

  /** Tells the time, which does not go back. Pages that were expected by now are in their lists again. */
  tellTime(nowMs: f64): void {
    if (nowMs == this.nowMs) return;
    this.nowMs = nowMs;
    for (let slot = this.awaited.overdue(nowMs); slot != NONE; slot = this.awaited.overdue(nowMs)) {
      this.awaited.remove(slot);
      this.insertInto(this.listOf(this.slots.at(slot)), slot, NONE);
    }
    const ticks = this.tick - this.paceTick;
    if (ticks < PACE_TICKS || nowMs <= this.paceMs) return;
    const pace = (nowMs - this.paceMs) / <f64>ticks;
    if (this.paceMs > 0) this.msPerTick = this.msPerTick == 0 ? pace : (this.msPerTick + pace) / 2;
    this.paceTick = this.tick;
    this.paceMs = nowMs;
  }

  /** Something else decides from now on. Unless expectations do, all awaited pages are in their lists again. */
  private changeJudge(): void {
    this.victimList = NONE;
    if (this.duel.decides == EXPECTATIONS) return;
    for (let slot = this.awaited.any(); slot != NONE; slot = this.awaited.any()) {
      this.awaited.remove(slot);
      this.insertInto(this.listOf(this.slots.at(slot)), slot, NONE);
    }
  }

  /**
   * Notes that a page in the order will be asked for in so many milliseconds; Infinity: never again. `newer`: the page
   * before it in its request, or NONE.
   */
  expect(slot: u32, inMs: f64, newer: u32): void {
    this.duel.hasExpectations = true;
    if (this.duel.decides != EXPECTATIONS) return;
    const at = this.slots.at(slot);
    this.unlink(this.listOf(at), slot);
    if (!this.awaited.insert(slot, this.nowMs, inMs, newer)) this.insertInto(this.listOf(at), slot, NONE);
  }

  /** Evicts the slot that {@link victim} has just named; it is always kept, as a ghost of the same class and stage. */
  @inline
  evict(slot: u32): void {
    const at = this.slots.at(slot);
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
    return this.chain.requestOf(slotCall(this.slots.at(slot))) == request;
  }

  /** Learns of a new page that gets no place: it is evicted at once. */
  refuse(slot: u32, hits: u32): void {
    this.place(slot, hits);
    this.ghosts.insert(this.listOf(this.slots.at(slot)), slot);
    this.follow(slot);
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

  /** Writes all slots as u32, by the rank of their lists; returns the address after the last. */
  writeOrder(out: usize): usize {
    out = this.awaited.writeOrder(out);
    for (let rank: u32 = 0; rank < CLASSES * STAGES; rank++) {
      const list = this.pages.at(this.values.atRank(rank));
      for (let slot = list.head; slot != NONE; slot = list.next(slot)) {
        store<u32>(out, slot);
        out += 4;
      }
    }
    return out;
  }

  /** Whether lists, ranks and slots agree. */
  isConsistent(): bool {
    if (!this.shadow.isConsistent() || !this.awaited.isConsistent() || !this.pages.isConsistent() || !this.ghosts.isConsistent() || !this.values.isConsistent(this.pages)) return false;
    for (let list: u32 = 0; list < CLASSES * STAGES; list++) {
      if (!this.isListRight(this.pages.at(list), list, LIVE)) return false;
      if (!this.isListRight(this.ghosts.at(list), list, GHOST)) return false;
    }
    if (this.victimList != NONE && this.victimList != this.leastList()) return false;
    return this.overdueGhost() == NONE;
  }

  dispose(): void {
    this.pages.dispose();
    this.ghosts.dispose();
    this.values.dispose();
    this.callers.dispose();
    this.chain.dispose();
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
    if (this.requested - this.halvePages >= HALVE_PAGES && this.tick - this.halveTick >= HALVE_TICKS) {
      this.halvePages = this.requested;
      this.halveTick = this.tick;
      this.values.halve();
      this.requests >>= 1;
      this.pagesBefore = this.requested - ((this.requested - this.pagesBefore) >> 1);
    }
    if (this.requested - this.learnPages >= LEARN_PAGES && this.tick - this.learnTick >= LEARN_TICKS) {
      this.learnPages = this.requested;
      this.learnTick = this.tick;
      this.values.learn(this.pages, this.ghosts, (this.requested - this.pagesBefore) / max<u64>(1, this.requests));
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

  /** Begins a request. Only now is it known that the caller's last page was the last one of its request. */
  private beginRequest(): void {
    this.requests++;
    this.duel.beginRequest();
    setCallerFirst(this.caller, this.call);
    this.chain.note(this.call, this.call);
    // Pages may have been evicted since the call began, for one that then found no room.
    if (this.isPrevious(LIVE)) this.markLast(this.previous);
    this.previous = NONE;
  }

  /**
   * Whether the call, or what it was said to go on with, has had the page already: a part of a request may be tried
   * again.
   */
  @inline
  private isRepeated(at: usize): bool {
    const call = slotCall(at);
    return call == this.call || (this.isTold && this.chain.continues(this.call, call));
  }

  /** Begins a new request if the call begins with a page of the last one: no request has a page twice. */
  private checkRepeat(at: usize): void {
    if (!this.mayRepeat) return;
    this.mayRepeat = false;
    const age = (this.call - slotCall(at)) & CALL_MASK;
    if (age <= ((this.call - callerFirst(this.caller)) & CALL_MASK)) this.beginRequest();
  }

  /** Sets the current class and age of the slot. */
  @inline
  private place(slot: u32, hits: u32): void {
    const at = this.slots.at(slot);
    this.stamp(at);
    setSlotQueue(at, (this.call << CLASS_BITS) | (hits << 3) | this.hint);
    this.mayRepeat = false;
    this.waitingUnits += this.unitsOf(at);
    this.requested++;
  }

  /** Gives a page the tick of now. */
  @inline
  private stamp(at: usize): void {
    setSlotFrequency(at, this.tick);
    this.shadow.enter(this.tick, this.unitsOf(at));
  }

  /** Counts the request's next page, which is here or a ghost, before it is stamped anew. */
  @inline
  private countKnown(at: usize): void {
    const units = this.unitsOf(at);
    const tick = slotFrequency(at);
    this.duel.count(units, slotStatus(at) == LIVE, this.shadow.holds(tick));
    this.shadow.leave(tick, units);
  }

  @inline
  private follow(slot: u32): void {
    this.previous = slot;
    this.previousCall = this.call;
  }

  /** Whether the previous page is still the same one, in that status. */
  private isPrevious(status: u32): bool {
    if (this.previous == NONE) return false;
    const at = this.slots.at(this.previous);
    return slotStatus(at) == status && this.isOf(at, this.previousCall);
  }

  /**
   * Whether a slot has a page of this order that was last placed by that call. Low and high pages are of another one.
   */
  @inline
  private isOf(at: usize, call: u32): bool {
    return slotCall(at) == call && slotTenant(at) == this.tenant && slotPriority(at) == NORMAL;
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
    if (this.msPerTick == 0) return false;
    const ticks = this.awaited.msUntilLast() / this.msPerTick;
    return ticks * QUARTER_TICKS * <f64>this.values.value(this.victimList) > VALUE_ONE;
  }

  private markLast(slot: u32): void {
    const at = this.slots.at(slot);
    const isPinned = slotPins(at) > 0 || isAwaited(at);
    if (!isPinned) this.unlink(this.listOf(at), slot);
    setSlotQueue(at, slotQueue(at) | LAST);
    if (!isPinned) this.insertInto(this.listOf(at), slot, NONE);
  }

  /**
   * The list of the next victim: of all that are hardly worth more than the least one, the one whose oldest page has
   * waited longest. Where nothing is learned that tells pages apart, that is the least recently used one.
   */
  private leastList(): u32 {
    if (this.duel.decides == LAST_USE) return this.oldestList();
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

  /**
   * The list of the page that was used longest ago, or NONE. Of one age, those go first that no request has known, as
   * they are behind the others in their request.
   */
  private oldestList(): u32 {
    if (this.pages.count == 0) return NONE;
    const stage = this.pages.oldestStage();
    let oldest = NONE;
    let longest: u32 = 0;
    for (let bits = this.pages.classesIn(stage); bits != 0; bits &= bits - 1) {
      const list = ctz(bits) * STAGES + stage;
      const age = this.ageOfHead(list);
      if (oldest != NONE && (age < longest || (age == longest && !isBehind(list / STAGES, oldest / STAGES)))) continue;
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

  private isListRight(list: List, index: u32, status: u32): bool {
    for (let slot = list.head; slot != NONE; slot = list.next(slot)) {
      const at = this.slots.at(slot);
      if (slotStatus(at) != status || slotPins(at) != 0 || this.listOf(at) != index) return false;
    }
    return true;
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

/** Whether pages of a class are behind those of another in a request: its last page, then those with fewest hits. */
function isBehind(a: u32, b: u32): bool {
  const isLast = (a & LAST) != 0;
  if (isLast != ((b & LAST) != 0)) return isLast;
  return a < b;
}
