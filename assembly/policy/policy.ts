import { NONE, Records } from '../records';
import { NORMAL, setSlotPriority, slotPriority, slotRequest } from '../slot';
import { Lru } from './lru';
import { PriorityLists } from './priority-lists';
import { S3Fifo } from './s3fifo';
import { Yield } from './yield/yield';

export const POLICY_LRU: u32 = 0;
export const POLICY_S3FIFO: u32 = 1;
export const POLICY_YIELD: u32 = 2;

/**
 * The order of eviction of one tenant's pages: low pages, then normal pages in the order of the policy, then high
 * pages. The priority of a page is in its slot, and changes only by `setPriority`, or while the page is in no order.
 *
 * The caller guarantees: `insert` or `adopt` once per page, then only `use`, `renew`, `expect` and `setPriority` until
 * `drop` (requested), `remove` (pinned) or `evict` (capacity); after a `remove`, `restore` or `drop`. `insert` and `use`
 * come between `begin` and `end` of a call. A slot that `evict` keeps stays a ghost until `forgetGhost` or `expireGhost`; after
 * evictions, `expireGhost` is called until no ghost is overdue. Pinned pages are never in the order, so finding a
 * victim never has to skip one.
 */
@unmanaged
export class Policy {
  private kind: u32;
  private slots: Records;
  private lists: PriorityLists;
  private lru: Lru;
  private s3fifo: S3Fifo;
  private yields: Yield;
  /** Number of the running call's request. */
  private request: u32;

  /** `tenant`: number of the tenant whose pages are ordered here. */
  constructor(kind: u32, slots: Records, tenant: u32, capacityBytes: u64, alignmentBytes: u64) {
    this.kind = kind;
    this.slots = slots;
    this.lists = new PriorityLists(slots, capacityBytes, alignmentBytes);
    this.lru = kind == POLICY_LRU ? new Lru(slots) : changetype<Lru>(0);
    this.s3fifo = kind == POLICY_S3FIFO ? new S3Fifo(slots, capacityBytes) : changetype<S3Fifo>(0);
    this.yields = kind == POLICY_YIELD ? new Yield(slots, tenant, capacityBytes, alignmentBytes) : changetype<Yield>(0);
    this.request = 0;
  }

  /** Begins a call with `keys` keys of that request; see {@link Yield.begin} for `about`. */
  begin(keys: u32, about: u32, isWrite: bool, request: u32): void {
    this.request = request;
    if (this.kind == POLICY_YIELD) this.yields.begin(keys, about, isWrite, request);
  }

  end(): void {
    if (this.kind == POLICY_YIELD) this.yields.end();
  }

  /** What to pass to `insert` for a page or ghost that is about to be published again. */
  recall(slot: u32): u32 {
    return this.kind == POLICY_YIELD && this.isNormal(slot) ? this.yields.recall(slot) : 0;
  }

  /**
   * Adds a page. `known`: the result of `recall`, or 0. `wasGhost`: the slot was kept at its eviction, and
   * `forgetGhost` has just been called.
   */
  @inline
  insert(slot: u32, known: u32, wasGhost: bool): void {
    if (!this.isNormal(slot)) this.enlist(slot);
    else if (this.kind == POLICY_LRU) this.lru.insert(slot, this.request);
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.insert(slot, wasGhost, this.request);
    else this.yields.insert(slot, known);
  }

  /** Adds a normal page without any history, such as one from before a restart. */
  adopt(slot: u32): void {
    if (this.kind == POLICY_YIELD) this.yields.adopt(slot);
    else if (this.kind == POLICY_LRU) this.lru.insert(slot, 0);
    else this.s3fifo.insert(slot, false, 0);
  }

  /** Changes the priority of a page, which becomes the newest one of its new order. */
  setPriority(slot: u32, priority: u32, isPinned: bool): void {
    const at = this.slots.at(slot);
    if (slotPriority(at) == priority) return;
    this.drop(slot, isPinned);
    setSlotPriority(at, priority);
    if (priority == NORMAL) {
      // The policy records what it knows of a page when it gets the page, so a pinned page is added, then removed
      // again.
      this.adopt(slot);
      if (isPinned) this.remove(slot);
    } else if (!isPinned) {
      this.enlist(slot);
    }
  }

  /** Tells the time. */
  @inline
  tellTime(nowMs: f64): void {
    if (this.kind == POLICY_YIELD) this.yields.tellTime(nowMs);
  }

  /** Notes when an unpinned page will be asked for; see {@link Yield.expect}. The other policies ignore it. */
  expect(slot: u32, inMs: f64, newer: u32): void {
    if (this.kind == POLICY_YIELD && this.isNormal(slot)) this.yields.expect(slot, inMs, newer);
  }

  restore(slot: u32): void {
    if (!this.isNormal(slot)) this.enlist(slot);
    else if (this.kind == POLICY_LRU) this.lru.restore(slot);
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.restore(slot);
    else this.yields.restore(slot);
  }

  use(slot: u32, isPinned: bool): void {
    if (!this.isNormal(slot)) this.useListed(slot, isPinned);
    else if (this.kind == POLICY_YIELD) this.yields.use(slot);
    else if (!isPinned) this.useInOrder(slot);
  }

  /** Makes the page the newest one, as if used, without learning from it. */
  renew(slot: u32, isPinned: bool): void {
    if (!this.isNormal(slot)) this.useListed(slot, isPinned);
    else if (this.kind == POLICY_YIELD) this.yields.renew(slot);
    else if (!isPinned) this.useInOrder(slot);
  }

  /** Removes a page for good, pinned or not. */
  drop(slot: u32, isPinned: bool): void {
    if (this.kind == POLICY_YIELD && this.isNormal(slot)) this.yields.drop(slot, isPinned);
    else if (!isPinned) this.remove(slot);
  }

  /** Takes a page that is being pinned out of the order. */
  remove(slot: u32): void {
    if (!this.isNormal(slot)) this.lists.remove(slot);
    else if (this.kind == POLICY_LRU) this.lru.remove(slot);
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.remove(slot);
    else this.yields.remove(slot);
  }

  /** Evicts a page. True: keep the slot, without its range, as a ghost. */
  @inline
  evict(slot: u32): bool {
    if (!this.isNormal(slot)) {
      this.lists.remove(slot);
      return false;
    }
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.evict(slot);
    if (this.kind == POLICY_LRU) {
      this.lru.remove(slot);
      return false;
    }
    this.yields.evict(slot);
    return true;
  }

  /**
   * Whether a normal page in the order was last published or used by that request, for example the running call's,
   * which may be another tenant's.
   */
  isOwn(slot: u32, request: u32): bool {
    if (!this.isNormal(slot)) return false;
    if (this.kind == POLICY_YIELD) return this.yields.isOwn(slot, request);
    return slotRequest(this.slots.at(slot)) == request;
  }

  /** Learns of a new normal page that gets no place. `known`: as for `insert`. True: keep its slot as a ghost. */
  refuse(slot: u32, known: u32): bool {
    if (this.kind == POLICY_LRU) return false;
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.refuse(slot);
    this.yields.refuse(slot, known);
    return true;
  }

  forgetGhost(slot: u32): void {
    if (this.kind == POLICY_S3FIFO) this.s3fifo.forgetGhost(slot);
    else if (this.kind == POLICY_YIELD) this.yields.forgetGhost(slot);
  }

  /** Like {@link forgetGhost}, for an overdue ghost. */
  @inline
  expireGhost(slot: u32): void {
    if (this.kind == POLICY_YIELD) this.yields.expireGhost(slot);
    else this.forgetGhost(slot);
  }

  /** A ghost to forget because there are too many, or NONE. */
  @inline
  overdueGhost(): u32 {
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.overdueGhost();
    return this.kind == POLICY_YIELD ? this.yields.overdueGhost() : NONE;
  }

  /** First slot of the list whose slots publishes will probably free, in that order; or NONE. */
  leaving(): u32 {
    if (this.lists.low.count > 0) return this.lists.low.head;
    if (this.kind == POLICY_LRU) return this.lru.victim();
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.ghosts.head;
    return this.yields.ghosts.count == 0 ? NONE : this.yields.oldestGhost();
  }

  get ghosts(): u32 {
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.ghosts.count;
    return this.kind == POLICY_YIELD ? this.yields.ghosts.count : 0;
  }

  /** Number of pages in the order. */
  get pages(): u32 {
    return this.lists.count + this.normal;
  }

  /** The next page to evict, or NONE; it stays in the order until `evict`. */
  @inline
  victim(): u32 {
    const low = this.lists.low.head;
    if (low != NONE) return low;
    const normal = this.normalVictim();
    return normal == NONE ? this.lists.high.head : normal;
  }

  /** Writes all slots as u32, next victim first as far as predictable; returns the address after the last. */
  writeOrder(out: usize): usize {
    return this.lists.high.write(this.writeNormal(this.lists.low.write(out)));
  }

  /**
   * Whether the order is consistent and holds exactly these numbers of pages by priority. `normalUnits`: space of all
   * normal pages, pinned ones included.
   */
  isRight(normal: u32, low: u32, high: u32, normalUnits: u64): bool {
    const lists = this.lists;
    if (lists.low.count != low || lists.high.count != high || !lists.isConsistent()) return false;
    return this.normal == normal && this.isNormalConsistent(normalUnits);
  }

  dispose(): void {
    this.lists.dispose();
    if (this.kind == POLICY_LRU) this.lru.dispose();
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.dispose();
    else this.yields.dispose();
    heap.free(changetype<usize>(this));
  }

  @inline
  private isNormal(slot: u32): bool {
    return slotPriority(this.slots.at(slot)) == NORMAL;
  }

  /**
   * Puts a low or high page into its list. High pages above the limit then become normal, as the newest normal ones.
   */
  private enlist(slot: u32): void {
    this.lists.insert(slot);
    for (let overdue = this.lists.overdue(); overdue != NONE; overdue = this.lists.overdue()) {
      this.setPriority(overdue, NORMAL, false);
    }
  }

  private useListed(slot: u32, isPinned: bool): void {
    if (!isPinned) this.lists.use(slot);
  }

  private useInOrder(slot: u32): void {
    if (this.kind == POLICY_LRU) this.lru.use(slot, this.request);
    else this.s3fifo.use(slot, this.request);
  }

  /** Number of normal pages in the order. */
  private get normal(): u32 {
    if (this.kind == POLICY_LRU) return this.lru.order.count;
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.small.count + this.s3fifo.main.count;
    return this.yields.pages.count + this.yields.awaited.count;
  }

  @inline
  private normalVictim(): u32 {
    if (this.kind == POLICY_LRU) return this.lru.victim();
    return this.kind == POLICY_S3FIFO ? this.s3fifo.victim() : this.yields.victim();
  }

  private writeNormal(out: usize): usize {
    if (this.kind == POLICY_LRU) return this.lru.order.write(out);
    if (this.kind == POLICY_YIELD) return this.yields.writeOrder(out);
    return this.s3fifo.main.write(this.s3fifo.small.write(out));
  }

  private isNormalConsistent(units: u64): bool {
    if (this.kind == POLICY_LRU) return this.lru.order.isConsistent();
    return this.kind == POLICY_YIELD ? this.yields.isConsistent(units) : this.s3fifo.isConsistent();
  }
}
