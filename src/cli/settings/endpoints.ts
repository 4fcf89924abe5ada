import { type Endpoint, formatEndpoint, isEveryAddress, parseEndpoint } from '../../base/environment/network.js';
import { DISCOVERY_MASTERS_MAX_COUNT } from '../../base/limits.js';
import { discoveryAddressFault, parseDiscoveryAddress } from '../../base/settings/discovery-address.js';
import { CommandFailure, wrongUsage } from '../../command/context.js';
import { discoveryAddr } from '../../command/options.js';
import { MeshCacheConfig } from '../../config.js';
import { askOnce } from '../../discovery/sources/open-source.js';
import { isLoopbackAddress } from '../../net/loopback.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { type Configuration, withOrigin } from './configuration.js';

/** Keys needed to ask a source for discovery addresses. */
const SOURCE_KEYS = [
  ...['discovery_addr', 'discovery_port'],
  ...['etcd_user', 'etcd_password', 'etcd_ca_file', 'etcd_cert_file', 'etcd_key_file'],
];

/**
 * The discovery masters in the configuration, or the first ones that its source names; undefined if no address is
 * configured. Throws {@link CommandFailure}, with status 2 for an invalid address.
 */
export async function mastersOf(configuration: Configuration): Promise<readonly Endpoint[] | undefined> {
  if (configuration.mapping.discovery_addr === undefined) return undefined;
  const config = sourceConfig(configuration);
  const listed = config.discoveryEndpoints();
  if (listed.length > 0) return listed;
  const { discoveryAddr: source } = config;
  let found: readonly Endpoint[];
  try {
    found = await askOnce(config, systemEnvironment());
  } catch (error) {
    const advice = 'Check the address, and that its server answers.';
    throw new CommandFailure(`${source}: ${(error as Error).message}. ${advice}`, undefined, { cause: error });
  }
  if (found.length > 0) return found.slice(0, DISCOVERY_MASTERS_MAX_COUNT);
  throw new CommandFailure(
    `${source} names no node. Check the address, and that nodes run with it as their discovery_addr.`,
  );
}

/** A configuration of only the keys that locate the masters. Throws {@link CommandFailure} with status 2. */
export function sourceConfig(configuration: Configuration): MeshCacheConfig {
  const { mapping, origins } = configuration;
  const { discovery_addr: address } = mapping;
  if (typeof address === 'string') checkAddress(address, origins.get('discovery_addr') ?? 'discovery_addr');
  const given = SOURCE_KEYS.flatMap((key) => (mapping[key] === undefined ? [] : [[key, mapping[key]] as const]));
  try {
    return MeshCacheConfig.fromExtraConfig(Object.fromEntries(given));
  } catch (error) {
    throw wrongUsage((withOrigin(error, configuration) as Error).message);
  }
}

function checkAddress(text: string, origin: string): void {
  if (parseDiscoveryAddress(text) !== undefined) return;
  const fault = discoveryAddressFault(text);
  if (fault !== undefined) throw wrongUsage(`${origin}: discovery_addr: ${fault}`);
  try {
    discoveryAddr(text);
  } catch (error) {
    throw wrongUsage(`${origin}: discovery_addr ${JSON.stringify(text)}: ${(error as Error).message}`);
  }
}

/**
 * URL of a node's dashboard for a browser; undefined if the node has no metrics server. `host`: the node's address,
 * used if the server listens on every address. `isTls`: the server speaks HTTPS.
 */
export function metricsUrl(
  metricsEndpoint: string | undefined,
  { host = '127.0.0.1', isTls = false }: { readonly host?: string; readonly isTls?: boolean } = {},
): string | undefined {
  const endpoint = parseEndpoint(metricsEndpoint ?? '');
  if (endpoint === undefined) return undefined;
  return `${isTls ? 'https' : 'http'}://${formatEndpoint(isEveryAddress(endpoint.host) ? { ...endpoint, host } : endpoint)}/`;
}

/** Whether only programs on the same machine can reach a server that listens there. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || isLoopbackAddress(host);
}
