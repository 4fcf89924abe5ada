import { ArgumentError } from '../base/errors.js';
import { laterExpiry } from '../base/expiry.js';
import type { RequestOptions } from '../core/index.js';
import type { PageOrigin, PublishedPage } from '../pool/page-index.js';

/** Length and checksum, which identify the bytes of a page. */
export type PageSum = Pick<PublishedPage, 'length' | 'checksum'>;

/** A page with a new version or expiry. */
export type RenewedPage = PageSum & Pick<PublishedPage, 'version' | 'kind' | 'expires' | 'setBy'>;

/** Origin of a page that is to be written, the request that set it, and what the caller has just found. */
export type PutOptions = PageOrigin & {
  readonly request?: RequestOptions | undefined;
  /**
   * True: `DiskStore.hasBatch` has just found no page of the key, so the index is not asked for this page again.
   */
  readonly isNew?: boolean;
};

/** Outcome of putting a page. */
export type PutOutcome = 'queued' | 'present' | 'skipped';

/** The origin of a stored page that is set again with the same bytes; undefined: it stays as it is. */
export function renewed(there: PageOrigin, set: PageOrigin): PageOrigin | undefined {
  const isComputed = there.kind === 'computed' && set.kind === 'computed';
  const expires = isComputed ? laterExpiry(there.expires, set.expires) : set.expires;
  const isOtherwise = set.version > there.version || set.kind !== there.kind;
  const isExtended = set.version === there.version && expires !== there.expires;
  return isOtherwise || isExtended ? { ...set, expires } : undefined;
}

/** Throws `ArgumentError` unless the key is text that is not empty. */
export function checkKey(key: string): void {
  if (typeof key === 'string' && key.length > 0) return;
  throw new ArgumentError(`disk: a key must be text that is not empty, got ${String(key)}`);
}
