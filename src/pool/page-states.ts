import { isExpired } from '../base/expiry.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import { FILLED, type LocalPages, type PageState } from './slots/local-pages.js';
import type { TenantAllocator } from './tenants/tenant-allocator.js';

/** States of an index's pages, by key, as changed by the answers of directory owners. */
export class PageStates {
  readonly #allocator: TenantAllocator;
  readonly #local: LocalPages;
  readonly #present: () => number;

  /** `present`: the present, to compare expiries with; 0 while no page has one. */
  constructor(allocator: TenantAllocator, local: LocalPages, present: () => number) {
    this.#allocator = allocator;
    this.#local = local;
    this.#present = present;
  }

  /** Number of pages in this state. */
  countOf(state: PageState): number {
    return this.#local.countOf(state);
  }

  /** The keys whose pages are in the state `earlier`: from before this start, and not yet confirmed. */
  earlierAmong(keys: readonly string[]): string[] {
    if (this.countOf('earlier') === 0) return [];
    const slots = this.#slots(keys);
    return keys.filter((_, i) => this.#isEarlier(slots[i] as number));
  }

  /** Makes these pages from before this start visible to readers; harmless for other pages. */
  confirmEarlier(keys: readonly string[]): void {
    for (const slot of this.#slots(keys)) if (this.#isEarlier(slot)) this.#local.move(slot, 'live');
  }

  /**
   * The keys whose existing pages must make way for new ones and cannot stand for them: expired pages, and those in the
   * state `earlier`, which nobody has confirmed.
   */
  makingWay(keys: Keys): string[] {
    const now = this.#present();
    if (now === 0 && this.countOf('earlier') === 0) return [];
    const slots = this.#slots(keys);
    return stringsOf(keys).filter((_, i) => {
      const slot = slots[i] as number;
      return this.#isEarlier(slot) || (this.#isFilled(slot) && this.#isExpired(slot, now));
    });
  }

  /**
   * Records a directory owner's answer to the announcement of pages: pages that still have the announced version become
   * stated if `isTaken`, else not stated. Returns what {@link areHere} does.
   */
  noteStated(keys: Keys, versions: ArrayLike<number>, isTaken: (i: number) => boolean): Uint8Array {
    const slots = this.#slots(keys);
    for (let i = 0; i < slots.length; i++) {
      const slot = slots[i] as number;
      const isSame = this.#isFilled(slot) && this.#local.versionOf(slot) === versions[i];
      if (isSame) this.#local.noteStated(slot, isTaken(i));
    }
    return this.#areHere(slots);
  }

  /** One byte per key; 1: the page has its bytes, and is not expired. */
  areHere(keys: Keys): Uint8Array {
    return this.#areHere(this.#slots(keys));
  }

  /** Marks pages as not stated, because the directory may have lost them and they are being announced again. */
  unstate(keys: Keys): void {
    for (const slot of this.#slots(keys)) if (slot >= 0) this.#local.noteStated(slot, false);
  }

  #areHere(slots: Int32Array): Uint8Array {
    const now = this.#present();
    return Uint8Array.from(slots, (slot) => Number(this.#isFilled(slot) && !this.#isExpired(slot, now)));
  }

  #slots(keys: Keys): Int32Array {
    return this.#allocator.peekBatch(keys).slots;
  }

  #isFilled(slot: number): boolean {
    return slot >= 0 && this.#local.isIn(slot, FILLED);
  }

  #isEarlier(slot: number): boolean {
    return this.#isFilled(slot) && this.#local.stateOf(slot) === 'earlier';
  }

  #isExpired(slot: number, now: number): boolean {
    return isExpired(this.#local.expiring.expiresOf(slot), now);
  }
}
