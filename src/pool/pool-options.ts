import type { Clock } from '../base/environment/clock.js';
import type { RandomSource } from '../base/environment/random.js';
import type { EvictionPolicy } from '../core/index.js';
import type { CopyThreads } from './copy-threads.js';
import type { PageRecords } from './kept/page-records.js';
import type { LeavingPage } from './page-batch.js';
import type { PageIndexOptions } from './page-index.js';
import type { NamespaceTenants } from './tenants/namespace-tenants.js';

/** Options of a `PublishedPool`, apart from its memory. */
export interface PublishedPoolOptions {
  /** Called with the keys of pages that have left the pool without a request to remove them. */
  readonly onEvict?: (keys: string[]) => void;
  /**
   * @internal Called with each readable page that is evicted for a new one. It must not throw, and must not call the
   * pool. Needs `stamps`.
   */
  readonly onLeaving?: ((page: LeavingPage) => void) | undefined;
  readonly policy?: EvictionPolicy;
  /** @internal Default: all pages are of one tenant. */
  readonly tenants?: NamespaceTenants | undefined;
  /** Milliseconds for which a freed range is not reused; 0 reuses it at once. */
  readonly quarantineMs?: number;
  /** Whether the quarantine is never shortened: pages without room are refused meanwhile. */
  readonly neverReuseEarly?: boolean;
  /**
   * Whether a page is refused if it would evict an earlier one of its own request: see
   * `PoolAllocatorOptions.keepsHeads`. Default: false.
   */
  readonly keepsHeads?: boolean;
  readonly clock: Clock;
  /** The present of the cluster's hybrid clock, by which pages expire. Default: pages do not expire. */
  readonly present?: () => number;
  /**
   * @internal Source of the random stamp of each page. The page's location names its stamp, and a peer reads the page's
   * image (see `memory/page-stamp.ts`). Without a source, pages have no stamps and are stored unchanged.
   */
  readonly stamps?: RandomSource;
  /** @internal The records of the pages, if the pool's memory outlives the process. Needs `stamps`. */
  readonly records?: PageRecords | undefined;
  /** Whether copies of other nodes' pages have records, too. Default: false. */
  readonly keepsCopies?: boolean | undefined;
  /** @internal Threads that copy large pages. */
  readonly copyThreads: CopyThreads;
}

/** @internal Options of a pool's index; `memory`: the sizes of the pool and of its segments, in bytes. */
export function indexOptionsOf(
  {
    policy = 'lru',
    quarantineMs = 0,
    neverReuseEarly = false,
    keepsHeads = false,
    tenants,
    clock,
    present,
  }: PublishedPoolOptions,
  memory: { readonly capacityBytes: number; readonly segmentBytes: number },
): PageIndexOptions {
  const ofPool = tenants?.of('pool', memory.capacityBytes);
  return {
    ...memory,
    policy,
    quarantineMs,
    neverReuseEarly,
    keepsHeads,
    tenants: ofPool,
    nowMs: () => clock.nowMs(),
    present,
  };
}
