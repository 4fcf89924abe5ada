import { type Environment, systemEnvironment } from '../base/environment.js';
import type { DataProtocol } from '../types.js';
import { TcpTransport } from './tcp/tcp-transport.js';
import type { Transport, TransportStats } from './transport.js';

/** The fields of a node's configuration that decide on its data transport. */
export interface TransportConfig {
  readonly protocol: DataProtocol;
  /**
   * Address to listen on and to advertise. Without it 127.0.0.1, which no other machine reaches: what
   * address this machine has towards a master is for the caller to find out, as `NodeRuntime` does.
   */
  readonly localHostname?: string | undefined;
  /** 0: a free one. */
  readonly tcpPort: number;
}

/** Statistics that nothing else reports, by the gauge that shows them. */
const GAUGES = {
  meshcache_transport_protocol_errors: 'protocolErrors',
  meshcache_transport_refused_ops: 'refusedOps',
  meshcache_transport_failed_ops: 'failedOps',
  meshcache_transport_connections: 'connections',
  meshcache_transport_reconnects: 'reconnects',
} as const satisfies Readonly<Record<string, keyof TransportStats>>;

/**
 * The transport that is asked for where it is possible, else TCP; says which, once, in the log and
 * in the gauge `meshcache_transport_info`. Other gauges follow its statistics: they are totals since
 * its start, except for the connections. Throws `ConfigError` when it cannot listen.
 */
export async function createTransport(
  config: TransportConfig,
  env: Environment = systemEnvironment(),
): Promise<Transport> {
  const reason = config.protocol === 'rdma' ? 'this build has no RDMA engine' : 'as configured';
  const transport = await TcpTransport.create({
    host: config.localHostname ?? '127.0.0.1',
    port: config.tcpPort,
    env,
  });
  env.log.log('info', 'data transport', {
    protocol: transport.protocol,
    wanted: config.protocol,
    reason,
    endpoint: transport.localEndpoint(),
  });
  const labels = { protocol: transport.protocol, wanted: config.protocol, reason };
  env.metrics.setGaugeProvider('meshcache_transport_info', () => 1, labels);
  for (const [name, statistic] of Object.entries(GAUGES)) {
    env.metrics.setGaugeProvider(name, () => transport.stats()[statistic]);
  }
  return transport;
}
