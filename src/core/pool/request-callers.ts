/*
 * Numbers of callers, as `RequestOptions.caller` has them, by who uses them. Each caller is at one request at a time; the core
 * remembers 64 of them, by the lowest six bits.
 */

/** The largest number that a caller may have. */
export const CALLER_MAX = 2 ** 27 - 1;
/** Of the store's callers; larger numbers fall on these. */
export const STORE_CALLERS_COUNT = 32;
/** Of calls that come while their caller has another one under way, from STORE_CALLERS_COUNT on. */
export const CONCURRENT_CALLERS_COUNT = 30;
/** Of reads that other nodes report. */
export const REPORTS_CALLER = 62;
/** Of pages that are filled from elsewhere. */
export const FILLS_CALLER = 63;
