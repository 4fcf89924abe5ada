import type { PoolAllocatorStats, PoolTenantStats } from './pool-types.js';

/** What `poolVerify` has found broken, by its number. */
export const BROKEN_INVARIANTS = [
  'holds',
  'blocks leave gaps, overlap or are badly linked',
  'free neighbours are not merged',
  'the sums of free and withheld space are wrong',
  'the bins do not hold exactly the free blocks',
  'a page and its block disagree',
  'the counts of pages or their bytes are wrong',
  'the index does not hold exactly the pages',
  'the order of eviction does not hold exactly the pages',
  'the quarantine is broken',
  'the sums of a tenant are wrong',
  'another tenant has taken a page of one that was not above its minimum',
];

/** The numbers that `poolStats` writes. */
export function statsFrom(values: readonly number[]): PoolAllocatorStats {
  const [entries, usedBytes, freeBytes, inQuarantine, held, capacityBytes, evictions, earlyReuses, pinned, largest] =
    values as StatValues;
  const quarantinedBytes = inQuarantine + held;
  return {
    entries,
    usedBytes,
    freeBytes,
    quarantinedBytes,
    paddingBytes: capacityBytes - usedBytes - freeBytes - quarantinedBytes,
    capacityBytes,
    evictions,
    earlyReuses,
    pinned,
    largestFreeBytes: largest,
  };
}

/** The numbers that `poolTenantStats` writes. */
export function tenantStatsFrom(values: readonly number[]): PoolTenantStats {
  const [entries, usedBytes, minBytes, maxBytes, evictions] = values as TenantStatValues;
  return { entries, usedBytes, minBytes, maxBytes, evictions };
}

type StatValues = [number, number, number, number, number, number, number, number, number, number];
type TenantStatValues = [number, number, number, number, number];
