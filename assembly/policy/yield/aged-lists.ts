import { List } from '../../list';
import { NONE, Records } from '../../records';
import { slotFrequency, slotPins, slotStatus } from '../../slot';
import { isBehind, slotClassOf } from './yield-slot';

/** Number of stages of a page's age, see {@link AgedLists}. */
export const STAGES: u32 = 16;
const LAST: u32 = STAGES - 1;

/**
 * Slots by class and age: one list per pair, numbered `class * STAGES + stage`, oldest slot first. A slot enters stage
 * 0. At tick t, each stage up to the number of trailing zero bits of t moves to the next one, so a slot stays in stage
 * j for about 2^j ticks, and in the last stage forever. Whole lists are moved, so ageing costs nothing per slot.
 */
@unmanaged
export class AgedLists {
  private slots: Records;
  /** Address of the lists, one after the other. */
  private lists: usize;
  private classes: u32;
  /** For each stage, one bit per class whose list is not empty. */
  private classBits: usize;
  /** One bit per stage that has a slot. */
  private stageBits: u32;
  count: u32;

  constructor(slots: Records, classes: u32) {
    const lists = classes * STAGES;
    this.slots = slots;
    this.lists = heap.alloc(<usize>lists * offsetof<List>());
    const empty = new List(slots);
    for (let i: u32 = 0; i < lists; i++) {
      memory.copy(changetype<usize>(this.at(i)), changetype<usize>(empty), offsetof<List>());
    }
    empty.dispose();
    this.classes = classes;
    this.classBits = heap.alloc(<usize>STAGES << 2);
    memory.fill(this.classBits, 0, <usize>STAGES << 2);
    this.stageBits = 0;
    this.count = 0;
  }

  @inline
  at(list: u32): List {
    return changetype<List>(this.lists + <usize>list * offsetof<List>());
  }

  /** The classes with a slot in this stage, one bit each. */
  @inline
  classesIn(stage: u32): u32 {
    return load<u32>(this.classBits + (<usize>stage << 2));
  }

  /** The highest stage with a slot; there must be one. */
  @inline
  oldestStage(): u32 {
    return 31 - clz(this.stageBits);
  }

  /**
   * Adds a slot as the newest of a list, or before the slot `newer` of the list. Returns whether the list was empty.
   */
  @inline
  insert(list: u32, slot: u32, newer: u32 = NONE): bool {
    const slots = this.at(list);
    if (newer == NONE) slots.append(slot);
    else slots.insertBefore(slot, newer);
    this.count++;
    if (slots.count > 1) return false;
    this.setBit(list);
    return true;
  }

  /** Removes a slot from a list. Returns whether the list is now empty. */
  @inline
  remove(list: u32, slot: u32): bool {
    const slots = this.at(list);
    slots.remove(slot);
    this.count--;
    if (slots.count > 0) return false;
    this.clearBit(list);
    return true;
  }

  /**
   * The list of the slot that entered longest ago, or NONE. Of those that entered at one tick, the one that is last in
   * its request.
   */
  oldest(tick: u32): u32 {
    if (this.count == 0) return NONE;
    const stage = this.oldestStage();
    let oldest = NONE;
    let longest: u32 = 0;
    for (let bits = this.classesIn(stage); bits != 0; bits &= bits - 1) {
      const list = ctz(bits) * STAGES + stage;
      const age = tick - slotFrequency(this.slots.at(this.at(list).head));
      if (oldest != NONE && (age < longest || (age == longest && !isBehind(list / STAGES, oldest / STAGES)))) continue;
      longest = age;
      oldest = list;
    }
    return oldest;
  }

  /** Makes all slots of a list the newest of the next stage. */
  age(list: u32): void {
    const from = this.at(list);
    if (from.count == 0) return;
    this.at(list + 1).appendAll(from);
    this.clearBit(list);
    this.setBit(list + 1);
  }

  /** Writes all slots as u32, those of the oldest stage first; returns the address after the last. */
  writeByAge(out: usize): usize {
    for (let stage = STAGES; stage-- > 0; ) {
      for (let bits = this.classesIn(stage); bits != 0; bits &= bits - 1) {
        out = this.at(ctz(bits) * STAGES + stage).write(out);
      }
    }
    return out;
  }

  /** Whether all lists and bits agree, and each slot has that status and is in the list of its class and age. */
  isConsistent(tick: u32, status: u32): bool {
    let count: u32 = 0;
    for (let list: u32 = 0; list < this.classes * STAGES; list++) {
      const slots = this.at(list);
      if (!slots.isConsistent() || !this.isListRight(list, tick, status)) return false;
      const isMarked = (this.classesIn(list % STAGES) & (1 << (list / STAGES))) != 0;
      if (isMarked != slots.count > 0) return false;
      count += slots.count;
    }
    for (let stage: u32 = 0; stage < STAGES; stage++) {
      if ((this.stageBits & (1 << stage)) != 0 != (this.classesIn(stage) != 0)) return false;
    }
    return count == this.count;
  }

  dispose(): void {
    heap.free(this.lists);
    heap.free(this.classBits);
    heap.free(changetype<usize>(this));
  }

  private isListRight(list: u32, tick: u32, status: u32): bool {
    const slots = this.at(list);
    for (let slot = slots.head; slot != NONE; slot = slots.next(slot)) {
      const at = this.slots.at(slot);
      if (slotStatus(at) != status || slotPins(at) != 0 || slotClassOf(at) != list / STAGES) return false;
      if (stageAt(tick, slotFrequency(at)) != list % STAGES) return false;
    }
    return true;
  }

  private setBit(list: u32): void {
    const stage = list % STAGES;
    const at = this.classBits + (<usize>stage << 2);
    store<u32>(at, load<u32>(at) | (1 << (list / STAGES)));
    this.stageBits |= 1 << stage;
  }

  private clearBit(list: u32): void {
    const stage = list % STAGES;
    const at = this.classBits + (<usize>stage << 2);
    const bits = load<u32>(at) & ~(1 << (list / STAGES));
    store<u32>(at, bits);
    if (bits == 0) this.stageBits &= ~(1 << stage);
  }
}

/**
 * The stage at `tick` of a slot that entered at `entryTick`; both are modulo 2^32 and less than that apart. A slot
 * leaves stage j at the second multiple of 2^j after `entryTick - 1`, so it is in the lowest stage for which at most
 * one multiple has passed.
 */
// @ts-ignore: decorator
@inline
export function stageAt(tick: u32, entryTick: u32): u32 {
  const before = entryTick - 1;
  const stage = 31 - clz(tick - before);
  const multiples = ((tick >> stage) - (before >> stage)) & (0xffffffff >> stage);
  return min<u32>(LAST, multiples > 1 ? stage + 1 : stage);
}
