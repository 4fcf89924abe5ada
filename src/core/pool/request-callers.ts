/*
 * Numbers of callers, as in `RequestOptions.caller`, grouped by use. Each caller makes one request at a time; the core
 * remembers 64 callers, by the lowest six bits of their numbers.
 */

/** The largest number that a caller may have. */
export const CALLER_MAX = 2 ** 27 - 1;
/** The number of a store's callers; larger caller numbers are taken modulo this. */
export const STORE_CALLERS_COUNT = 32;
/** The number of callers, from STORE_CALLERS_COUNT on, for calls whose caller has another call in progress. */
export const CONCURRENT_CALLERS_COUNT = 30;
/** The caller of reads that other nodes report. */
export const REPORTS_CALLER = 62;
/** The caller of pages that are filled from elsewhere. */
export const FILLS_CALLER = 63;
