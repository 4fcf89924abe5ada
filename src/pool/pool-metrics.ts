import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { PublishedPool } from './published-pool.js';

/**
 * Registers the metrics of a node's pool; `damagedPages` returns how many pages it has dropped because of their
 * checksum.
 */
export function reportPool(
  pool: PublishedPool,
  metrics: MetricsSink,
  { damagedPages }: { readonly damagedPages: () => number },
): void {
  metrics.setGaugeProvider('meshcache_pool_entries', () => pool.stats().entries);
  metrics.setGaugeProvider('meshcache_pool_used_bytes', () => pool.stats().usedBytes);
  metrics.setGaugeProvider('meshcache_pool_capacity_bytes', () => pool.capacity);
  metrics.setGaugeProvider('meshcache_pool_quarantined_bytes', () => pool.stats().quarantinedBytes);
  const evictions = 'meshcache_pool_evictions_total';
  metrics.setCounterProvider(evictions, () => pool.stats().evictions, { reason: 'capacity' });
  metrics.setCounterProvider(evictions, damagedPages, { reason: 'damaged' });
  metrics.setCounterProvider('meshcache_pool_early_reuses_total', () => pool.stats().earlyReuses);
}
