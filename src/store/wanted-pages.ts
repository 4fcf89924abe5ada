import { WANTED_PAGES_MAX_COUNT } from '../base/limits.js';

/** Keys of pages that other nodes have read here, the latest first; of more than WANTED_PAGES_MAX_COUNT the earliest are forgotten. */
export class WantedPages {
  readonly #keys = new Set<string>();

  read(keys: readonly string[]): void {
    for (const key of keys) {
      this.#keys.delete(key);
      this.#keys.add(key);
    }
    for (const key of this.#keys) {
      if (this.#keys.size <= WANTED_PAGES_MAX_COUNT) break;
      this.#keys.delete(key);
    }
  }

  keys(): string[] {
    return [...this.#keys].reverse();
  }
}
