import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import { DISCOVERY_START_TIMEOUT_MS } from '../../base/limits.js';
import type { MeshCacheConfig } from '../../config.js';
import { openSource } from '../../discovery/sources/open-source.js';
import { Rendezvous } from '../../discovery/sources/rendezvous.js';
import { ownAddressTowards, reachableName, reachFault } from './own-address.js';

/** Longest time that a node that does not know its own address waits for the first answer of its source. */
const OWN_ADDRESS_TIMEOUT_MS = 15_000;

/** Where a node finds the others, and the address at which they find it. */
export interface OpenDiscovery {
  /** The currently listed addresses; none if a source has not answered yet, or knows no node. */
  readonly listed: readonly Endpoint[];
  /** Source of further addresses; undefined if the configuration lists them. */
  readonly rendezvous: Rendezvous | undefined;
  /** The address on which this node listens. */
  readonly host: string;
}

interface OpenDiscoveryOptions {
  readonly nodeId: string;
  readonly env: Environment;
  /** Receives the function that stops the source. */
  readonly stops: (() => Promise<void>)[];
}

/**
 * Opens the source of discovery addresses, if there is one. If the source does not answer, a node starts anyway and
 * keeps asking, provided that it knows its own address: from `local_hostname`, or from the route to the source. Throws
 * `ConfigError`, also if no other host could reach that address.
 */
export async function openDiscovery(config: MeshCacheConfig, options: OpenDiscoveryOptions): Promise<OpenDiscovery> {
  const { env } = options;
  const discovery = await findDiscovery(config, options);
  const fault = await reachFault(discovery.host, discovery.listed, env.host);
  if (fault?.isCertain) throw new ConfigError(`configuration key "local_hostname": ${fault.text}`);
  if (fault !== undefined) env.log.log('warn', fault.text);
  return discovery;
}

async function findDiscovery(
  config: MeshCacheConfig,
  { nodeId, env, stops }: OpenDiscoveryOptions,
): Promise<OpenDiscovery> {
  const localHostname = await ownName(config, env);
  const opened = openSource(config, nodeId, env);
  if (opened === undefined) {
    const listed = config.discoveryEndpoints();
    env.metrics.setGaugeProvider('meshcache_discovery_source_answers', () => 1);
    const host = localHostname ?? (await ownAddressTowards(listed, env.host));
    return { listed, rendezvous: undefined, host };
  }
  const { source } = opened;
  const rendezvous = new Rendezvous({ ...opened, env });
  stops.push(() => rendezvous.stop());
  const isAddressKnown = localHostname !== undefined || source.server !== undefined;
  const listed = await rendezvous.open(isAddressKnown ? DISCOVERY_START_TIMEOUT_MS : OWN_ADDRESS_TIMEOUT_MS);
  const targets = source.server === undefined ? listed : [source.server];
  if (localHostname !== undefined) return { listed, rendezvous, host: localHostname };
  if (targets.length > 0) return { listed, rendezvous, host: await ownAddressTowards(targets, env.host) };
  const { failure = 'no answer' } = rendezvous.state();
  throw new ConfigError(
    `configuration key "discovery_addr": got "${source.name}", which has named no address within ${OWN_ADDRESS_TIMEOUT_MS / 1000} s ` +
      `(${failure}); check the name and the name server, or set local_hostname to the address that the other nodes reach: then the ` +
      'node starts, and goes on asking',
  );
}

/** The configured name of this host, as others reach it; undefined if none is configured. */
async function ownName({ localHostname }: MeshCacheConfig, env: Environment): Promise<string | undefined> {
  if (localHostname === undefined) return undefined;
  const host = await reachableName(localHostname, env.host);
  if (host !== localHostname) {
    const advice = 'set local_hostname to the address that the other nodes reach';
    env.log.log('warn', 'local_hostname is loopback on this host', {
      local_hostname: localHostname,
      taken: host,
      advice,
    });
  }
  return host;
}

/**
 * The port of a master on an unlisted host: the port of the first listed address, or for a source the configured one.
 */
export function masterPortOf(config: MeshCacheConfig, listed: readonly Endpoint[]): number {
  const address = config.discoveryAddress();
  if (address.kind === 'dns' && address.port !== undefined) return address.port;
  return address.kind === 'etcd' ? config.discoveryPort : (listed[0]?.port ?? config.discoveryPort);
}
