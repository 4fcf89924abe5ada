import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PublishedPage } from './page-index.js';

/**
 * Copies of other nodes' pages of which no directory owner has said yet whether they are still good. They are in the pool, so that a request
 * to drop them finds them; and no program of this node reads them: when a page is set anew while it is being copied, nobody but
 * the owners' answer tells this node.
 */
export class UnconfirmedCopies {
  readonly #keys = new Set<string>();
  readonly #pageOf: (key: string) => PublishedPage | null | undefined;

  /** `pageOf`: the page that the pool has under a key. */
  constructor(pageOf: (key: string) => PublishedPage | null | undefined) {
    this.#pageOf = pageOf;
  }

  add(keys: Iterable<string>): void {
    for (const key of keys) this.#keys.add(key);
  }

  delete(keys: Iterable<string>): void {
    for (const key of keys) this.#keys.delete(key);
  }

  /** Whether the page under this key is such a copy. A page that the program has set meanwhile is none. */
  has(key: string): boolean {
    return this.#keys.has(key) && this.#pageOf(key)?.isCopy === true;
  }

  /** `pages`, one for each key, with null in place of such copies. */
  without(keys: Keys, pages: (PublishedPage | null)[]): (PublishedPage | null)[] {
    if (this.#keys.size === 0) return pages;
    const strings = stringsOf(keys);
    return pages.map((page, i) => (page?.isCopy === true && this.#keys.has(strings[i] as string) ? null : page));
  }
}
