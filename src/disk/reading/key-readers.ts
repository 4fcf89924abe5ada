import { assert } from '../../base/assert.js';

/** Reads in progress, by key. */
export class KeyReaders {
  readonly #byKey = new Map<string, Set<Promise<unknown>>>();

  /** Counts the read until it is settled; resolves or rejects as it does. */
  async during<T>(key: string, read: Promise<T>): Promise<T> {
    const reads = this.#byKey.get(key) ?? new Set();
    this.#byKey.set(key, reads);
    reads.add(read);
    try {
      return await read;
    } finally {
      reads.delete(read);
      if (reads.size === 0) this.#byKey.delete(key);
    }
  }

  /** Resolves when all present reads of this key have ended. */
  async ended(key: string): Promise<void> {
    await Promise.allSettled(this.#byKey.get(key) ?? []);
  }

  /** Throws `InvariantError` unless each key has reads in progress. */
  verify(): void {
    for (const [key, reads] of this.#byKey) {
      assert(reads.size > 0, () => `key readers: no read of ${JSON.stringify(key)}, which is kept`);
    }
  }
}
