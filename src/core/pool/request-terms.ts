import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import type { RequestHint } from './pool-types.js';

/*
 * Numbers of callers, as in `RequestOptions.caller`, grouped by use. Each caller makes one request at a time; the core
 * remembers 64 callers, by the lowest six bits of their numbers.
 */

/** The largest number that a caller may have. */
export const CALLER_MAX = 2 ** 27 - 1;
/** Number of caller numbers of a store; larger ones are taken modulo this. */
export const STORE_CALLERS_COUNT = 32;
/**
 * Number of further caller numbers, from STORE_CALLERS_COUNT on, for calls whose caller has another call in progress.
 */
export const CONCURRENT_CALLERS_COUNT = 30;
/** Caller number of reads reported by other nodes. */
export const REPORTS_CALLER = 62;
/** Caller number of pages that are filled from elsewhere. */
export const FILLS_CALLER = 63;

const NUMBERS: ReadonlyMap<unknown, number> = new Map<RequestHint, number>([
  ['open', 1],
  ['closed', 2],
  [0, 0],
  [1, 1],
  [2, 2],
  [3, 3],
]);

/**
 * The number of a hint, 0 to 3, as used by pools and peers; 0 for undefined. Throws `ArgumentError` for an invalid
 * hint.
 */
export function hintNumber(hint: RequestHint | undefined = 0): 0 | 1 | 2 | 3 {
  const number = NUMBERS.get(hint);
  if (number === undefined) throw new ArgumentError(`hint must be "open", "closed", 0, 1, 2 or 3, got ${shown(hint)}`);
  return number as 0 | 1 | 2 | 3;
}
