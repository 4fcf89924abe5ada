import { NONE, Records } from './records';

const PREVIOUS: usize = 28;
const NEXT: usize = 32;

/** Doubly linked list of records that have their links at bytes 28 and 32 (slots, ghosts). */
@unmanaged
export class List {
  private records: Records;
  /** Record that has been in the list longest, or NONE. */
  head: u32;
  tail: u32;
  count: u32;

  constructor(records: Records) {
    this.records = records;
    this.head = NONE;
    this.tail = NONE;
    this.count = 0;
  }

  @inline
  append(index: u32): void {
    const record = this.records.at(index);
    const tail = this.tail;
    store<u32>(record, tail, PREVIOUS);
    store<u32>(record, NONE, NEXT);
    if (tail == NONE) this.head = index;
    else store<u32>(this.records.at(tail), index, NEXT);
    this.tail = index;
    this.count++;
  }

  /** Inserts a record before `newer`, which must be in the list. */
  @inline
  insertBefore(index: u32, newer: u32): void {
    const newerRecord = this.records.at(newer);
    const previous = load<u32>(newerRecord, PREVIOUS);
    const record = this.records.at(index);
    store<u32>(record, previous, PREVIOUS);
    store<u32>(record, newer, NEXT);
    store<u32>(newerRecord, index, PREVIOUS);
    if (previous == NONE) this.head = index;
    else store<u32>(this.records.at(previous), index, NEXT);
    this.count++;
  }

  /** Moves all records of another list, which must not be empty, to the end of this one. */
  appendAll(other: List): void {
    const tail = this.tail;
    if (tail == NONE) {
      this.head = other.head;
    } else {
      store<u32>(this.records.at(tail), other.head, NEXT);
      store<u32>(this.records.at(other.head), tail, PREVIOUS);
    }
    this.tail = other.tail;
    this.count += other.count;
    other.head = NONE;
    other.tail = NONE;
    other.count = 0;
  }

  @inline
  remove(index: u32): void {
    const record = this.records.at(index);
    const previous = load<u32>(record, PREVIOUS);
    const next = load<u32>(record, NEXT);
    if (previous == NONE) this.head = next;
    else store<u32>(this.records.at(previous), next, NEXT);
    if (next == NONE) this.tail = previous;
    else store<u32>(this.records.at(next), previous, PREVIOUS);
    this.count--;
  }

  @inline
  next(index: u32): u32 {
    return load<u32>(this.records.at(index), NEXT);
  }

  /** Writes all records as u32, the head first; returns the address after the last. */
  write(out: usize): usize {
    for (let index = this.head; index != NONE; index = this.next(index)) {
      store<u32>(out, index);
      out += 4;
    }
    return out;
  }

  /** Whether the links and the count agree. */
  isConsistent(): bool {
    let previous: u32 = NONE;
    let seen: u32 = 0;
    for (let index = this.head; index != NONE; index = this.next(index)) {
      if (load<u32>(this.records.at(index), PREVIOUS) != previous) return false;
      if (++seen > this.count) return false;
      previous = index;
    }
    return previous == this.tail && seen == this.count;
  }

  dispose(): void {
    heap.free(changetype<usize>(this));
  }
}
