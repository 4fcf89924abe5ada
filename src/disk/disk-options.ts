import type { CancelSignal } from '../base/concurrency/cancellation.js';
import type { Environment } from '../base/environment/environment.js';
import { ArgumentError } from '../base/errors.js';
import { laterExpiry } from '../base/expiry.js';
import type { EvictionPolicy, RequestOptions } from '../core/index.js';
import type { PageOrigin, PublishedPage } from '../pool/page-index.js';
import type { NamespaceTenants } from '../pool/tenants/namespace-tenants.js';

/** Options of `DiskStore.readPages`. */
export interface DiskReadOptions {
  /** The request that the pages belong to, for the eviction policy. */
  readonly request?: RequestOptions | undefined;
  /** Ends the reads. Pages that have not been read by then stay unread. */
  readonly signal?: CancelSignal | undefined;
}

/** Options of `DiskStore.open` beside path and size. */
export interface DiskStoreOptions {
  /** Called with the keys of pages that were evicted, or dropped because they were damaged. */
  readonly onEvict?: (keys: string[]) => void;
  /** Called when the disk has hung, and when it answers again. */
  readonly onHung?: ((isHung: boolean) => void) | undefined;
  /** Id of the node that uses the directory, for error messages of other processes that want it. */
  readonly nodeId: string;
  readonly env: Environment;
  /** The present of the cluster's hybrid clock, by which pages expire. Default: none expires. */
  readonly present?: (() => number) | undefined;
  /**
   * Whether a page's version or expiry is further ahead than any right clock can have made it. Such a page is neither
   * written nor found. Default: no page is.
   */
  readonly isAhead?: ((version: number, expires: number) => boolean) | undefined;
  /** Eviction policy; default: `lru`. */
  readonly policy?: EvictionPolicy;
  /** @internal The tenants of namespaces. Default: all pages belong to one tenant. */
  readonly tenants?: NamespaceTenants | undefined;
  /** Bytes of pages that may wait to be written; further pages are not written. */
  readonly queueMaxBytes?: number;
  /**
   * Bytes of `maxBytes` that the index may take; default: 1/32 of it. Small pages with long keys need more to fill the
   * disk.
   */
  readonly indexBytes?: number;
  /** Kind of I/O; default `auto`: direct if the file system supports it. */
  readonly mode?: 'auto' | 'direct' | 'buffered';
}

/** Length and checksum, which identify the bytes of a page. */
export type PageSum = Pick<PublishedPage, 'length' | 'checksum'>;

/** A page with a new version or expiry. */
export type RenewedPage = PageSum & Pick<PublishedPage, 'version' | 'kind' | 'expires' | 'setBy'>;

/** The origin of a page to be written, the request that set it, and what the caller has just found out. */
export type PutOptions = PageOrigin & {
  readonly request?: RequestOptions | undefined;
  /** True if `DiskStore.hasBatch` has just found no page of the key, so that the index need not be asked again. */
  readonly isNew?: boolean;
};

/** Outcome of putting a page. */
export type PutOutcome = 'queued' | 'present' | 'skipped';

/** The new origin of a stored page that is set again with the same bytes; undefined: the origin stays as it is. */
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
