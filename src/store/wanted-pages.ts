import { assertAtMost, assertEqual } from '../base/assert.js';
import { WANTED_PAGES_MAX_CHARACTERS, WANTED_PAGES_MAX_COUNT } from '../base/limits.js';

/**
 * Keys of pages that other nodes have read here, or want to, the latest first. Of more than WANTED_PAGES_MAX_COUNT, or when they are too long
 * together, the earliest are forgotten: the keys are what others say they are.
 */
export class WantedPages {
  readonly #keys = new Set<string>();
  /** Of these. */
  #characters = 0;

  read(keys: readonly string[]): void {
    for (const key of keys) {
      this.#forget(key);
      this.#keys.add(key);
      this.#characters += key.length;
    }
    for (const key of this.#keys) {
      if (this.#keys.size <= WANTED_PAGES_MAX_COUNT && this.#characters <= WANTED_PAGES_MAX_CHARACTERS) break;
      this.#forget(key);
    }
  }

  keys(): string[] {
    return [...this.#keys].reverse();
  }

  #forget(key: string): void {
    if (this.#keys.delete(key)) this.#characters -= key.length;
  }

  /** Throws `InvariantError` unless the characters of the keys are counted, and both are within their limits. */
  verify(): void {
    let characters = 0;
    for (const key of this.#keys) characters += key.length;
    assertEqual('wanted pages: characters', this.#characters, characters);
    assertAtMost('wanted pages: characters', characters, WANTED_PAGES_MAX_CHARACTERS);
    assertAtMost('wanted pages: keys', this.#keys.size, WANTED_PAGES_MAX_COUNT);
  }
}
