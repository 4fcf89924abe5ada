/**
 * Up to which versions keys are void, remembered for a while after nothing is left under them: so that an older content,
 * stated late by a node that was away, does not come back. Bounded: two generations of at most `maxKeys` keys; the older one is forgotten
 * when the younger is full, or {@link turn} says that time has passed.
 */
export class Removals {
  readonly #maxKeys: number;
  #young = new Map<string, number>();
  #old = new Map<string, number>();

  constructor(maxKeys: number) {
    this.#maxKeys = maxKeys;
  }

  /** What has an older version than this is void. Keeps `key`: a string of its own, not a slice of a larger one. */
  note(key: string, version: number): void {
    if (version <= this.versionOf(key)) return;
    if (this.#young.size >= this.#maxKeys) this.turn();
    this.#young.set(key, version);
  }

  /** 0: nothing is known of the key. */
  versionOf(key: string): number {
    if (this.#young.size + this.#old.size === 0) return 0;
    return this.#young.get(key) ?? this.#old.get(key) ?? 0;
  }

  /** Every key with its version, what was noted last at the end. */
  *entries(): Generator<readonly [key: string, version: number], void> {
    for (const entry of this.#old) if (!this.#young.has(entry[0])) yield entry;
    yield* this.#young;
  }

  /** Forgets what was noted before the last turn. */
  turn(): void {
    this.#old = this.#young;
    this.#young = new Map();
  }

  clear(): void {
    this.#young.clear();
    this.#old.clear();
  }
}
