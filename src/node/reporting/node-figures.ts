import type { Clock } from '../../base/environment/clock.js';
import type { HistoryReport, HistorySample } from '../../metrics/history-report.js';
import type { Metrics } from '../../metrics/metrics.js';
import { LATENCY_BOUNDS_S } from '../../metrics/metrics-report.js';
import { NodeHistory } from '../../metrics/node-history.js';
import type { MetricsReport, NodeReport, RecentReport } from '../../metrics/node-report.js';

export interface NodeFiguresParts {
  readonly metrics: Metrics;
  /** Current state of the pool and the disk. */
  readonly store: () => Pick<NodeReport, 'pool' | 'disk'>;
  /** Number of live nodes known to this one, itself included. */
  readonly members: () => number;
  readonly clock: Clock;
}

/** A node's figures over the last seconds and the last hour. */
export class NodeFigures {
  readonly #history: NodeHistory;

  /** Starts to take samples. */
  constructor({ metrics, store, members, clock }: NodeFiguresParts) {
    const sample = async () => sampleOf(await metrics.report(), { ...store(), members: members() });
    this.#history = new NodeHistory({ boundsS: LATENCY_BOUNDS_S, sample, clock });
    const startMs = clock.nowMs();
    metrics.setGaugeProvider('meshcache_uptime_seconds', () => (clock.nowMs() - startMs) / 1000);
    const lifetime = () => this.#history.recent()?.pageLifetimeS ?? Number.NaN;
    metrics.setGaugeProvider('meshcache_pool_page_lifetime_seconds', lifetime);
    this.#history.start();
  }

  /** The figures of the last seconds, as a field of the node's report. */
  recent(): { readonly recent?: RecentReport } {
    const figures = this.#history.recent();
    if (figures === undefined) return {};
    return {
      recent: {
        window_s: figures.windowS,
        read_p50_s: figures.readP50S,
        read_p99_s: figures.readP99S,
        read_bytes_per_s: figures.readBytesPerS,
        written_bytes_per_s: figures.writtenBytesPerS,
        evictions_per_s: figures.evictionsPerS,
        lookups: { asked: figures.asked, found: figures.found },
        page_lifetime_s: figures.pageLifetimeS,
      },
    };
  }

  history(stepS: number): Omit<HistoryReport, 'node_id' | 'incarnation'> {
    return this.#history.report(stepS);
  }

  stop(): void {
    this.#history.stop();
  }
}

function sampleOf(
  report: MetricsReport,
  { pool, disk, members }: Pick<NodeReport, 'pool' | 'disk' | 'members'>,
): HistorySample {
  const { reads, read_bytes, writes, lookups, latency, event_loop_delay } = report;
  const { local, remote, disk: fromDisk, object } = latency.read;
  return {
    counts: {
      ...{ local: reads.local, remote: reads.remote, disk: reads.disk, misses: reads.misses },
      ...{ local_bytes: read_bytes.local, remote_bytes: read_bytes.remote, disk_bytes: read_bytes.disk },
      ...{ writes: writes.pages, written_bytes: writes.bytes },
      ...{ asked: lookups.asked, found: lookups.found, evictions: pool.evictions },
    },
    gauges: {
      pool_pages: pool.entries,
      pool_used_bytes: pool.used_bytes,
      pool_capacity_bytes: pool.capacity_bytes,
      disk_used_bytes: disk?.used_bytes ?? 0,
      disk_capacity_bytes: disk?.capacity_bytes ?? 0,
      loop_p99_s: event_loop_delay.p99_s,
      members,
    },
    readBuckets: local.buckets.map((count, i) =>
      [remote, fromDisk, object].reduce((sum, { buckets }) => sum + (buckets[i] ?? 0), count),
    ),
  };
}
