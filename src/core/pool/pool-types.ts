import type { EvictionPolicy } from '../../base/settings/eviction-policy.js';
import type { CoreOptions } from '../binding/core.js';
import type { PagePriority } from '../binding/page-priority.js';

export type { EvictionPolicy, PagePriority };

/**
 * A hint about the future of a request's pages, from 0 to 3. The policy learns the meaning of each hint from later uses
 * of its pages, so wrong hints cost little. `open` is 1: more of this conversation will follow. `closed` is 2: the
 * conversation is over. 0: no hint. 3: available for a meaning of the caller's own.
 */
export type RequestHint = 'open' | 'closed' | 0 | 1 | 2 | 3;

/**
 * Facts about the request that a call belongs to, used by the policy `yield`. The keys of a call are in the order of a
 * prefix, its head first.
 */
export interface RequestOptions {
  readonly hint?: RequestHint;
  /**
   * Number of the caller, from 0 (default) to 2^27 - 1: a connection, thread or process that makes one request at a
   * time. Numbers that differ by a multiple of 64 (for a store, 32) are one caller. An attached client is always one
   * caller.
   */
  readonly caller?: number;
  /**
   * Whether this call continues the request of the caller's last call. By default, a write continues a preceding read,
   * and a call continues one of the same kind that was as long as the longest of that kind (a slice), unless its first
   * page was already in that request.
   */
  readonly continues?: boolean;
  /**
   * Whether the request's last pages are in other pools, so that no page of this call counts as its last. Default:
   * false. Stores ignore it.
   */
  readonly endsElsewhere?: boolean;
}

/** {@link RequestOptions} of a pool with tenants. */
export interface PoolRequestOptions extends RequestOptions {
  /**
   * Number of the tenant that makes the request: owner of new pages, and the tenant whose order of eviction learns of
   * missing pages. Default: 0. Existing pages keep the tenant that they were published for.
   */
  readonly tenant?: number | undefined;
}

/** {@link RequestOptions} of a call that publishes, with the priority of its pages. */
export interface PublishRequest extends RequestOptions {
  /**
   * When the pages are evicted from this pool: `low` before all others, `high` after all others, each the least
   * recently used first; `high` pages take at most half of the pool, or of their tenant's maximum. The latest publish
   * decides, also for an existing page. Default: `normal`.
   */
  readonly priority?: PagePriority | undefined;
}

/** {@link PublishRequest} of a pool with tenants. */
export interface PoolPublishOptions extends PoolRequestOptions, PublishRequest {}

/** Quota of one tenant of a pool; its pages count with their padding. */
export interface PoolTenant {
  /** Bytes guaranteed against other tenants, to within one page. Default: 0. */
  readonly minBytes?: number;
  /** Most bytes of the tenant's pages; a larger page is refused. Default: the capacity. */
  readonly maxBytes?: number;
}

/** Statistics of one tenant of a pool. */
export interface PoolTenantStats {
  readonly entries: number;
  /** Bytes of its pages with their padding, including pages that were removed and are still pinned. */
  readonly usedBytes: number;
  readonly minBytes: number;
  readonly maxBytes: number;
  readonly evictions: number;
}

export interface PoolAllocatorOptions extends CoreOptions {
  readonly capacityBytes: number;
  readonly policy?: EvictionPolicy;
  /** Milliseconds for which a range is withheld after its page is gone. Default: 0. */
  readonly quarantineMs?: number;
  /**
   * Most bytes that are withheld; beyond that, the oldest range is reused early. Default: a sixteenth of the capacity.
   */
  readonly quarantineMaxBytes?: number;
  /** Whether the quarantine is never cut short: at its limit, nothing more is evicted, and publishing is refused. */
  readonly neverReuseEarly?: boolean;
  /**
   * Whether a normal page is refused if it would evict one that its own request has published or used. Then the head of
   * a request longer than the pool stays, instead of its end, which is useless without the head. One request comprises
   * the keys of one call, a call that `continues`, and a publish after a lookup by the same caller. Default: false.
   */
  readonly keepsHeads?: boolean;
  /** Segment size: no page crosses a multiple of it. It must be a multiple of the alignment. Default: the capacity. */
  readonly segmentBytes?: number;
  /** The alignment of offsets and sizes, a power of two. Default: 1. */
  readonly alignmentBytes?: number;
  /**
   * Tenants 1, 2 and so on, at most 255; their minima together must not exceed the capacity. Tenant 0 always exists,
   * and has neither a minimum nor a maximum. Default: none.
   */
  readonly tenants?: readonly PoolTenant[];
}

/** Place of a page, and the pages evicted for it. */
export interface Placement {
  readonly offset: number;
  /** A small number that belongs to the page while it is in the pool, and is reused afterwards. */
  readonly slot: number;
  readonly evicted: string[];
}

/** Places of the pages of a batch, one element per key. */
export interface BatchPlacement {
  /** The offset of each page; -1 if it was refused, or has left the pool again by the end of the batch. */
  readonly offsets: Float64Array;
  /** The slot of each page; -1 where the offset is -1. */
  readonly slots: Int32Array;
  /**
   * Keys of evicted pages in the order of eviction, and their former slots. The same batch may have published these
   * keys, or used the slots, later.
   */
  readonly evicted: string[];
  readonly evictedSlots: Uint32Array;
}

/** Where one page is: its offset in the pool, bytes, and the number of its slot. */
export interface PageLocation {
  readonly offset: number;
  readonly bytes: number;
  readonly slot: number;
}

/** Locations of the pages of a batch, one element per key. */
export interface BatchLookup {
  /** The offset of each page; -1 for a miss, as in the two columns below. */
  readonly offsets: Float64Array;
  readonly bytes: Float64Array;
  readonly slots: Int32Array;
}

/**
 * Statistics of a pool: used + free + quarantined + padding = capacity. Quarantined includes the ranges of removed
 * pages that are still pinned.
 */
export interface PoolAllocatorStats {
  readonly entries: number;
  /** Bytes of all pages together, without padding. */
  readonly usedBytes: number;
  readonly freeBytes: number;
  readonly quarantinedBytes: number;
  /** Bytes that alignment leaves unused. */
  readonly paddingBytes: number;
  readonly capacityBytes: number;
  readonly evictions: number;
  /** Number of ranges that were reused before the end of their quarantine. */
  readonly earlyReuses: number;
  /** Number of pinned pages. */
  readonly pinned: number;
  readonly largestFreeBytes: number;
}
