import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { DirectoryMethod } from '../messages/wire.js';
import type { DirectoryShard } from '../shard/shard.js';

/** Registers the metrics of a node's own shard. */
export function reportShard(shard: DirectoryShard, metrics: MetricsSink): void {
  metrics.setGaugeProvider('meshcache_directory_keys', () => shard.stats().keys);
  metrics.setCounterProvider('meshcache_directory_refused_keys_total', () => shard.stats().refusedKeys);
  metrics.setCounterProvider('meshcache_directory_length_conflicts_total', () => shard.lengthConflicts);
}

/** Counts a lookup: `asked` keys, of which `found` have a live location. */
export function countLookups(metrics: MetricsSink, asked: number, found: number): void {
  metrics.count('meshcache_directory_lookups_total', found, { result: 'found' });
  metrics.count('meshcache_directory_lookups_total', asked - found, { result: 'missing' });
}

/** Counts the keys that an owner is asked for, by its distance. */
export function countAsked(metrics: MetricsSink, distance: string, keys: number): void {
  metrics.count('meshcache_directory_asked_keys_total', keys, { distance });
}

/** Counts a request that its owner did not answer, or answered wrongly. */
export function countFailure(metrics: MetricsSink, request: keyof typeof DirectoryMethod): void {
  metrics.count('meshcache_directory_failures_total', 1, { request });
}
