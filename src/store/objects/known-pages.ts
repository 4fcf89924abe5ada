import { OBJECT_KNOWN_MAX_PAGES } from '../../base/limits.js';
import { digestOf } from '../../directory/shard/removals.js';

/**
 * Pages that are in the object store, as far as this node knows, by the digests of their keys: two generations, of which the older one is
 * forgotten when the younger one is full. Two keys of one digest count as one, so that one of them may never be sent.
 */
export class KnownPages {
  #young = new Set<number>();
  #old = new Set<number>();

  has(key: string): boolean {
    const digest = digestOf(key);
    return this.#young.has(digest) || this.#old.has(digest);
  }

  add(key: string): void {
    if (this.#young.size >= OBJECT_KNOWN_MAX_PAGES / 2) {
      this.#old = this.#young;
      this.#young = new Set();
    }
    this.#young.add(digestOf(key));
  }

  delete(key: string): void {
    const digest = digestOf(key);
    this.#young.delete(digest);
    this.#old.delete(digest);
  }

  clear(): void {
    this.#young.clear();
    this.#old.clear();
  }
}
