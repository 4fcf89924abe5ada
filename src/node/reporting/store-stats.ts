import type { DiskInfo, DiskStore } from '../../disk/disk-store.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { PlacementStats } from '../../store/holding/placement-lane.js';
import type { Placements } from '../../store/holding/placements.js';
import type { PrefetchedPages, Prefetching } from '../../store/holding/prefetching.js';
import type { PageStore, PageStoreStats } from '../../store/page-store.js';
import type { PagePins } from '../../store/pins/page-pins.js';

/** The contents and the counters of a store: bytes, pages, and reads by their source. */
export interface StoreStats extends PageStoreStats {
  readonly poolEntries: number;
  readonly poolUsedBytes: number;
  readonly poolCapacityBytes: number;
  /** Pages that clients have pinned, and their bytes. */
  readonly pinnedEntries: number;
  readonly pinnedBytes: number;
  readonly quarantinedBytes: number;
  readonly evictions: number;
  /** Ranges reused before the end of their quarantine, because the quarantine was full. */
  readonly earlyReuses: number;
  readonly members: number;
  /** Pages that were brought into the pool before they were read. */
  readonly prefetched: PrefetchedPages;
  /** The disk tier's contents and counters; null without one. */
  readonly disk: DiskInfo | null;
  /** Statistics of placing on storage nodes; null if the write policy keeps all pages local. */
  readonly placement: PlacementStats | null;
}

/** Collects the statistics of a store's parts. */
export function storeStats(parts: {
  readonly pages: PageStore;
  readonly pool: PublishedPool;
  readonly disk: DiskStore | null;
  readonly pins: Pick<PagePins, 'count' | 'bytes'>;
  readonly placements: Pick<Placements, 'stats'> | null;
  readonly prefetching: Pick<Prefetching, 'stats'>;
  readonly members: number;
}): StoreStats {
  const pool = parts.pool.stats();
  return {
    ...parts.pages.stats(),
    poolEntries: pool.entries,
    poolUsedBytes: pool.usedBytes,
    poolCapacityBytes: pool.capacityBytes,
    pinnedEntries: parts.pins.count,
    pinnedBytes: parts.pins.bytes,
    quarantinedBytes: pool.quarantinedBytes,
    evictions: pool.evictions,
    earlyReuses: pool.earlyReuses,
    members: parts.members,
    prefetched: parts.prefetching.stats(),
    disk: parts.disk?.info() ?? null,
    placement: parts.placements?.stats() ?? null,
  };
}
