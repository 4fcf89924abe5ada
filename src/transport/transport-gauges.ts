import type { MetricsSink } from '../base/metrics-sink.js';
import { RDMA_STATS, type RdmaStatName } from '../native/contract.js';
import type { DataProtocol } from '../types.js';
import { RdmaTransport } from './rdma/rdma-transport.js';
import type { Transport, TransportStats } from './transport.js';

/** Statistics that nothing else reports, by the gauge that shows them. */
const GAUGES = {
  meshcache_transport_protocol_errors: 'protocolErrors',
  meshcache_transport_refused_ops: 'refusedOps',
  meshcache_transport_failed_ops: 'failedOps',
  meshcache_transport_connections: 'connections',
  meshcache_transport_reconnects: 'reconnects',
} as const satisfies Readonly<Record<string, keyof TransportStats>>;

/** Registers the gauges of a transport: which it is and why, what it has done, and, over RDMA, what its engine has. */
export function reportTransport(
  transport: Transport,
  { wanted, reason }: { readonly wanted: DataProtocol; readonly reason: string },
  metrics: MetricsSink,
): void {
  const labels = { protocol: transport.protocol, wanted, reason };
  metrics.setGaugeProvider('meshcache_transport_info', () => 1, labels);
  for (const [name, statistic] of Object.entries(GAUGES)) {
    metrics.setGaugeProvider(name, () => transport.stats()[statistic]);
  }
  if (!(transport instanceof RdmaTransport)) return;
  for (const statistic of RDMA_STATS) {
    metrics.setGaugeProvider(engineGauge(statistic), () => transport.stats().rdma[statistic]);
  }
}

/** `readBytes`: `meshcache_rdma_read_bytes`. */
export function engineGauge(statistic: RdmaStatName): string {
  return `meshcache_rdma_${statistic.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`;
}
