import type { PoolTenantStats } from '../../core/index.js';
import type { QuotaReport, QuotaUse } from '../../metrics/node-report.js';

/** Statistics of each tenant by number; none if the tier is closed. */
interface TenantTier {
  tenantStats(): readonly PoolTenantStats[];
}

/**
 * The quotas of a node and what is used of them. `names`: names of all tenants by number. Undefined if there is only one, without a quota, and
 * once the pool is freed.
 */
export function quotaReports(
  names: readonly string[],
  pool: TenantTier,
  disk: TenantTier | null,
): QuotaReport[] | undefined {
  const poolStats = names.length > 1 ? pool.tenantStats() : [];
  if (poolStats.length === 0) return undefined;
  const diskStats = disk?.tenantStats() ?? [];
  return poolStats.map((stats, tenant) => {
    const onDisk = diskStats[tenant];
    return {
      namespace: names[tenant] as string,
      pool: useOf(stats),
      disk: onDisk === undefined ? null : useOf(onDisk),
    };
  });
}

function useOf({ entries, usedBytes, minBytes, maxBytes, evictions }: PoolTenantStats): QuotaUse {
  return { entries, used_bytes: usedBytes, min_bytes: minBytes, max_bytes: maxBytes, evictions };
}
