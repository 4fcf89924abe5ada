import { assert, assertEqual } from '../../base/assert.js';

const FIRST_SLOTS = 256;

/**
 * Slots in the order in which their pages expire: a binary min-heap that knows the place of each slot, so that a slot
 * is changed in O(log n). Takes no memory before the first page with an expiry.
 *
 * Accounting: a slot is in the heap exactly if its expiry is not 0; `#heap[#placeOf[slot]]` is the slot.
 */
export class ExpiryHeap {
  readonly #heap: number[] = [];
  #expiresOf = new Float64Array(0);
  #placeOf = new Uint32Array(0);

  /** Number of slots with an expiry. */
  get size(): number {
    return this.#heap.length;
  }

  /** The earliest expiry; 0: there is none. */
  get first(): number {
    return this.#heap.length === 0 ? 0 : (this.#expiresOf[this.#heap[0] as number] as number);
  }

  /** The slot that expires first. The heap must not be empty. */
  get firstSlot(): number {
    return this.#heap[0] as number;
  }

  /** The expiry of a slot; 0: none. */
  expiresOf(slot: number): number {
    return this.#heap.length === 0 ? 0 : (this.#expiresOf[slot] ?? 0);
  }

  /** Sets the expiry of a slot; 0: none. */
  set(slot: number, expires: number): void {
    if (expires === 0 && this.#heap.length === 0) return;
    const before = this.#expiresOf[slot] ?? 0;
    if (expires === before) return;
    if (slot >= this.#expiresOf.length) this.#grow(slot + 1);
    this.#expiresOf[slot] = expires;
    if (expires === 0) {
      this.#remove(this.#placeOf[slot] as number);
      return;
    }
    const place = before === 0 ? this.#heap.push(slot) - 1 : (this.#placeOf[slot] as number);
    this.#move(slot, place);
  }

  #remove(place: number): void {
    const last = this.#heap.pop() as number;
    if (place < this.#heap.length) this.#move(last, place);
  }

  /** Moves a slot from the free place `from` to where it belongs. */
  #move(slot: number, from: number): void {
    const expires = this.#expiresOf[slot] as number;
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >>> 1;
      if (this.#expiresAt(parent) <= expires) break;
      this.#put(this.#heap[parent] as number, place);
      place = parent;
    }
    for (let child = 2 * place + 1; child < this.#heap.length; child = 2 * place + 1) {
      if (child + 1 < this.#heap.length && this.#expiresAt(child + 1) < this.#expiresAt(child)) child++;
      if (this.#expiresAt(child) >= expires) break;
      this.#put(this.#heap[child] as number, place);
      place = child;
    }
    this.#put(slot, place);
  }

  #put(slot: number, place: number): void {
    this.#heap[place] = slot;
    this.#placeOf[slot] = place;
  }

  #expiresAt(place: number): number {
    return this.#expiresOf[this.#heap[place] as number] as number;
  }

  #grow(slots: number): void {
    const size = Math.max(slots, 2 * this.#expiresOf.length, FIRST_SLOTS);
    const [expires, places] = [new Float64Array(size), new Uint32Array(size)];
    expires.set(this.#expiresOf);
    places.set(this.#placeOf);
    [this.#expiresOf, this.#placeOf] = [expires, places];
  }

  /** Throws `InvariantError` unless the accounting of this class holds and no slot expires before its parent. */
  verify(): void {
    for (const [place, slot] of this.#heap.entries()) {
      assertEqual(`expiry heap: place of slot ${slot}`, this.#placeOf[slot] as number, place);
      assert((this.#expiresOf[slot] as number) > 0, () => `expiry heap: slot ${slot} has no expiry`);
      const parent = place === 0 ? 0 : (place - 1) >>> 1;
      assert(
        this.#expiresAt(parent) <= this.#expiresAt(place),
        () => `expiry heap: place ${place} expires before ${parent}`,
      );
    }
    const count = this.#expiresOf.reduce((sum, expires) => sum + Number(expires !== 0), 0);
    assertEqual('expiry heap: slots with an expiry', this.#heap.length, count);
  }
}
