import type { DiskInfo, DiskStore } from '../../disk/disk-store.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { PageStore, PageStoreStats } from '../../store/page-store.js';

/** What a store holds and has done: bytes, pages, reads by where they came from. */
export interface StoreStats extends PageStoreStats {
  readonly poolEntries: number;
  readonly poolUsedBytes: number;
  readonly poolCapacityBytes: number;
  readonly quarantinedBytes: number;
  readonly evictions: number;
  /** Ranges reused before their quarantine was over, because it was full. */
  readonly earlyReuses: number;
  readonly members: number;
  /** Null without a disk tier. */
  readonly disk: DiskInfo | null;
}

/** What the parts of a store say of themselves. */
export function storeStats(parts: {
  readonly pages: PageStore;
  readonly pool: PublishedPool;
  readonly disk: DiskStore | null;
  readonly members: number;
}): StoreStats {
  const pool = parts.pool.stats();
  return {
    ...parts.pages.stats(),
    poolEntries: pool.entries,
    poolUsedBytes: pool.usedBytes,
    poolCapacityBytes: pool.capacityBytes,
    quarantinedBytes: pool.quarantinedBytes,
    evictions: pool.evictions,
    earlyReuses: pool.earlyReuses,
    members: parts.members,
    disk: parts.disk?.info() ?? null,
  };
}
