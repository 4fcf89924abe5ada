import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { PoolTenantStats } from '../../core/index.js';

/**
 * Registers the metrics of a tier's tenants, if there are quotas. `names`: names of all tenants by number, which are
 * few and known at the start; `stats`: current statistics, empty when the tier is closed.
 */
export function reportTenants(
  tier: 'pool' | 'disk',
  names: readonly string[],
  stats: () => readonly PoolTenantStats[],
  metrics: MetricsSink,
): void {
  if (names.length === 1) return;
  names.forEach((namespace, tenant) => {
    const labels = { namespace, tier };
    let evictions = 0;
    metrics.setGaugeProvider('meshcache_namespace_used_bytes', () => stats()[tenant]?.usedBytes ?? 0, labels);
    metrics.setGaugeProvider('meshcache_namespace_min_bytes', () => stats()[tenant]?.minBytes ?? 0, labels);
    metrics.setGaugeProvider('meshcache_namespace_max_bytes', () => stats()[tenant]?.maxBytes ?? 0, labels);
    metrics.setCounterProvider(
      'meshcache_namespace_evictions_total',
      () => {
        // A counter never falls, even when its tier is closed.
        evictions = stats()[tenant]?.evictions ?? evictions;
        return evictions;
      },
      labels,
    );
  });
}
