import type { PageIndex } from './page-index.js';

const SLICE_KEYS = 4096;

/**
 * Keys of findable pages, next victim first, slice by slice. Pages that come or go meanwhile may be missing, or appear
 * twice.
 */
export function* keysInSlices(index: Pick<PageIndex, 'order' | 'keysOf'>): Generator<string[], void> {
  const order = index.order();
  for (let start = 0; start < order.length; start += SLICE_KEYS) {
    yield index.keysOf(order.subarray(start, start + SLICE_KEYS)).filter((key) => key !== undefined);
  }
}
