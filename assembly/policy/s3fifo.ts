import { List } from '../list';
import { NONE, Records } from '../records';
import { setSlotFrequency, setSlotQueue, slotBytes, slotFrequency, slotHigh, slotLow, slotQueue } from '../slot';
import { Table } from '../table';

/**
 * S3-FIFO: a small probationary FIFO (a tenth of the bytes), a main FIFO with second chances, and
 * the digests of what the small one dropped lately (as many bytes of pages as the main one may hold).
 * A new page enters the small queue, or the main one when its ghost is still known. A page used
 * twice while in the small queue moves on to the main one instead of being evicted.
 *
 *     ghost (40 bytes):  [digest: 2 x u64][bytes: u64][unused: u32][previous: u32][next: u32][unused: u32]
 */

const SMALL: u32 = 0;
const MAIN: u32 = 1;
const FREQUENCY_MAX: u32 = 3;
const PROMOTE_FREQUENCY: u32 = 2;
const GHOST_BYTES: u32 = 40;

@unmanaged
export class S3Fifo {
  private slots: Records;
  small: List;
  main: List;
  private smallBytes: u64;
  private smallTargetBytes: u64;
  private ghosts: Records;
  private ghostTable: Table;
  private ghostOrder: List;
  private ghostBytes: u64;
  private ghostMaxBytes: u64;

  constructor(slots: Records, capacityBytes: u64) {
    this.slots = slots;
    this.small = new List(slots);
    this.main = new List(slots);
    this.smallBytes = 0;
    const smallTargetBytes = max<u64>(1, capacityBytes / 10);
    this.smallTargetBytes = smallTargetBytes;
    const ghosts = new Records(GHOST_BYTES);
    this.ghosts = ghosts;
    this.ghostTable = new Table(ghosts);
    this.ghostOrder = new List(ghosts);
    this.ghostBytes = 0;
    this.ghostMaxBytes = capacityBytes - smallTargetBytes;
  }

  insert(slot: u32): void {
    const at = this.slots.at(slot);
    setSlotFrequency(at, 0);
    setSlotQueue(at, this.forgetGhost(slotLow(at), slotHigh(at)) ? MAIN : SMALL);
    this.restore(slot);
  }

  /** Back after a pin: last in the queue that it was in. */
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
  use(slot: u32): void {
    const at = this.slots.at(slot);
    const frequency = slotFrequency(at);
    if (frequency < FREQUENCY_MAX) setSlotFrequency(at, frequency + 1);
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

  evict(slot: u32): void {
    this.remove(slot);
    if (slotQueue(this.slots.at(slot)) == SMALL) this.rememberGhost(slot);
  }

  /** Gives the pages on the way their second chances; the answer stays in its queue. */
  victim(): u32 {
    while (true) {
      if (this.small.count > 0 && (this.smallBytes >= this.smallTargetBytes || this.main.count == 0)) {
        const slot = this.small.head;
        if (slotFrequency(this.slots.at(slot)) < PROMOTE_FREQUENCY) return slot;
        this.promote(slot);
      } else {
        const slot = this.main.head;
        if (slot == NONE) return NONE;
        const at = this.slots.at(slot);
        const frequency = slotFrequency(at);
        if (frequency == 0) return slot;
        setSlotFrequency(at, frequency - 1);
        this.main.remove(slot);
        this.main.append(slot);
      }
    }
  }

  /** Whether queues, ghosts and sums agree. */
  isConsistent(): bool {
    if (!this.small.isConsistent() || !this.main.isConsistent() || !this.ghostOrder.isConsistent()) return false;
    let smallBytes: u64 = 0;
    for (let slot = this.small.head; slot != NONE; slot = this.small.next(slot)) {
      if (slotQueue(this.slots.at(slot)) != SMALL) return false;
      smallBytes += slotBytes(this.slots.at(slot));
    }
    for (let slot = this.main.head; slot != NONE; slot = this.main.next(slot)) {
      if (slotQueue(this.slots.at(slot)) != MAIN) return false;
    }
    let ghostBytes: u64 = 0;
    for (let ghost = this.ghostOrder.head; ghost != NONE; ghost = this.ghostOrder.next(ghost)) {
      const at = this.ghosts.at(ghost);
      if (this.ghostTable.find(load<u64>(at), load<u64>(at, 8)) != ghost) return false;
      ghostBytes += load<u64>(at, 16);
    }
    return (
      smallBytes == this.smallBytes &&
      ghostBytes == this.ghostBytes &&
      ghostBytes <= this.ghostMaxBytes &&
      this.ghostTable.recount() == this.ghostOrder.count
    );
  }

  dispose(): void {
    this.small.dispose();
    this.main.dispose();
    this.ghostOrder.dispose();
    this.ghostTable.dispose();
    this.ghosts.dispose();
    heap.free(changetype<usize>(this));
  }

  private promote(slot: u32): void {
    this.remove(slot);
    const at = this.slots.at(slot);
    setSlotFrequency(at, 0);
    setSlotQueue(at, MAIN);
    this.main.append(slot);
  }

  private rememberGhost(slot: u32): void {
    const at = this.slots.at(slot);
    const bytes = max<u64>(1, slotBytes(at));
    if (bytes > this.ghostMaxBytes) return;
    const ghost = this.ghosts.add();
    const ghostAt = this.ghosts.at(ghost);
    store<u64>(ghostAt, slotLow(at));
    store<u64>(ghostAt, slotHigh(at), 8);
    store<u64>(ghostAt, bytes, 16);
    this.ghostTable.insert(slotLow(at), slotHigh(at), ghost);
    this.ghostOrder.append(ghost);
    this.ghostBytes += bytes;
    // Never more ghosts than there were pages at once, however small the pages are.
    while (this.ghostBytes > this.ghostMaxBytes || this.ghostOrder.count > this.slots.top) {
      this.dropGhost(this.ghostOrder.head);
    }
  }

  private forgetGhost(low: u64, high: u64): bool {
    const ghost = this.ghostTable.find(low, high);
    if (ghost == NONE) return false;
    this.dropGhost(ghost);
    return true;
  }

  private dropGhost(ghost: u32): void {
    const at = this.ghosts.at(ghost);
    this.ghostBytes -= load<u64>(at, 16);
    this.ghostTable.remove(load<u64>(at), load<u64>(at, 8), ghost);
    this.ghostOrder.remove(ghost);
    this.ghosts.remove(ghost);
  }
}
