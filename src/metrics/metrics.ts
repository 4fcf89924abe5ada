import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Labels, MetricsSink } from '../base/metrics-sink.js';

export type ReadSource = 'local' | 'remote' | 'disk';

/** Seconds: from a directory answer to a large batch over a slow network. */
const LATENCY_BUCKETS_S = [
  25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** Counters and gauges that components report by name; others get a plain help text. */
const HELP: Readonly<Record<string, string>> = {
  meshcache_rpc_errors_total: 'Control-plane connections or calls that failed, by kind',
  meshcache_transport_info: 'Data transport in use, what was wanted and why it differs',
  meshcache_pool_used_bytes: 'Bytes of the pool that hold pages',
  meshcache_pool_capacity_bytes: 'Bytes of the pool',
  meshcache_pool_entries: 'Pages in the pool',
  meshcache_pool_evictions_total: 'Pages that left the pool for want of space',
  meshcache_disk_bytes_used: 'Bytes of the pages in the disk tier',
  meshcache_disk_capacity_bytes: 'Bytes that pages can take in the disk tier',
  meshcache_disk_keys: 'Pages in the disk tier',
  meshcache_disk_queue_bytes: 'Bytes of pages that wait to be written to disk, or are being written',
  meshcache_disk_skipped_pages_total:
    'Pages that were not written to disk: too many were waiting, or writing had failed',
  meshcache_disk_corrupt_pages_total:
    'Pages that could not be read from disk, or not with their checksum: dropped, a miss',
  meshcache_disk_evictions_total: 'Pages that left the disk tier for want of space',
  meshcache_disk_write_errors_total: 'Reads, writes and syncs of the disk tier that failed',
  meshcache_disk_set_aside_total: 'Times that a disk store could not be used and was set aside for an empty one',
  meshcache_promoted_pages_total: 'Pages brought from disk back into the pool',
  meshcache_promote_failures_total: 'Pages that other nodes asked for and that could not be brought back from disk',
  meshcache_promote_announce_failures_total:
    'Times that the directory could not be told of pages brought back from disk',
  meshcache_members: 'Live nodes that this node knows, itself included',
  meshcache_directory_keys: 'Keys in this node’s directory shard',
  meshcache_transport_protocol_errors: 'Connections closed because the peer did not speak the data protocol',
  meshcache_transport_refused_ops: 'Reads of memory that is not registered, or out of its bounds, that were refused',
  meshcache_transport_failed_ops: 'Reads of other nodes’ memory that failed',
  meshcache_transport_connections: 'Open data connections, both ways',
  meshcache_transport_reconnects: 'Data connections opened again after a failure',
  meshcache_rdma_read_ops: 'Pages read by RDMA',
  meshcache_rdma_read_bytes: 'Bytes read by RDMA',
  meshcache_rdma_failed_ops: 'Reads by RDMA that failed',
  meshcache_rdma_checksum_failures: 'Pages read by RDMA whose bytes did not have their checksum',
  meshcache_rdma_posted_requests: 'Work requests posted to RDMA devices',
  meshcache_rdma_retried_ops: 'Reads by RDMA that were tried again on another connection',
  meshcache_rdma_connections: 'Open RDMA connections to peers',
  meshcache_rdma_accepted_connections: 'Open RDMA connections of peers',
  meshcache_rdma_connects: 'RDMA connections made',
  meshcache_rdma_reconnects: 'RDMA connections made again after a failure',
  meshcache_rdma_refused_connections: 'RDMA connections of peers that were turned away',
  meshcache_rdma_protocol_errors: 'RDMA connections ended because the peer did not speak the protocol',
  meshcache_rdma_region_table_reads: 'Times that a peer’s table of regions was fetched',
  meshcache_rdma_lost_connections: 'RDMA connections that broke',
  meshcache_rdma_dropped_events: 'Events of the RDMA engine that were not told, because there were too many',
  meshcache_transport_serving_restarts_total: 'Times that the serving thread was started again',
  meshcache_reannounced_keys_total: 'Keys announced to new directory owners',
  meshcache_discovery_failures_total: 'Attempts to reach a discovery master that failed',
  meshcache_checksum_failures_total: 'Pages read whose bytes did not have their checksum: stale or damaged, a miss',
};

/** One node's metrics: a registry of its own, every sample labelled with the node's id. */
export class Metrics implements MetricsSink {
  readonly #registry = new Registry();
  readonly #counters = new Map<string, Counter>();
  readonly #gauges = new Map<string, { provider: () => number; labels: Labels }[]>();
  readonly #reads: Counter<'result' | 'source'>;
  readonly #readBytes: Counter<'source'>;
  readonly #readSeconds: Histogram<'source'>;
  readonly #writes: Counter;
  readonly #writtenBytes: Counter;
  readonly #writeSeconds: Histogram;

  constructor(nodeId: string) {
    this.#registry.setDefaultLabels({ node_id: nodeId });
    const registers = [this.#registry];
    this.#reads = new Counter({
      name: 'meshcache_reads_total',
      help: 'Pages asked for, by result and by where they were looked for last',
      labelNames: ['result', 'source'],
      registers,
    });
    this.#readBytes = new Counter({
      name: 'meshcache_read_bytes_total',
      help: 'Bytes of the pages that were read',
      labelNames: ['source'],
      registers,
    });
    this.#readSeconds = new Histogram({
      name: 'meshcache_read_seconds',
      help: 'Time of one read call, by source',
      labelNames: ['source'],
      buckets: LATENCY_BUCKETS_S,
      registers,
    });
    this.#writes = new Counter({ name: 'meshcache_writes_total', help: 'Pages published', registers });
    this.#writtenBytes = new Counter({
      name: 'meshcache_written_bytes_total',
      help: 'Bytes of the pages published',
      registers,
    });
    this.#writeSeconds = new Histogram({
      name: 'meshcache_write_seconds',
      help: 'Time of one write call',
      buckets: LATENCY_BUCKETS_S,
      registers,
    });
  }

  /** One page that was read (`hit`) or not; `seconds` is how long it took. */
  recordRead(hit: boolean, nbytes: number, seconds: number, source: ReadSource): void {
    this.recordReads(source, { hits: hit ? 1 : 0, misses: hit ? 0 : 1, bytes: hit ? nbytes : 0, seconds });
  }

  /** The pages of one batch that came (or failed to come) from one source; the time is that of the batch. */
  recordReads(source: ReadSource, batch: { hits: number; misses: number; bytes: number; seconds: number }): void {
    if (batch.hits > 0) this.#reads.inc({ result: 'hit', source }, batch.hits);
    if (batch.misses > 0) this.#reads.inc({ result: 'miss', source }, batch.misses);
    if (batch.bytes > 0) this.#readBytes.inc({ source }, batch.bytes);
    this.#readSeconds.observe({ source }, batch.seconds);
  }

  /** One page that was published. */
  recordWrite(nbytes: number, seconds: number): void {
    this.recordWrites({ pages: 1, bytes: nbytes, seconds });
  }

  /** The pages that one batch published; the time is that of the batch. */
  recordWrites(batch: { pages: number; bytes: number; seconds: number }): void {
    this.#writes.inc(batch.pages);
    this.#writtenBytes.inc(batch.bytes);
    this.#writeSeconds.observe(batch.seconds);
  }

  count(name: string, amount = 1, labels: Labels = {}): void {
    let counter = this.#counters.get(name);
    if (counter === undefined) {
      counter = new Counter({
        name,
        help: HELP[name] ?? name,
        labelNames: Object.keys(labels),
        registers: [this.#registry],
      });
      this.#counters.set(name, counter);
    }
    counter.inc(labels, amount);
  }

  /**
   * `provider` is asked at every scrape; the same name may be given again with other label values.
   * Names begin with `meshcache_`, which is added where it is missing.
   */
  setGaugeProvider(gaugeName: string, provider: () => number, labels: Labels = {}): void {
    const name = gaugeName.startsWith('meshcache_') ? gaugeName : `meshcache_${gaugeName}`;
    const known = this.#gauges.get(name);
    if (known !== undefined) {
      const same = known.findIndex((entry) => JSON.stringify(entry.labels) === JSON.stringify(labels));
      if (same >= 0) known.splice(same, 1);
      known.push({ provider, labels });
      return;
    }
    const providers = [{ provider, labels }];
    this.#gauges.set(name, providers);
    new Gauge({
      name,
      help: HELP[name] ?? name,
      labelNames: Object.keys(labels),
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { labels, provider } of providers) this.set(labels, sampleOf(provider));
      },
    });
  }

  /** Prometheus text exposition. */
  renderPrometheus(): Promise<string> {
    return this.#registry.metrics();
  }
}

/** One provider that fails spoils its own sample, not everybody's. */
function sampleOf(provider: () => number): number {
  try {
    return provider();
  } catch {
    return Number.NaN;
  }
}
