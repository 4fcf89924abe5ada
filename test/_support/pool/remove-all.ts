import type { PublishedPool } from '../../../src/pool/published-pool.js';

/** Removes all pages, even those whose bytes are still to be written. */
export function removeAll(pool: PublishedPool): void {
  for (const key of [...pool.keys(), ...pool.unfilledKeys()]) pool.remove(key);
}
