import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import { EarlierSlots } from './kept/earlier-slots.js';
import type { PublishedPage } from './page-index.js';

/**
 * Pages that are in the pool, so that a request to drop them finds them, and that no program of this node reads,
 * because no directory owner has said yet whether they are still good. Some are copies of other nodes' pages: when a
 * page is set anew while it is being copied, nobody but the owners' answer tells this node. The others are pages from
 * before this start of the node.
 */
export class UnconfirmedPages {
  /** Pages from before this start. */
  readonly earlier = new EarlierSlots();
  readonly #copies = new Set<string>();
  readonly #pagesOf: (keys: readonly string[]) => readonly (PublishedPage | null)[];

  /** `pagesOf`: the pages that the pool has under these keys. */
  constructor(pagesOf: (keys: readonly string[]) => readonly (PublishedPage | null)[]) {
    this.#pagesOf = pagesOf;
  }

  /** The keys whose pages are from before this start, and not confirmed. */
  earlierAmong(keys: readonly string[]): string[] {
    if (this.earlier.isEmpty) return [];
    const pages = this.#pagesOf(keys);
    return keys.filter((_, i) => this.earlier.has(pages[i]?.slot ?? -1));
  }

  /**
   * Has those pages removed that are from before this start: they do not stand for what is set now, as nobody has said
   * that they are good. Returns their keys.
   */
  makeWay(keys: readonly string[], remove: (key: string) => void): string[] {
    const earlier = this.earlierAmong(keys);
    for (const key of earlier) remove(key);
    return earlier;
  }

  /** The keys among those that {@link makeWay} returned under which no page is now: the new one has found no room. */
  unreplaced(removed: readonly string[]): Set<string> {
    if (removed.length === 0) return new Set();
    const pages = this.#pagesOf(removed);
    return new Set(removed.filter((_, i) => pages[i] === null));
  }

  /** The pages from before this start under these keys are good. */
  confirmEarlier(keys: readonly string[]): void {
    for (const page of this.#pagesOf(keys)) if (page !== null) this.earlier.delete(page.slot);
  }

  /** From now on copies under these keys are unconfirmed. */
  add(keys: Iterable<string>): void {
    for (const key of keys) this.#copies.add(key);
  }

  delete(keys: Iterable<string>): void {
    for (const key of keys) this.#copies.delete(key);
  }

  /** Whether the page under this key is unconfirmed. A page that the program has set meanwhile is not. */
  has(key: string): boolean {
    if (this.#copies.size === 0 && this.earlier.isEmpty) return false;
    const [page] = this.#pagesOf([key]);
    return page ? this.#isHidden(key, page) : false;
  }

  /** `pages`, one for each key, with null in place of unconfirmed ones. */
  without(keys: Keys, pages: (PublishedPage | null)[]): (PublishedPage | null)[] {
    if (this.#copies.size === 0 && this.earlier.isEmpty) return pages;
    const strings = stringsOf(keys);
    return pages.map((page, i) => (page !== null && this.#isHidden(strings[i] as string, page) ? null : page));
  }

  #isHidden(key: string, { slot, setBy }: PublishedPage): boolean {
    return this.earlier.has(slot) || (setBy !== 0 && this.#copies.has(key));
  }
}
