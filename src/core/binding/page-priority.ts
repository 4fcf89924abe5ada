import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';

/**
 * When a page is evicted from the pool of the node that stores it: low pages before all others, high pages after all
 * others. The hint applies to memory only: it is not kept on disk, for copies on other nodes, or for pages that come
 * back from the disk.
 */
export type PagePriority = 'low' | 'normal' | 'high';

/** Priorities by their numbers in the WASM module and on the client socket. */
export const PRIORITY_NUMBERS: Readonly<Record<PagePriority, 0 | 1 | 2>> = { normal: 0, low: 1, high: 2 };

/** The number of a priority; 0 for undefined. Throws `ArgumentError` for an invalid one. */
export function priorityNumber(priority: PagePriority | undefined = 'normal'): 0 | 1 | 2 {
  if (typeof priority === 'string' && Object.hasOwn(PRIORITY_NUMBERS, priority)) return PRIORITY_NUMBERS[priority];
  throw new ArgumentError(`priority must be "low", "normal" or "high", got ${shown(priority)}`);
}
