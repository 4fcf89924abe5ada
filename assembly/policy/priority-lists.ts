import { List } from '../list';
import { NONE, Records } from '../records';
import { HIGH, LIVE, LOW, slotBytes, slotPins, slotPriority, slotStatus } from '../slot';

/**
 * The unpinned pages of one tenant with low or high priority, each list in the order of the last use. The policies do
 * not know these pages, and evicted ones leave no ghosts. High pages take at most half of the tenant's space, so that
 * stale ones cannot fill all of it.
 */
@unmanaged
export class PriorityLists {
  private slots: Records;
  low: List;
  high: List;
  private unitBytes: u64;
  /** Units of the pages in `high`. */
  private highUnits: u64;
  private highMaxUnits: u64;

  constructor(slots: Records, capacityBytes: u64, unitBytes: u64) {
    this.slots = slots;
    this.low = new List(slots);
    this.high = new List(slots);
    this.unitBytes = unitBytes;
    this.highUnits = 0;
    this.highMaxUnits = capacityBytes / unitBytes / 2;
  }

  get count(): u32 {
    return this.low.count + this.high.count;
  }

  /** Adds a slot as the newest of the list for its priority. */
  insert(slot: u32): void {
    const at = this.slots.at(slot);
    this.listOf(at).append(slot);
    if (slotPriority(at) == HIGH) this.highUnits += this.unitsOf(at);
  }

  remove(slot: u32): void {
    const at = this.slots.at(slot);
    this.listOf(at).remove(slot);
    if (slotPriority(at) == HIGH) this.highUnits -= this.unitsOf(at);
  }

  use(slot: u32): void {
    this.remove(slot);
    this.insert(slot);
  }

  /** The least recently used high page while high pages exceed their limit, or NONE. */
  overdue(): u32 {
    return this.highUnits > this.highMaxUnits ? this.high.head : NONE;
  }

  /** Whether the lists, slots and the sum agree, and the sum is within its limit. */
  isConsistent(): bool {
    if (!this.isListRight(this.low, LOW) || !this.isListRight(this.high, HIGH)) return false;
    let units: u64 = 0;
    for (let slot = this.high.head; slot != NONE; slot = this.high.next(slot)) units += this.unitsOf(this.slots.at(slot));
    return units == this.highUnits && units <= this.highMaxUnits;
  }

  dispose(): void {
    this.low.dispose();
    this.high.dispose();
    heap.free(changetype<usize>(this));
  }

  private isListRight(list: List, priority: u32): bool {
    if (!list.isConsistent()) return false;
    for (let slot = list.head; slot != NONE; slot = list.next(slot)) {
      const at = this.slots.at(slot);
      if (slotStatus(at) != LIVE || slotPins(at) != 0 || slotPriority(at) != priority) return false;
    }
    return true;
  }

  @inline
  private listOf(at: usize): List {
    return slotPriority(at) == LOW ? this.low : this.high;
  }

  private unitsOf(at: usize): u64 {
    return max<u64>(1, (slotBytes(at) + this.unitBytes - 1) / this.unitBytes);
  }
}
