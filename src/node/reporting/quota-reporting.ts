import type { PoolTenantStats } from '../../core/index.js';
import type { QuotaReport, QuotaUse } from '../../metrics/node-report.js';
import type { NamespaceTenants } from '../../pool/tenants/namespace-tenants.js';

/** Statistics of each tenant by number; none if the tier is closed. */
interface TenantTier {
  tenantStats(): readonly PoolTenantStats[];
}

/**
 * The quotas of a node and what is used of them. Undefined if there is only one tenant, without a quota, and once the pool is freed.
 */
export function quotaReports(
  tenants: Pick<NamespaceTenants, 'names' | 'prefixesCount' | 'refusedCount'>,
  pool: TenantTier,
  disk: TenantTier | null,
): QuotaReport[] | undefined {
  const { names } = tenants;
  const poolStats = names.length > 1 ? pool.tenantStats() : [];
  if (poolStats.length === 0) return undefined;
  const diskStats = disk?.tenantStats() ?? [];
  return poolStats.map((stats, tenant) => {
    const onDisk = diskStats[tenant];
    const namespace = names[tenant] as string;
    const prefixes = { known: tenants.prefixesCount(namespace), refused: tenants.refusedCount(namespace) };
    return {
      namespace,
      pool: useOf(stats),
      disk: onDisk === undefined ? null : useOf(onDisk),
      ...(tenant === 0 ? {} : { prefixes }),
    };
  });
}

function useOf({ entries, usedBytes, minBytes, maxBytes, evictions }: PoolTenantStats): QuotaUse {
  return { entries, used_bytes: usedBytes, min_bytes: minBytes, max_bytes: maxBytes, evictions };
}
