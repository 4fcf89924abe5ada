import { constants } from 'node:os';
import type { Environment } from '../base/environment/environment.js';
import type { Host } from '../base/environment/host.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { formatEndpoint } from '../base/environment/network.js';
import { ConfigError, RdmaError } from '../base/errors.js';
import { type NativeAddon, type RailOptions, RDMA_STATS, type RdmaStatName } from '../native/addon/contract.js';
import { type RailSelection, selectRails } from '../native/devices/rail-selection.js';
import { type RdmaDevice, type RdmaHost, systemRdmaHost, withDevicesReadOnce } from '../native/devices/rdma-devices.js';
import { PORT_ADVICE, rdmaSupport } from '../native/devices/rdma-support.js';
import { type SecurityConfig, securedEnvironment } from '../net/credentials/secured-environment.js';
import type { DataProtocol } from '../types.js';
import type { Transport, TransportStats } from './contract/transport.js';
import { RdmaTransport } from './rdma/rdma-transport.js';
import { TcpTransport } from './tcp/tcp-transport.js';

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

/** Statistics of the engine that can go down; all others are totals since its start. */
const ENGINE_GAUGES: ReadonlySet<RdmaStatName> = new Set<RdmaStatName>(['connections', 'acceptedConnections']);

/** The part of a node's configuration that selects and sets up its data transport. */
export interface TransportConfig extends SecurityConfig {
  readonly protocol: DataProtocol;
  /**
   * Address to listen on and to advertise. The default 127.0.0.1 is not reachable from other machines.
   * `NodeRuntime` finds out the address that this machine uses towards a master.
   */
  readonly localHostname?: string | undefined;
  /** TCP port to listen on; 0: any free one. */
  readonly tcpPort: number;
  /**
   * Threads that receive pages over TCP, and threads that serve them. Default: 1 up to 7 processors, 2 up to 15, 4 from
   * 16 on.
   */
  readonly tcpThreads?: number | undefined;
  /** Differentiated services code point of connections over TCP. Default: that of the system. */
  readonly dscp?: number | undefined;
  /** RDMA port to listen on; 0 (default): any free one. */
  readonly rdmaPort?: number;
  readonly deviceName?: string | undefined;
  readonly deviceNames?: readonly string[];
  /** Port of the device. The default 1 means the first active port. */
  readonly ibPort?: number;
  readonly gidIndex?: number | undefined;
  /** Size of the pool in bytes. RDMA is used only if this much memory can be locked. */
  readonly globalSegmentSize?: number;
}

/** The part of a configuration that selects RDMA devices, ports and addresses. */
type RailConfig = Pick<
  TransportConfig,
  'deviceName' | 'deviceNames' | 'ibPort' | 'gidIndex' | 'rdmaPort' | 'localHostname'
>;

/** The addon and rails for RDMA, or the reason why RDMA is not used. */
type RdmaPlan =
  | { readonly addon: NativeAddon; readonly rails: readonly RailOptions[] }
  | { readonly addon: null; readonly reason: string; readonly advice?: string };

const IB_PORT_BY_DEFAULT = 1;

/** A transport, and why it was chosen. */
export interface ChosenTransport {
  readonly transport: Transport;
  readonly wanted: DataProtocol;
  /** `as configured`, or why the configured transport cannot be used. */
  readonly reason: string;
}

/**
 * Creates the configured transport if possible, else TCP. The log and the gauge `meshcache_transport_info` state the
 * choice and its reason; further metrics report the transport's statistics. Throws `ConfigError` if the transport
 * cannot listen, or if this machine has RDMA but not the configured device, port or GID.
 */
export async function createTransport(
  config: TransportConfig,
  env: Environment,
  rdmaHost?: RdmaHost,
): Promise<Transport> {
  return (await chooseTransport(config, securedEnvironment(config, env), rdmaHost)).transport;
}

/** Like {@link createTransport}, but also returns the reason. `env` must already be a {@link securedEnvironment}. */
export async function chooseTransport(
  config: TransportConfig,
  env: Environment,
  rdmaHost: RdmaHost = systemRdmaHost,
): Promise<ChosenTransport> {
  const plan: RdmaPlan =
    config.protocol === 'rdma' && isOpenOverRdma(env)
      ? { addon: null, reason: 'no RDMA: TLS does not cover it, and without cluster_secret anybody could read by it' }
      : await planRdma(config, env, rdmaHost);
  const tcp = await TcpTransport.create({
    host: config.localHostname ?? '127.0.0.1',
    port: config.tcpPort,
    env,
    threads: config.tcpThreads ?? tcpThreadsOf(env),
    dscp: config.dscp,
  });
  const { transport, reason, advice } = await withRdma(plan, tcp, config, env);
  if (env.tls !== undefined && transport.protocol === 'rdma') {
    env.log.log('warn', 'TLS covers the control plane and reads over TCP; reads over RDMA are not encrypted');
  }
  const { rdma, tcp: tcpEndpoint } = transport.localEndpoints();
  // A warning, because an operator who configured RDMA must notice that it is not used.
  const [level, message] =
    transport.protocol === config.protocol
      ? (['info', 'data transport ready'] as const)
      : (['warn', 'data transport: RDMA unavailable, using TCP'] as const);
  env.log.log(level, message, {
    protocol: transport.protocol,
    wanted: config.protocol,
    reason,
    advice,
    endpoint: transport.localEndpoint(),
    tcp_endpoint: rdma === undefined || tcpEndpoint === undefined ? undefined : formatEndpoint(tcpEndpoint),
    devices: transport instanceof RdmaTransport ? transport.deviceNames.join(',') : undefined,
  });
  reportTransport(transport, { wanted: config.protocol, reason }, env.metrics);
  return { transport, wanted: config.protocol, reason };
}

/**
 * Threads that suit a machine: one up to 7 processors, because threads that take turns on a processor only add work; a
 * quarter of the processors, at most 4, on a larger one, because the pages have other users, too.
 */
export function tcpThreadsOf({ host, threads }: Pick<Environment, 'host' | 'threads'>): number {
  if (!threads.canCopy) return 1;
  return host.parallelism >= 16 ? 4 : host.parallelism >= 8 ? 2 : 1;
}

/** Whether unauthenticated peers could read over RDMA: TLS does not protect RDMA, only a secret does. */
function isOpenOverRdma({ tls, secrets }: Environment): boolean {
  return tls !== undefined && secrets === undefined;
}

async function planRdma(config: TransportConfig, env: Environment, rdmaHost: RdmaHost): Promise<RdmaPlan> {
  if (config.protocol !== 'rdma') return { addon: null, reason: 'as configured' };
  if (!env.host.hasDevices) return { addon: null, reason: 'no RDMA: this host has no devices' };
  const host = withDevicesReadOnce(rdmaHost);
  const support = rdmaSupport({ host, bytes: config.globalSegmentSize });
  // If the device name is wrong, report that first, rather than an inactive port or memory that cannot be locked.
  const isSelectable = support.usable || ['port', 'memlock', 'memory'].includes(support.step);
  const selection = isSelectable ? await configuredRails(config, env.host, host.devices()) : undefined;
  if (!support.usable)
    return { addon: null, reason: `no RDMA: ${support.reason}${wishText(config)}`, advice: support.advice };
  const { addon, reason } = host.load();
  if (addon === null) return { addon: null, reason: `no RDMA: ${reason}` };
  if (selection?.rails) return { addon, rails: selection.rails };
  return { addon: null, reason: `no RDMA: ${selection?.reason ?? ''}`, advice: PORT_ADVICE };
}

/** The configured devices in words, for a machine on which devices cannot be listed. */
function wishText({ deviceName, deviceNames = [] }: TransportConfig): string {
  const wished = [...(deviceName === undefined ? [] : [deviceName]), ...deviceNames];
  return wished.length === 0 ? '' : ` (asked for: ${wished.join(', ')})`;
}

interface Outcome {
  readonly transport: Transport;
  readonly reason: string;
  readonly advice?: string | undefined;
}

/** Adds RDMA on top of `tcp` if that is planned and works; otherwise returns `tcp` itself. */
async function withRdma(
  plan: RdmaPlan,
  tcp: TcpTransport,
  config: TransportConfig,
  env: Environment,
): Promise<Outcome> {
  if (plan.addon === null) return { transport: tcp, reason: plan.reason, advice: plan.advice };
  const { addon, rails } = plan;
  try {
    const transport = new RdmaTransport({ addon, rails, tcp, env, dscp: config.dscp });
    return { transport, reason: 'as configured' };
  } catch (error) {
    if (isTakenPort(error, config)) {
      await tcp.close();
      throw new ConfigError(`configuration key "rdma_port": cannot listen on ${config.rdmaPort}: ${error.message}`, {
        cause: error,
      });
    }
    if (error instanceof RdmaError) return { transport: tcp, reason: `no RDMA: ${error.message}` };
    await tcp.close();
    throw error;
  }
}

function isTakenPort(error: unknown, { rdmaPort = 0 }: TransportConfig): error is RdmaError {
  return error instanceof RdmaError && rdmaPort > 0 && error.errno === constants.errno.EADDRINUSE;
}

/**
 * Selects the devices, ports and addresses that a configuration asks for. Throws `ConfigError` for those that this
 * machine does not have.
 */
export async function configuredRails(
  { deviceName, deviceNames, ibPort, gidIndex, rdmaPort: port, localHostname }: RailConfig,
  host: Host,
  devices: readonly RdmaDevice[],
): Promise<RailSelection> {
  const wishes = {
    deviceName,
    deviceNames,
    ibPort: ibPort === IB_PORT_BY_DEFAULT ? undefined : ibPort,
    gidIndex,
    port,
    // Undefined if the name cannot be resolved, which TCP will report.
    bindHost: localHostname === undefined ? undefined : (await host.resolve(localHostname))[0],
  };
  return selectRails(wishes, devices, { nameOf });
}

function nameOf(wish: string): string {
  const key = wish === 'port' ? 'rdma_port' : wish === 'bindHost' ? 'local_hostname' : wish;
  return `configuration key "${key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}"`;
}

/** Registers the metrics of a transport: its kind, why it was chosen, its statistics, and those of an RDMA engine. */
function reportTransport(
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
