import { List } from '../list';
import { Records } from '../records';

/** Least recently used first: one list in order of the last use. */
@unmanaged
export class Lru {
  order: List;

  constructor(slots: Records) {
    this.order = new List(slots);
  }

  insert(slot: u32): void {
    this.order.append(slot);
  }

  use(slot: u32): void {
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
