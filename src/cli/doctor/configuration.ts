import { lookup } from 'node:dns/promises';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import { METRICS_PORTS_MAX_COUNT } from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import type { MeshCacheConfig } from '../../config.js';
import { DiscoveryClient } from '../../discovery/client.js';
import { askOnce } from '../../discovery/sources/open-source.js';
import { localAddressOf, openNodeFault } from '../../net/loopback.js';
import { NodeRuntime } from '../../node/machine/machine-node.js';
import { ownAddressTowards, reachableName, reachFault } from '../../node/runtime/own-address.js';
import { ownMemory } from '../../system/memory-limit.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { systemHost } from '../../system/system-host.js';
import { NodeInfo } from '../../types.js';
import { type Configuration, parseConfiguration, withOrigin } from '../settings/configuration.js';
import { isLoopback } from '../settings/endpoints.js';
import { listenFailure, ownAddresses, privileged, reasonOf, tlsFinding, whoHas } from './doors.js';
import type { Finding } from './finding.js';

/*
 * Checks a configuration, setting by setting, as a node would meet it. Starts nothing and leaves nothing behind, but
 * briefly listens on the ports.
 */

/** Share of the free memory above which a pool gets a warning. */
const POOL_FREE_SHARE = 0.9;

type ConfigurationCheck =
  | { readonly config: MeshCacheConfig; readonly findings: readonly Finding[] }
  /** Nothing was configured, or the configuration is rejected. */
  | { readonly config?: undefined; readonly findings: readonly Finding[] };

/** Checks whether a node would accept the configuration. Without a discovery address it can be checked but not run. */
export function checkConfiguration(configuration: Configuration): ConfigurationCheck {
  const { mapping, origins } = configuration;
  const subject = 'configuration';
  const warnings = configuration.warnings.map((detail): Finding => ({ subject, state: 'warning', detail }));
  if (origins.size === 0) return { findings: warnings };
  const isComplete = mapping.discovery_addr !== undefined;
  const placeholder = { discovery_addr: '127.0.0.1:1' };
  try {
    const config = parseConfiguration({ ...configuration, mapping: { ...placeholder, ...mapping } });
    // Both constructors validate their arguments, which is how a node starts.
    new NodeRuntime(config);
    const isSource = config.discoveryEndpoints().length === 0;
    new DiscoveryClient(
      isSource ? [] : config.discoveryAddr,
      new NodeInfo({ nodeId: 'doctor', controlHost: '127.0.0.1', controlPort: 1 }),
      { env: systemEnvironment() },
    );
    const detail = `${origins.size} ${origins.size === 1 ? 'key' : 'keys'} accepted, from ${[...new Set(origins.values())].join(', ')}`;
    if (isComplete) return { config, findings: [{ subject, state: 'ok', detail }, ...warnings] };
    const advice =
      'a node needs discovery_addr too: --discovery-addr, MESHCACHE_DISCOVERY_ADDR or the file of --config';
    const isMoreThanDisk = [...origins.values()].some((origin) => origin !== '--disk-path' && origin !== '--disk-size');
    return { config, findings: [{ subject, state: isMoreThanDisk ? 'warning' : 'ok', detail, advice }, ...warnings] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const detail = (withOrigin(error, configuration) as Error).message;
    const advice = 'a node would not start with it; the settings that depend on it are not looked at';
    return { findings: [{ subject, state: 'problem', detail, advice }, ...warnings] };
  }
}

/** Checks the address at which the node listens and is reached, and its ports there. */
export async function checkOwnAddress(config: MeshCacheConfig): Promise<Finding[]> {
  const subject = 'own address';
  let host: string;
  try {
    host =
      config.localHostname === undefined
        ? await ownAddressTowards(await discoveryTargets(config), systemHost)
        : await reachableName(config.localHostname, systemHost);
  } catch (error) {
    return [{ subject, state: 'problem', detail: (error as Error).message }];
  }
  const fault = await reachFault(host, config.discoveryEndpoints(), systemHost);
  if (fault?.isCertain) return [{ subject, state: 'problem', detail: fault.text }];
  const failure = await listenFailure({ host, port: 0 });
  if (failure !== undefined) {
    const detail = `local_hostname ${JSON.stringify(host)}: ${reasonOf(failure)}`;
    const advice = `set local_hostname to an address of this machine that the other nodes reach: ${ownAddresses()}`;
    return [{ subject, state: 'problem', detail, advice }];
  }
  const detail = config.localHostname === undefined ? `${host}, which is on the route to discovery` : host;
  const own: Finding =
    config.localHostname === undefined || config.localHostname === host
      ? { subject, state: 'ok', detail }
      : {
          subject,
          state: 'warning',
          detail: `local_hostname ${JSON.stringify(config.localHostname)} is loopback on this host; ${host} is taken`,
          advice: 'set local_hostname to the address that the other nodes reach',
        };
  const ports = [
    ['control_port', config.controlPort],
    ['tcp_port', config.tcpPort],
  ] as const;
  const findings = await Promise.all(ports.map(([key, port]) => checkPort(key, { host, port })));
  const doubts: Finding[] = fault === undefined ? [] : [{ subject, state: 'warning', detail: fault.text }];
  return [own, ...doubts, ...findings.flat(), ...(await checkReach(config, host)), ...(await checkClashes(config))];
}

/**
 * Checks whether a node would refuse its own address, or a discovery address of this machine, because anyone who can
 * reach it there could join.
 */
async function checkReach(config: MeshCacheConfig, host: string): Promise<Finding[]> {
  const { clusterSecret, clusterSecretFile, tlsCaFile } = config;
  const isAuthenticated = [clusterSecret, clusterSecretFile, tlsCaFile].some((given) => given !== undefined);
  const listed = config.discoveryEndpoints().map((endpoint) => localAddressOf(endpoint.host, systemHost));
  const hosts = [host, ...(await Promise.all(listed))];
  const faults = hosts.map((one) => (one === undefined ? undefined : openNodeFault(one, isAuthenticated)));
  const fault = faults.find((one) => one !== undefined);
  if (fault === undefined) return [];
  return [{ subject: 'authentication', state: config.allowUnauthenticated ? 'warning' : 'problem', detail: fault }];
}

/** The discovery addresses; a node chooses its own address on the route to them. Throws if a source names none. */
async function discoveryTargets(config: MeshCacheConfig): Promise<readonly Endpoint[]> {
  const address = config.discoveryAddress();
  if (address.kind === 'etcd') return address.endpoints.slice(0, 1);
  const found = await askOnce(config, systemEnvironment());
  if (found.length > 0) return found;
  throw new Error(
    `${config.discoveryAddr} names no address; set local_hostname to the address that the other nodes reach`,
  );
}

/** Checks that no port is given to two servers of one node. */
async function checkClashes(config: MeshCacheConfig): Promise<Finding[]> {
  const given = [
    ['control_port', config.controlPort],
    ['tcp_port', config.tcpPort],
    ['rdma_port', config.rdmaPort],
    ...(config.metricsEnabled ? [['metrics_port', config.metricsPort]] : []),
    ...(config.respPort === undefined ? [] : [['resp_port', config.respPort]]),
  ] as [string, number][];
  for (const { host, port } of config.discoveryEndpoints()) {
    if ((await localAddressOf(host, systemHost)) !== undefined) given.push(['discovery_addr', port]);
  }
  return portClashes(given);
}

/** A problem for each key with the same port as an earlier key. Port 0 means any free port and never clashes. */
export function portClashes(given: readonly (readonly [key: string, port: number])[]): Finding[] {
  return given.flatMap(([key, port], i): Finding[] => {
    const [other] = given.slice(0, i).find(([, earlier]) => port > 0 && earlier === port) ?? [];
    if (other === undefined) return [];
    const advice = 'give each a port of its own, or 0 for any that is free';
    return [{ subject: 'ports', state: 'problem', detail: `${other} and ${key} both have port ${port}`, advice }];
  });
}

/** Checks where the metrics server would listen. A taken port is no problem, because the server tries the next one. */
export async function checkMetrics(config: MeshCacheConfig): Promise<Finding> {
  const { metricsEnabled, metricsHost: host, metricsPort: port, metricsToken } = config;
  const subject = 'metrics';
  if (!metricsEnabled) return { subject, state: 'n/a', detail: 'off (metrics_enabled)' };
  const tls = tlsFinding(subject, 'metrics', config);
  if (tls !== undefined) return tls;
  const failure = await listenFailure({ host, port });
  if (failure === 'EADDRINUSE') {
    const detail = `metrics_port ${port} is taken on ${host}: a node takes the next free one of ${METRICS_PORTS_MAX_COUNT} and says which`;
    return { subject, state: 'ok', detail };
  }
  if (failure === 'EACCES') return privileged(subject, 'metrics_port', { host, port });
  if (failure !== undefined) {
    const detail = `metrics_host ${JSON.stringify(host)}: ${reasonOf(failure)}`;
    const advice = `set metrics_host to 127.0.0.1, to 0.0.0.0 for every address, or to one of this machine: ${ownAddresses()}`;
    return { subject, state: 'problem', detail, advice };
  }
  const where = formatEndpoint({ host, port });
  if ((metricsToken ?? config.metricsTlsCaFile) !== undefined || isLoopback(host)) {
    return { subject, state: 'ok', detail: `${where} can be listened on` };
  }
  const detail = `${where} can be listened on, and everybody who reaches it may read`;
  return { subject, state: 'warning', detail, advice: 'set metrics_token, or metrics_host to 127.0.0.1' };
}

/** Checks whether the pool fits into memory. */
export function checkPool({ globalSegmentSize: bytes }: MeshCacheConfig): Finding {
  const subject = 'pool';
  const { totalBytes, freeBytes } = ownMemory();
  const detail = `global_segment_size ${formatSize(bytes)}; ${formatSize(freeBytes)} of memory free of ${formatSize(totalBytes)}`;
  if (bytes > totalBytes) {
    const advice = `a node refuses it: choose at most ${formatSize(totalBytes)}, and leave memory for everything else`;
    return { subject, state: 'problem', detail, advice };
  }
  if (bytes <= POOL_FREE_SHARE * freeBytes) return { subject, state: 'ok', detail };
  const advice =
    'it may not fit: over TCP memory is taken as pages are set, over RDMA at once; choose a smaller global_segment_size';
  return { subject, state: 'warning', detail, advice };
}

/** The finding for a listed discovery address where a master and this program do not authenticate each other. */
export function unauthenticatedAtDiscovery(reason: string): Finding {
  const detail = `a master answers and wants another cluster_secret or other certificates (${reason})`;
  const advice = 'set the cluster_secret (or tls_* files) that the other nodes have';
  return { subject: 'discovery', state: 'problem', detail, advice };
}

/**
 * Checks a listed discovery address at which no master answers. On this machine that is normal before the first node
 * starts, provided that the port is free.
 */
export async function checkSilentDiscovery(endpoint: Endpoint, silence: string): Promise<Finding> {
  const subject = 'discovery';
  const { host, port } = endpoint;
  const where = formatEndpoint(endpoint);
  const nodeThere =
    'is a node running on that host with this discovery_addr, does it want TLS (tls_* files), and does a firewall allow the port?';
  const addresses = await lookup(host, { all: true }).catch(() => []);
  if (addresses.length === 0) {
    const advice = 'check the name and the name server (`getent hosts NAME`), or give the address';
    return { subject, state: 'problem', detail: `${where}: the name ${host} does not resolve`, advice };
  }
  const listenHost = await localAddressOf(host, systemHost);
  if (listenHost === undefined)
    return { subject, state: 'problem', detail: `no discovery master answers (${silence})`, advice: nodeThere };
  const failure = await listenFailure({ host: listenHost, port });
  if (failure === 'EACCES') return privileged(subject, 'discovery_addr', endpoint);
  if (failure === 'EADDRINUSE') {
    const detail = `${where} is taken on this machine by something that is no discovery master (${silence})`;
    return {
      subject,
      state: 'problem',
      detail,
      advice: `if it is a node that wants TLS, set the tls_* files; else choose another port, or find out who has it: ${whoHas(port)}`,
    };
  }
  if (failure !== undefined) {
    return { subject, state: 'problem', detail: `${where}: ${reasonOf(failure)}`, advice: nodeThere };
  }
  const advice = `start the first node here, it runs discovery: meshcache node --discovery-addr ${where}`;
  return { subject, state: 'warning', detail: `${where} is this machine's, and nobody answers there yet`, advice };
}

async function checkPort(key: 'control_port' | 'tcp_port', endpoint: Endpoint): Promise<Finding[]> {
  if (endpoint.port === 0) return [];
  const subject = key.replace('_', ' ');
  const where = formatEndpoint(endpoint);
  const failure = await listenFailure(endpoint);
  if (failure === undefined) return [{ subject, state: 'ok', detail: `${where} can be listened on` }];
  if (failure === 'EACCES') return [privileged(subject, key, endpoint)];
  const advice = `choose another ${key}, or 0 for any that is free; who has it: ${whoHas(endpoint.port)}`;
  return [{ subject, state: 'problem', detail: `${where}: ${reasonOf(failure)}`, advice }];
}
