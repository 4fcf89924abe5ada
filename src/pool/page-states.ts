import { isExpired } from '../base/expiry.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import { FILLED, type LocalPages, type PageState } from './slots/local-pages.js';
import type { TenantAllocator } from './tenants/tenant-allocator.js';

/** What may be done with the pages of an index, by key: what directory owners say of them changes it. */
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

  /** The keys whose pages are from before this start, and not confirmed. */
  earlierAmong(keys: readonly string[]): string[] {
    if (this.countOf('earlier') === 0) return [];
    const slots = this.#slots(keys);
    return keys.filter((_, i) => this.#isEarlier(slots[i] as number));
  }

  /** Readers find these pages from before this start from now on; harmless for other pages. */
  confirmEarlier(keys: readonly string[]): void {
    for (const slot of this.#slots(keys)) if (this.#isEarlier(slot)) this.#local.move(slot, 'live');
  }

  /**
   * The keys whose pages make way for what is set, and do not stand for it: they are expired, or from before this start,
   * as nobody has said that these are good.
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
   * A directory owner has taken what was stated of those pages for which `isTaken`: those that still have that version
   * are stated now, the others not. Returns one byte for each key; 1: the page is here, and not expired.
   */
  noteStated(keys: Keys, versions: ArrayLike<number>, isTaken: (i: number) => boolean): Uint8Array {
    const now = this.#present();
    return Uint8Array.from(this.#slots(keys), (slot, i) => {
      if (!this.#isFilled(slot)) return 0;
      if (this.#local.versionOf(slot) === versions[i]) this.#local.noteStated(slot, isTaken(i));
      return Number(!this.#isExpired(slot, now));
    });
  }

  /** The directory may have lost these pages, which are being stated anew. */
  unstate(keys: Keys): void {
    for (const slot of this.#slots(keys)) if (slot >= 0) this.#local.noteStated(slot, false);
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
