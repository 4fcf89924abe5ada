import { type Environment, systemEnvironment } from '../base/environment.js';
import type { DataProtocol } from '../types.js';
import { TcpTransport } from './tcp/tcp-transport.js';
import type { Transport } from './transport.js';

/** The fields of a node's configuration that decide on its data transport. */
export interface TransportConfig {
  readonly protocol: DataProtocol;
  /** Address to listen on and to advertise; loopback without it. */
  readonly localHostname?: string | undefined;
  /** 0: a free one. */
  readonly tcpPort: number;
}

/**
 * The transport that is asked for where it is possible, else TCP; says which, once, in the log and
 * in the gauge `meshcache_transport_info`. Throws `ConfigError` when it cannot listen.
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
  return transport;
}
