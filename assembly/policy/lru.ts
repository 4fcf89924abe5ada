import { List } from '../list';
import { Records } from '../records';
import { setSlotUses } from '../slot';

/** Evicts the least recently used page first: one list in the order of the last use. */
@unmanaged
export class Lru {
  private slots: Records;
  order: List;

  constructor(slots: Records) {
    this.slots = slots;
    this.order = new List(slots);
  }

  insert(slot: u32, request: u32): void {
    setSlotUses(this.slots.at(slot), 0, request);
    this.order.append(slot);
  }

  /** Returns a page to the order after its last unpin. */
  restore(slot: u32): void {
    this.order.append(slot);
  }

  use(slot: u32, request: u32): void {
    setSlotUses(this.slots.at(slot), 0, request);
    if (this.order.tail == slot) return;
    this.order.remove(slot);
    this.order.append(slot);
  }

  remove(slot: u32): void {
    this.order.remove(slot);
  }

  @inline
  victim(): u32 {
    return this.order.head;
  }

  dispose(): void {
    this.order.dispose();
    heap.free(changetype<usize>(this));
  }
}
