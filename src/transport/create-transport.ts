import { constants } from 'node:os';
import type { Environment } from '../base/environment/environment.js';
import type { Host } from '../base/environment/host.js';
import { formatEndpoint } from '../base/environment/network.js';
import { ConfigError, RdmaError } from '../base/errors.js';
import type { NativeAddon, RailOptions } from '../native/addon/contract.js';
import { selectRails } from '../native/devices/rail-selection.js';
import { type RdmaHost, systemRdmaHost, withDevicesReadOnce } from '../native/devices/rdma-host.js';
import { rdmaSupport } from '../native/devices/rdma-support.js';
import { type SecurityConfig, securedEnvironment } from '../net/secured-environment.js';
import type { DataProtocol } from '../types.js';
import type { Transport } from './contract/transport.js';
import { RdmaTransport } from './rdma/rdma-transport.js';
import { TcpTransport } from './tcp/tcp-transport.js';
import { reportTransport } from './transport-gauges.js';

/** The fields of a node's configuration that decide on its data transport; a `MeshCacheConfig` has them all. */
export interface TransportConfig extends SecurityConfig {
  readonly protocol: DataProtocol;
  /**
   * Address to listen on and to advertise. Without it 127.0.0.1, which no other machine reaches: what
   * address this machine has towards a master is for the caller to find out, as `NodeRuntime` does.
   */
  readonly localHostname?: string | undefined;
  /** 0: a free one. */
  readonly tcpPort: number;
  /** 0 (as when left out): a free one. */
  readonly rdmaPort?: number;
  readonly deviceName?: string | undefined;
  readonly deviceNames?: readonly string[];
  /** 1 is the default, and so the first active one. */
  readonly ibPort?: number;
  readonly gidIndex?: number | undefined;
  /** Bytes of the pool: RDMA is used only where so much memory can be locked. */
  readonly globalSegmentSize?: number;
}

/** What there is for RDMA, or why it is not used. */
type RdmaPlan =
  | { readonly addon: NativeAddon; readonly rails: readonly RailOptions[] }
  | { readonly addon: null; readonly reason: string; readonly advice?: string };

const IB_PORT_BY_DEFAULT = 1;

/** A transport, and how it came to be this one. */
export interface ChosenTransport {
  readonly transport: Transport;
  readonly wanted: DataProtocol;
  /** `as configured`, or why it is not what was wanted. */
  readonly reason: string;
}

/**
 * The transport that is asked for where it is possible, else TCP; says which and why, once, in the log and in the gauge
 * `meshcache_transport_info`. Other metrics follow its statistics. Throws `ConfigError` when it cannot listen, and for a device, port or GID that is asked for by name on a
 * machine with RDMA that does not have it.
 */
export async function createTransport(
  config: TransportConfig,
  env: Environment,
  rdmaHost?: RdmaHost,
): Promise<Transport> {
  return (await chooseTransport(config, securedEnvironment(config, env), rdmaHost)).transport;
}

/** {@link createTransport}, with the reason, in a {@link securedEnvironment} that is the caller's to make. */
export async function chooseTransport(
  config: TransportConfig,
  env: Environment,
  rdmaHost: RdmaHost = systemRdmaHost,
): Promise<ChosenTransport> {
  const plan: RdmaPlan =
    config.protocol === 'rdma' && isOpenToStrangers(env)
      ? { addon: null, reason: 'no RDMA: TLS does not cover it, and without cluster_secret anybody could read by it' }
      : await planRdma(config, env, rdmaHost);
  const tcp = await TcpTransport.create({ host: config.localHostname ?? '127.0.0.1', port: config.tcpPort, env });
  const { transport, reason, advice } = await withRdma(plan, tcp, config, env);
  if (env.tls !== undefined && transport.protocol === 'rdma') {
    env.log.log('warn', 'TLS covers the control plane and reads over TCP; reads by RDMA are not encrypted');
  }
  const { rdma, tcp: tcpEndpoint } = transport.localEndpoints();
  // Whoever counts on RDMA must see, without asking, that there is none.
  env.log.log(transport.protocol === config.protocol ? 'info' : 'warn', 'data transport', {
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

/** TLS keeps strangers from all but RDMA, which the secret alone does. */
function isOpenToStrangers({ tls, secrets }: Environment): boolean {
  return tls !== undefined && secrets === undefined;
}

async function planRdma(config: TransportConfig, env: Environment, rdmaHost: RdmaHost): Promise<RdmaPlan> {
  if (config.protocol !== 'rdma') return { addon: null, reason: 'as configured' };
  if (!env.host.hasDevices) return { addon: null, reason: 'no RDMA: this host has no devices' };
  const host = withDevicesReadOnce(rdmaHost);
  const support = rdmaSupport({ host, bytes: config.globalSegmentSize });
  // A wrong name goes before a port that is down and memory that cannot be locked.
  const isSelectable = support.usable || ['port', 'memlock', 'memory'].includes(support.step);
  const selection = isSelectable
    ? selectRails(await wishesOf(config, env.host), host.devices(), { nameOf })
    : undefined;
  if (!support.usable)
    return { addon: null, reason: `no RDMA: ${support.reason}${wishText(config)}`, advice: support.advice };
  const { addon, reason } = host.load();
  if (addon === null) return { addon: null, reason: `no RDMA: ${reason}` };
  if (selection?.rails) return { addon, rails: selection.rails };
  return { addon: null, reason: `no RDMA: ${selection?.reason ?? ''}` };
}

/** A device that was asked for and that nobody can look for. */
function wishText({ deviceName, deviceNames = [] }: TransportConfig): string {
  const wished = [...(deviceName === undefined ? [] : [deviceName]), ...deviceNames];
  return wished.length === 0 ? '' : ` (asked for: ${wished.join(', ')})`;
}

interface Outcome {
  readonly transport: Transport;
  readonly reason: string;
  readonly advice?: string | undefined;
}

/** An RDMA transport over `tcp` where that is planned and works; `tcp` itself where not. */
async function withRdma(
  plan: RdmaPlan,
  tcp: TcpTransport,
  config: TransportConfig,
  env: Environment,
): Promise<Outcome> {
  if (plan.addon === null) return { transport: tcp, reason: plan.reason, advice: plan.advice };
  const { addon, rails } = plan;
  try {
    const transport = new RdmaTransport({ addon, rails, tcp, env });
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

async function wishesOf(config: TransportConfig, host: Host) {
  const { deviceName, deviceNames, ibPort, gidIndex, rdmaPort: port, localHostname } = config;
  return {
    deviceName,
    deviceNames,
    ibPort: ibPort === IB_PORT_BY_DEFAULT ? undefined : ibPort,
    gidIndex,
    port,
    // Undefined when nobody knows the name: TCP will refuse it.
    bindHost: localHostname === undefined ? undefined : (await host.resolve(localHostname))[0],
  };
}

function nameOf(wish: string): string {
  const key = wish === 'port' ? 'rdma_port' : wish === 'bindHost' ? 'local_hostname' : wish;
  return `configuration key "${key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}"`;
}
