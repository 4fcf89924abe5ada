import { ArgumentError } from '../../base/errors.js';
import type { KeyArea } from '../binding/key-area.js';
import { checkBytes, checkTenant, isInteger } from './pool-settings.js';
import type { PoolAllocatorStats, PoolTenantStats } from './pool-types.js';

/**
 * Writes the sizes at the beginning of the results. Returns -1, which tells the core that the sizes are in the area.
 */
export function writeSizes(area: KeyArea, bytes: ArrayLike<number>, minBytes = 0): number {
  if (typeof bytes === 'string') checkBytes(bytes, minBytes, 0);
  if (bytes?.length !== area.count)
    throw new ArgumentError(`got ${area.count} keys and ${bytes?.length} lengths; the numbers must be the same`);
  const sizes = area.f64;
  const start = area.results >>> 3;
  for (let i = 0; i < bytes.length; i++) sizes[start + i] = checkBytes(bytes[i] as number, minBytes, i);
  return -1;
}

/** Writes tenant numbers below `tenantCount` from address `start` on. */
export function writeTenants(area: KeyArea, tenants: ArrayLike<number>, start: number, tenantCount: number): void {
  if (tenants.length !== area.count) throw new ArgumentError(`${area.count} keys and ${tenants.length} tenants`);
  const out = area.u8;
  for (let i = 0; i < tenants.length; i++) {
    checkTenant(tenants[i] as number, tenantCount);
    out[start + i] = tenants[i] as number;
  }
}

/**
 * Writes offsets, which must ascend and exceed `above`, from index `start` of the area's f64 view on; returns the last
 * one.
 */
export function writeOffsets(
  area: KeyArea,
  offsets: ArrayLike<number>,
  start: number,
  { above, alignmentBytes }: { readonly above: number; readonly alignmentBytes: number },
): number {
  if (offsets.length !== area.count) throw new ArgumentError(`${area.count} keys and ${offsets.length} offsets`);
  const out = area.f64;
  let last = above;
  for (let i = 0; i < offsets.length; i++) {
    const offset = offsets[i] as number;
    if (!isInteger(offset, last + 1, Number.MAX_SAFE_INTEGER) || offset % alignmentBytes !== 0) {
      throw new ArgumentError(
        `offset ${i} must be a multiple of ${alignmentBytes} above ${last}, got ${String(offset)}: sort them`,
      );
    }
    out[start + i] = offset;
    last = offset;
  }
  return last;
}

/** Findings of `poolVerify`, by number. */
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

/** Decodes the numbers that `poolStats` writes. */
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

/** Decodes the numbers that `poolTenantStats` writes. */
export function tenantStatsFrom(values: readonly number[]): PoolTenantStats {
  const [entries, usedBytes, minBytes, maxBytes, evictions] = values as TenantStatValues;
  return { entries, usedBytes, minBytes, maxBytes, evictions };
}

type StatValues = [number, number, number, number, number, number, number, number, number, number];
type TenantStatValues = [number, number, number, number, number];
