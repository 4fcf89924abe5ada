import { assertEqual } from '../../base/assert.js';
import type { PublishedPage } from '../slots/placement.js';

/**
 * Slots of pages that were found again when the pool was opened, and of which no directory owner has said yet whether
 * they are still good: they may have been overwritten or deleted while the node was away. Nobody finds them, here or
 * from another node.
 */
export class EarlierSlots {
  #isEarlier = new Uint8Array(0);
  #count = 0;

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  /** Number of the slots. */
  get count(): number {
    return this.#count;
  }

  add(slot: number): void {
    if (slot >= this.#isEarlier.length) {
      const grown = new Uint8Array(Math.max(slot + 1, 2 * this.#isEarlier.length));
      grown.set(this.#isEarlier);
      this.#isEarlier = grown;
    }
    if (this.#isEarlier[slot] === 0) this.#count++;
    this.#isEarlier[slot] = 1;
  }

  /** The page of the slot is good, or has gone. */
  delete(slot: number): void {
    if (this.#count === 0 || this.#isEarlier[slot] !== 1) return;
    this.#isEarlier[slot] = 0;
    this.#count--;
  }

  has(slot: number): boolean {
    return this.#count > 0 && this.#isEarlier[slot] === 1;
  }

  /** Throws `InvariantError` unless each of the slots is that of a page. */
  verify(pages: Iterable<readonly [key: string, page: PublishedPage]>): void {
    let count = 0;
    for (const [, { slot }] of pages) count += Number(this.has(slot));
    assertEqual('earlier slots: with a page', this.#count, count);
  }
}
