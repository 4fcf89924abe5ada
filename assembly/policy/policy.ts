import { List } from '../list';
import { NONE, Records } from '../records';
import { Lru } from './lru';
import { S3Fifo } from './s3fifo';

export const POLICY_LRU: u32 = 0;
export const POLICY_S3FIFO: u32 = 1;

/**
 * The order of eviction of one pool. The caller guarantees: `insert` once a page, then only `use`
 * until `remove` (asked for, or pinned) or `evict` (capacity); `restore` after a `remove` for a pin. What `evict` keeps
 * stays a ghost in its slot until `forgetGhost`; after evictions that is called until no ghost is overdue.
 * Pinned pages are never in it, so that finding a victim never has to step over one.
 */
@unmanaged
export class Policy {
  private kind: u32;
  private lru: Lru;
  private s3fifo: S3Fifo;

  constructor(kind: u32, slots: Records, capacityBytes: u64) {
    this.kind = kind;
    this.lru = kind == POLICY_LRU ? new Lru(slots) : changetype<Lru>(0);
    this.s3fifo = kind == POLICY_S3FIFO ? new S3Fifo(slots, capacityBytes) : changetype<S3Fifo>(0);
  }

  /** `wasGhost`: the slot was kept at its eviction, and `forgetGhost` was called just now. */
  insert(slot: u32, wasGhost: bool): void {
    if (this.kind == POLICY_LRU) this.lru.insert(slot);
    else this.s3fifo.insert(slot, wasGhost);
  }

  restore(slot: u32): void {
    if (this.kind == POLICY_LRU) this.lru.insert(slot);
    else this.s3fifo.restore(slot);
  }

  use(slot: u32): void {
    if (this.kind == POLICY_LRU) this.lru.use(slot);
    else this.s3fifo.use(slot);
  }

  remove(slot: u32): void {
    if (this.kind == POLICY_LRU) this.lru.remove(slot);
    else this.s3fifo.remove(slot);
  }

  /** True: keep the slot, without its range, as a ghost. */
  evict(slot: u32): bool {
    if (this.kind == POLICY_S3FIFO) return this.s3fifo.evict(slot);
    this.lru.remove(slot);
    return false;
  }

  forgetGhost(slot: u32): void {
    if (this.kind == POLICY_S3FIFO) this.s3fifo.forgetGhost(slot);
  }

  /** A ghost to forget because there are too many, or NONE. */
  overdueGhost(): u32 {
    return this.kind == POLICY_S3FIFO ? this.s3fifo.overdueGhost() : NONE;
  }

  get ghosts(): u32 {
    return this.kind == POLICY_S3FIFO ? this.s3fifo.ghosts.count : 0;
  }

  /** The page that is due to go, or NONE; it stays in the order until `evict`. */
  victim(): u32 {
    return this.kind == POLICY_LRU ? this.lru.victim() : this.s3fifo.victim();
  }

  /** Writes all slots as u32, next victim first (second chances not foreseen); returns the address after the last. */
  writeOrder(out: usize): usize {
    if (this.kind == POLICY_LRU) return writeList(this.lru.order, out);
    return writeList(this.s3fifo.main, writeList(this.s3fifo.small, out));
  }

  /** Pages in the order; NONE when it is broken. */
  recount(): u32 {
    if (this.kind == POLICY_LRU) return this.lru.order.isConsistent() ? this.lru.order.count : NONE;
    return this.s3fifo.isConsistent() ? this.s3fifo.small.count + this.s3fifo.main.count : NONE;
  }

  dispose(): void {
    if (this.kind == POLICY_LRU) this.lru.dispose();
    else this.s3fifo.dispose();
    heap.free(changetype<usize>(this));
  }
}

function writeList(list: List, out: usize): usize {
  for (let slot = list.head; slot != NONE; slot = list.next(slot)) {
    store<u32>(out, slot);
    out += 4;
  }
  return out;
}
