import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { DiskStore } from './disk-store.js';

/** Counters of a node with a disk tier. */
const COUNTERS = [
  'meshcache_disk_skipped_pages_total',
  'meshcache_disk_write_wait_seconds_total',
  'meshcache_disk_corrupt_pages_total',
  'meshcache_disk_evictions_total',
  'meshcache_disk_write_errors_total',
  'meshcache_disk_set_aside_total',
  'meshcache_promoted_pages_total',
  'meshcache_promote_failures_total',
  'meshcache_promote_announce_failures_total',
] as const;

/** Registers the metrics of a node's disk tier. */
export function reportDisk(disk: DiskStore, metrics: MetricsSink): void {
  metrics.setGaugeProvider('meshcache_disk_bytes_used', () => disk.info().usedBytes);
  metrics.setGaugeProvider('meshcache_disk_capacity_bytes', () => disk.info().capacityBytes);
  metrics.setGaugeProvider('meshcache_disk_keys', () => disk.info().entries);
  metrics.setGaugeProvider('meshcache_disk_queue_bytes', () => disk.info().queueBytes);
  metrics.setGaugeProvider('meshcache_disk_failed', () => Number(disk.info().failure !== null));
  metrics.setCounterProvider('meshcache_disk_read_pages_total', () => disk.info().readPages);
  metrics.setCounterProvider('meshcache_disk_written_pages_total', () => disk.info().writtenPages);
  // Counters exist from the start, so that monitoring sees their first increase.
  for (const name of COUNTERS) metrics.count(name, 0);
}
