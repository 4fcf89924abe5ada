import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { OBJECT_FAULTS } from './object-answer.js';

/** Series of the counters of a node with an object store, by name and label. */
const SERIES: Readonly<Record<string, readonly [label: string, values: readonly string[]]>> = {
  meshcache_object_reads_total: ['result', ['hit', 'absent', 'void', 'cleared', 'damaged', 'outdated', 'failed']],
  meshcache_object_writes_total: [
    'result',
    ['done', 'present', 'gone', 'conflict', 'failed', 'skipped', 'unsupported'],
  ],
  meshcache_object_bytes_total: ['direction', ['read', 'written']],
  meshcache_object_requests_total: ['operation', ['read', 'write']],
  meshcache_object_seconds_total: ['operation', ['read', 'write']],
  meshcache_object_skipped_pages_total: ['reason', ['queue_full', 'store_failing']],
  meshcache_object_errors_total: ['reason', OBJECT_FAULTS],
};

/** Begins the counters of a node's object store at 0, so that monitoring sees their first increase. */
export function reportObjectStore(metrics: MetricsSink): void {
  for (const [name, [label, values]] of Object.entries(SERIES)) {
    for (const value of values) metrics.count(name, 0, { [label]: value });
  }
}
