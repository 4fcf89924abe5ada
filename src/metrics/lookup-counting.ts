import type { MetricsSink } from '../base/environment/metrics-sink.js';

/**
 * Counts a lookup of a program, whichever door it came by: `asked` pages, of which the first `found` are there without
 * a gap. Each lookup counts once: further pools of a hybrid model are asked for the same pages.
 */
export function countLookup(metrics: Pick<MetricsSink, 'count'>, asked: number, found: number): void {
  metrics.count('meshcache_lookup_pages_total', found, { result: 'found' });
  metrics.count('meshcache_lookup_pages_total', asked - found, { result: 'missing' });
}
