import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { PublishedPage, PublishedPool } from '../pool/published-pool.js';

/** Counts those of `pages` that the pool has not taken. */
export function countNotPublished(
  pages: readonly { readonly length: number }[],
  published: readonly (PublishedPage | null)[],
  { pool, metrics }: { readonly pool: PublishedPool; readonly metrics: MetricsSink },
): void {
  const refused = pages.filter((_, i) => published[i] === null);
  if (refused.length === 0) return;
  const tooLarge = refused.filter(({ length }) => length > pool.capacity).length;
  countSkippedWrites(metrics, 'too_large', tooLarge);
  countSkippedWrites(metrics, 'no_room', refused.length - tooLarge);
}

export function countSkippedWrites(
  metrics: MetricsSink,
  reason: 'too_large' | 'no_room' | 'directory' | 'draining',
  pages: number,
): void {
  if (pages > 0) metrics.count('meshcache_skipped_writes_total', pages, { reason });
}
