import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { DiskStore } from './disk-store.js';

/** Content of a disk tier, and counts since it was opened. */
export interface DiskInfo {
  /** Total length of the pages. */
  readonly usedBytes: number;
  /** Bytes that are available for pages. */
  readonly capacityBytes: number;
  readonly entries: number;
  /** Bytes of pages that wait to be written or are being written. */
  readonly queueBytes: number;
  /** Pages that were not written because the queue was full or writing had failed. */
  readonly skippedPages: number;
  /** Pages that were dropped because they could not be read or had another checksum; their reads were misses. */
  readonly corruptPages: number;
  readonly evictions: number;
  readonly writtenPages: number;
  readonly writeErrors: number;
  /** Pages that were read from the device. */
  readonly readPages: number;
  readonly ioMode: 'direct' | 'buffered';
  /** The last failure, if it is recent and no write has succeeded since; otherwise null. */
  readonly failure: string | null;
}

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
