import { assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import { WANTED_PAGES_MAX_CHARACTERS, WANTED_PAGES_MAX_COUNT } from '../../base/limits.js';

/**
 * Factor over the limits above which the earliest keys are forgotten. The slack makes it cheap: finding the earliest
 * keys costs a step for each key that was read again since.
 */
const SLACK = 17 / 16;

/**
 * Keys of pages that other nodes have read here, or want to read, the latest first. The earliest are forgotten when
 * there are more than WANTED_PAGES_MAX_COUNT, or too many characters, because other nodes choose the keys.
 */
export class WantedPages {
  readonly #keys = new Set<string>();
  /** Total characters of the keys. */
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

  /** Whether the keys are within this multiple of the limits. */
  #isWithin(times: number): boolean {
    return this.#keys.size <= times * WANTED_PAGES_MAX_COUNT && this.#characters <= times * WANTED_PAGES_MAX_CHARACTERS;
  }

  #forget(key: string): void {
    if (this.#keys.delete(key)) this.#characters = reduced('wanted pages: characters', this.#characters, key.length);
  }

  /**
   * Throws `InvariantError` unless the characters of the keys are counted, and both are within their limits with the
   * slack.
   */
  verify(): void {
    let characters = 0;
    for (const key of this.#keys) characters += key.length;
    assertEqual('wanted pages: characters', this.#characters, characters);
    assertAtMost('wanted pages: characters', characters, SLACK * WANTED_PAGES_MAX_CHARACTERS);
    assertAtMost('wanted pages: keys', this.#keys.size, SLACK * WANTED_PAGES_MAX_COUNT);
  }
}
