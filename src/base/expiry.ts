/*
 * An expiry is a version of the cluster's hybrid clock (see `concurrency/hybrid-clock.ts`). From that version on nobody
 * finds the page; 0: it never expires.
 */

/** Whether a page with this expiry is expired, at a present of the hybrid clock. */
export function isExpired(expires: number, present: number): boolean {
  return expires !== 0 && expires <= present;
}

/** The later of two expiries; 0 (never) is the latest. */
export function laterExpiry(a: number, b: number): number {
  return a === 0 || b === 0 ? 0 : Math.max(a, b);
}
