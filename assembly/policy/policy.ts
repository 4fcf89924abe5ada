import { List } from '../list';
import { NONE, Records } from '../records';
import { Lru } from './lru';
import { S3Fifo } from './s3fifo';
import { Yield } from './yield';

export const POLICY_LRU: u32 = 0;
export const POLICY_S3FIFO: u32 = 1;
export const POLICY_YIELD: u32 = 2;

/**
 * The order of eviction of one tenant's pages. The caller guarantees: `insert` or `adopt` once a page, then only `use` and `renew`
 * until `remove` (asked for, or pinned) or `evict` (capacity); `restore` after a `remove` for a pin. `insert` and
 * `use` come between `begin` and `end` of a call. What `evict` keeps stays a ghost in its slot until `forgetGhost` or
 * `expireGhost`; after evictions the latter is called until no ghost is overdue.
 * Pinned pages are never in it, so that finding a victim never has to step over one.
 */
@unmanaged
export class Policy {
  private kind: u32;
  private lru: Lru;
  private s3fifo: S3Fifo;
  private yields: Yield;

  /** `tenant`: number of the tenant whose pages it orders. */
  constructor(kind: u32, slots: Records, tenant: u32, capacityBytes: u64, alignmentBytes: u64) {
    this.kind = kind;
    this.lru = kind == POLICY_LRU ? new Lru(slots) : changetype<Lru>(0);
    this.s3fifo = kind == POLICY_S3FIFO ? new S3Fifo(slots, capacityBytes) : changetype<S3Fifo>(0);
    this.yields = kind == POLICY_YIELD ? new Yield(slots, tenant, capacityBytes, alignmentBytes) : changetype<Yield>(0);
  }

  /** A call with so many keys; see {@link Yield.begin} for `about`. */
  begin(keys: u32, about: u32, isWrite: bool): void {
    if (this.kind == POLICY_YIELD) this.yields.begin(keys, about, isWrite);
  }

  end(): void {
    if (this.kind == POLICY_YIELD) this.yields.end();
  }

  /** Of a page or a ghost that is about to be published anew: what to tell `insert`. */
  recall(slot: u32): u32 {
    return this.kind == POLICY_YIELD ? this.yields.recall(slot) : 0;
  }

  /** `known`: what `recall` said, or 0. `wasGhost`: the slot was kept at its eviction, and `forgetGhost` was called just now. */
  @inline
  insert(slot: u32, known: u32, wasGhost: bool): void {
    if (this.kind == POLICY_LRU) this.lru.insert(slot);
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.insert(slot, wasGhost);
    else this.yields.insert(slot, known);
  }

  /** A page that was there before a restart. */
  adopt(slot: u32): void {
    if (this.kind == POLICY_YIELD) this.yields.adopt(slot);
    else this.insert(slot, 0, false);
  }

  restore(slot: u32): void {
    if (this.kind == POLICY_LRU) this.lru.insert(slot);
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.restore(slot);
    else this.yields.restore(slot);
  }

  use(slot: u32, isPinned: bool): void {
    if (this.kind == POLICY_YIELD) this.yields.use(slot);
    else if (!isPinned) this.useInOrder(slot);
  }

  /** The page becomes the newest one as if used, but nothing is learned from it. */
  renew(slot: u32, isPinned: bool): void {
    if (this.kind == POLICY_YIELD) this.yields.renew(slot);
    else if (!isPinned) this.useInOrder(slot);
  }

  remove(slot: u32): void {
    if (this.kind == POLICY_LRU) this.lru.remove(slot);
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.remove(slot);
    else this.yields.remove(slot);
  }

  /** True: keep the slot, without its range, as a ghost. */
  @inline
  evict(slot: u32): bool {
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.evict(slot);
    if (this.kind == POLICY_LRU) {
      this.lru.remove(slot);
      return false;
    }
    this.yields.evict(slot);
    return true;
  }

  forgetGhost(slot: u32): void {
    if (this.kind == POLICY_S3FIFO) this.s3fifo.forgetGhost(slot);
    else if (this.kind == POLICY_YIELD) this.yields.forgetGhost(slot);
  }

  /** Like {@link forgetGhost}, of an overdue one. */
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

  /** The first slot of the list whose slots publishes probably give up, in their order, or NONE. */
  leaving(): u32 {
    if (this.kind == POLICY_LRU) return this.lru.victim();
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.ghosts.head;
    return this.yields.ghosts.count == 0 ? NONE : this.yields.oldestGhost();
  }

  get ghosts(): u32 {
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.ghosts.count;
    return this.kind == POLICY_YIELD ? this.yields.ghosts.count : 0;
  }

  /** Pages in the order. */
  get pages(): u32 {
    if (this.kind == POLICY_LRU) return this.lru.order.count;
    return this.kind == POLICY_S3FIFO ? this.s3fifo.small.count + this.s3fifo.main.count : this.yields.pages.count;
  }

  /** The page that is due to go, or NONE; it stays in the order until `evict`. */
  @inline
  victim(): u32 {
    if (this.kind == POLICY_LRU) return this.lru.victim();
    return this.kind == POLICY_S3FIFO ? this.s3fifo.victim() : this.yields.victim();
  }

  /** Writes all slots as u32, next victim first, as far as it can be foreseen; returns the address after the last. */
  writeOrder(out: usize): usize {
    if (this.kind == POLICY_LRU) return writeList(this.lru.order, out);
    if (this.kind == POLICY_YIELD) return this.yields.writeOrder(out);
    return writeList(this.s3fifo.main, writeList(this.s3fifo.small, out));
  }

  /** Pages in the order; NONE when it is broken. */
  recount(): u32 {
    if (this.kind == POLICY_LRU) return this.lru.order.isConsistent() ? this.lru.order.count : NONE;
    if (this.kind == POLICY_YIELD) return this.yields.isConsistent() ? this.yields.pages.count : NONE;
    return this.s3fifo.isConsistent() ? this.s3fifo.small.count + this.s3fifo.main.count : NONE;
  }

  dispose(): void {
    if (this.kind == POLICY_LRU) this.lru.dispose();
    else if (this.kind == POLICY_S3FIFO) this.s3fifo.dispose();
    else this.yields.dispose();
    heap.free(changetype<usize>(this));
  }

  private useInOrder(slot: u32): void {
    if (this.kind == POLICY_LRU) this.lru.use(slot);
    else this.s3fifo.use(slot);
  }
}

function writeList(list: List, out: usize): usize {
  for (let slot = list.head; slot != NONE; slot = list.next(slot)) {
    store<u32>(out, slot);
    out += 4;
  }
  return out;
}
