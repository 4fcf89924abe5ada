import { List } from '../list';
import { NONE, Records } from '../records';
import { GHOST, setSlotQueue, setSlotUses, slotBytes, slotQueue, slotRequest, slotStatus, slotUses } from '../slot';

/**
 * S3-FIFO: a small probationary FIFO (a tenth of the bytes), a main FIFO with second chances, and ghosts: pages that
 * the small queue dropped lately (as many bytes of pages as the main queue may hold). A new page enters the small
 * queue, or the main one if its ghost is still known. A page used twice while in the small queue moves to the main one
 * instead of being evicted.
 */

const SMALL: u32 = 0;
const MAIN: u32 = 1;
const FREQUENCY_MAX: u32 = 3;
const PROMOTE_FREQUENCY: u32 = 2;

@unmanaged
export class S3Fifo {
  private slots: Records;
  small: List;
  main: List;
  ghosts: List;
  private smallBytes: u64;
  private smallTargetBytes: u64;
  private ghostBytes: u64;
  private ghostMaxBytes: u64;
  /** Largest number of pages at once so far. */
  private pagesMax: u32;

  constructor(slots: Records, capacityBytes: u64) {
    const smallTargetBytes = max<u64>(1, capacityBytes / 10);
    this.slots = slots;
    this.small = new List(slots);
    this.main = new List(slots);
    this.ghosts = new List(slots);
    this.smallBytes = 0;
    this.smallTargetBytes = smallTargetBytes;
    this.ghostBytes = 0;
    this.ghostMaxBytes = capacityBytes - smallTargetBytes;
    this.pagesMax = 0;
  }

  insert(slot: u32, wasGhost: bool, request: u32): void {
    const at = this.slots.at(slot);
    setSlotUses(at, 0, request);
    setSlotQueue(at, wasGhost ? MAIN : SMALL);
    this.restore(slot);
    this.pagesMax = max<u32>(this.pagesMax, this.small.count + this.main.count);
  }

  /** Returns a page after its last unpin to the end of the queue that it was in. */
  restore(slot: u32): void {
    const at = this.slots.at(slot);
    if (slotQueue(at) == MAIN) {
      this.main.append(slot);
    } else {
      this.small.append(slot);
      this.smallBytes += slotBytes(at);
    }
  }

  @inline
  use(slot: u32, request: u32): void {
    const at = this.slots.at(slot);
    setSlotUses(at, min(FREQUENCY_MAX, slotUses(at) + 1), request);
  }

  /** Makes a new page that gets no place a ghost at once. False: it is not kept as one. */
  refuse(slot: u32): bool {
    const at = this.slots.at(slot);
    if (ghostSize(at) > this.ghostMaxBytes) return false;
    setSlotUses(at, 0, 0);
    setSlotQueue(at, SMALL);
    this.ghosts.append(slot);
    this.ghostBytes += ghostSize(at);
    return true;
  }

  remove(slot: u32): void {
    const at = this.slots.at(slot);
    if (slotQueue(at) == MAIN) {
      this.main.remove(slot);
    } else {
      this.small.remove(slot);
      this.smallBytes -= slotBytes(at);
    }
  }

  /** Evicts a page. True: the slot stays as a ghost. */
  evict(slot: u32): bool {
    this.remove(slot);
    const at = this.slots.at(slot);
    if (slotQueue(at) == MAIN || ghostSize(at) > this.ghostMaxBytes) return false;
    this.ghosts.append(slot);
    this.ghostBytes += ghostSize(at);
    return true;
  }

  forgetGhost(slot: u32): void {
    this.ghosts.remove(slot);
    this.ghostBytes -= ghostSize(this.slots.at(slot));
  }

  /** The oldest ghost if ghosts exceed their byte limit, or outnumber the most pages held at once; else NONE. */
  overdueGhost(): u32 {
    const isOverdue = this.ghostBytes > this.ghostMaxBytes || this.ghosts.count > this.pagesMax;
    return isOverdue ? this.ghosts.head : NONE;
  }

  /** The next victim, which stays in its queue; gives pages before it their second chances. */
  victim(): u32 {
    while (true) {
      if (this.small.count > 0 && (this.smallBytes >= this.smallTargetBytes || this.main.count == 0)) {
        const slot = this.small.head;
        if (slotUses(this.slots.at(slot)) < PROMOTE_FREQUENCY) return slot;
        this.promote(slot);
      } else {
        const slot = this.main.head;
        if (slot == NONE) return NONE;
        const at = this.slots.at(slot);
        const uses = slotUses(at);
        if (uses == 0) return slot;
        setSlotUses(at, uses - 1, slotRequest(at));
        this.main.remove(slot);
        this.main.append(slot);
      }
    }
  }

  /** Whether the queues, ghosts and sums agree. */
  isConsistent(): bool {
    if (!this.small.isConsistent() || !this.main.isConsistent() || !this.ghosts.isConsistent()) return false;
    let smallBytes: u64 = 0;
    for (let slot = this.small.head; slot != NONE; slot = this.small.next(slot)) {
      if (slotQueue(this.slots.at(slot)) != SMALL) return false;
      smallBytes += slotBytes(this.slots.at(slot));
    }
    for (let slot = this.main.head; slot != NONE; slot = this.main.next(slot)) {
      if (slotQueue(this.slots.at(slot)) != MAIN) return false;
    }
    let ghostBytes: u64 = 0;
    for (let slot = this.ghosts.head; slot != NONE; slot = this.ghosts.next(slot)) {
      if (slotStatus(this.slots.at(slot)) != GHOST) return false;
      ghostBytes += ghostSize(this.slots.at(slot));
    }
    return smallBytes == this.smallBytes && ghostBytes == this.ghostBytes && this.overdueGhost() == NONE;
  }

  dispose(): void {
    this.small.dispose();
    this.main.dispose();
    this.ghosts.dispose();
    heap.free(changetype<usize>(this));
  }

  private promote(slot: u32): void {
    this.remove(slot);
    const at = this.slots.at(slot);
    setSlotUses(at, 0, slotRequest(at));
    setSlotQueue(at, MAIN);
    this.main.append(slot);
  }
}

// @ts-ignore: decorator
@inline
function ghostSize(slot: usize): u64 {
  return max<u64>(1, slotBytes(slot));
}
