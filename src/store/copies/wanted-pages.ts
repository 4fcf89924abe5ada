import { assertAtMost, assertEqual } from '../../base/assert.js';
import { WANTED_PAGES_MAX_CHARACTERS, WANTED_PAGES_MAX_COUNT } from '../../base/limits.js';

/** The earliest keys are forgotten at so many times the limits: finding them costs a step for each key that was read again since. */
const SLACK = 17 / 16;

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
    if (!this.#isWithin(SLACK)) this.#forgetEarliest();
  }

  keys(): string[] {
    this.#forgetEarliest();
    return [...this.#keys].reverse();
  }

  #forgetEarliest(): void {
    if (this.#isWithin(1)) return;
    for (const key of this.#keys) {
      this.#forget(key);
      if (this.#isWithin(1)) return;
    }
  }

  /** Whether it keeps to so many times its limits. */
  #isWithin(times: number): boolean {
    return this.#keys.size <= times * WANTED_PAGES_MAX_COUNT && this.#characters <= times * WANTED_PAGES_MAX_CHARACTERS;
  }

  #forget(key: string): void {
    if (this.#keys.delete(key)) this.#characters -= key.length;
  }

  /** Throws `InvariantError` unless the characters of the keys are counted, and both are within their limits, with the slack. */
  verify(): void {
    let characters = 0;
    for (const key of this.#keys) characters += key.length;
    assertEqual('wanted pages: characters', this.#characters, characters);
    assertAtMost('wanted pages: characters', characters, SLACK * WANTED_PAGES_MAX_CHARACTERS);
    assertAtMost('wanted pages: keys', this.#keys.size, SLACK * WANTED_PAGES_MAX_COUNT);
  }
}
