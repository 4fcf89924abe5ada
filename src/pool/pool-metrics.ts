import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { PublishedPool } from './published-pool.js';

/** Why an earlier page is not restored to the pool: reasons of `meshcache_pool_refused_pages_total`. */
export const FOUND_REFUSALS = ['record', 'checksum', 'older', 'room', 'quota'] as const;
export type FoundRefusal = (typeof FOUND_REFUSALS)[number];

/** Registers the metrics of a node's pool; `damagedPages` returns how many pages it has dropped for wrong checksums. */
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
  metrics.setCounterProvider('meshcache_pool_unrecorded_pages_total', () => pool.kept?.unrecordedCount ?? 0);
  // Counters exist from the start, even if the pool does not outlive its process.
  metrics.count('meshcache_pool_found_pages_total', 0);
  metrics.count('meshcache_pool_found_bytes_total', 0);
  for (const reason of FOUND_REFUSALS) metrics.count('meshcache_pool_refused_pages_total', 0, { reason });
}
