import type { PublishedPool } from '../../../src/node/machine/machine-node.js';
import type { PublishedPage } from '../../../src/pool/published-pool.js';

/** A copy of what a pool has of a page. */
export function pageBytes(pool: PublishedPool, page: PublishedPage): Uint8Array {
  return new Uint8Array(Buffer.concat(pool.viewsOf(page)));
}
