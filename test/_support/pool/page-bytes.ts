import type { PublishedPool } from '../../../src/node/machine/machine-node.js';
import type { PublishedPage } from '../../../src/pool/published-pool.js';

/** A copy of a page's bytes in a pool. */
export function pageBytes(pool: PublishedPool, page: PublishedPage): Uint8Array {
  return new Uint8Array(Buffer.concat(pool.viewsOf(page)));
}
