import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { RDMA_STATS, type RdmaStatName } from '../native/addon/contract.js';
import type { DataProtocol } from '../types.js';
import type { Transport, TransportStats } from './contract/transport.js';
import { RdmaTransport } from './rdma/rdma-transport.js';

/** Metrics of statistics that no other module reports. */
const COUNTERS = {
  meshcache_transport_read_pages_total: 'readOps',
  meshcache_transport_read_bytes_total: 'readBytes',
  meshcache_transport_served_pages_total: 'servedOps',
  meshcache_transport_served_bytes_total: 'servedBytes',
  meshcache_transport_protocol_errors_total: 'protocolErrors',
  meshcache_transport_refused_ops_total: 'refusedOps',
  meshcache_transport_failed_ops_total: 'failedOps',
  meshcache_transport_reconnects_total: 'reconnects',
  meshcache_transport_unreachable_total: 'unreachablePeers',
} as const satisfies Readonly<Record<string, keyof TransportStats>>;

/** Statistics of the engine that can fall; the others are totals since its start. */
const ENGINE_GAUGES: ReadonlySet<RdmaStatName> = new Set<RdmaStatName>(['connections', 'acceptedConnections']);

/** Registers the metrics of a transport: its kind, the reason for it, its statistics, and those of an RDMA engine. */
export function reportTransport(
  transport: Transport,
  { wanted, reason }: { readonly wanted: DataProtocol; readonly reason: string },
  metrics: MetricsSink,
): void {
  const labels = { protocol: transport.protocol, wanted, reason };
  metrics.setGaugeProvider('meshcache_transport_info', () => 1, labels);
  metrics.setGaugeProvider('meshcache_transport_connections', () => transport.stats().connections);
  metrics.setGaugeProvider('meshcache_transport_unreachable_peers', () => transport.unreachable().size);
  for (const [name, statistic] of Object.entries(COUNTERS)) {
    metrics.setCounterProvider(name, () => transport.stats()[statistic]);
  }
  if (!(transport instanceof RdmaTransport)) return;
  for (const statistic of RDMA_STATS) {
    const value = (): number => transport.stats().rdma[statistic];
    if (ENGINE_GAUGES.has(statistic)) metrics.setGaugeProvider(engineMetric(statistic), value);
    else metrics.setCounterProvider(`${engineMetric(statistic)}_total`, value);
  }
}

/** The metric of a statistic: `readBytes` is `meshcache_rdma_read_bytes`. */
function engineMetric(statistic: RdmaStatName): string {
  return `meshcache_rdma_${statistic.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`;
}
