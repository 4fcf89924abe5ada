import type { Environment } from '../../base/environment/environment.js';
import type { HttpTls } from '../../base/environment/http-client.js';
import type { Endpoint } from '../../base/environment/network.js';
import { DISCOVERY_MASTERS_MAX_COUNT } from '../../base/limits.js';
import type { DiscoveryAddress } from '../../base/settings/discovery-address.js';
import { readNamedFile } from '../../base/settings/named-file.js';
import { readAuthorityFile } from '../../net/credentials/tls-files.js';
import type { AddressSource, ListedOptions } from './address-source.js';
import { DnsSource, lookUpAll } from './dns-source.js';
import { checkRights, EtcdClient, readSeats } from './etcd-client.js';
import { EtcdSource } from './etcd-source.js';

/** The settings of a source; a `MeshCacheConfig` has them all. */
interface SourceSettings {
  readonly discoveryPort: number;
  readonly maxMasters: number;
  readonly etcdUser: string | undefined;
  readonly etcdPassword: string | undefined;
  readonly etcdCaFile: string | undefined;
  readonly etcdCertFile: string | undefined;
  readonly etcdKeyFile: string | undefined;
  discoveryAddress(): DiscoveryAddress;
}

/** A source, and how its addresses are listed. */
export interface OpenedSource extends ListedOptions {
  readonly source: AddressSource;
}

/** How long addresses from DNS stay listed: a name may have other records in a moment, for one node or for all. */
const DNS_KEPT_MS = 300_000;
/** How long addresses from etcd stay listed: a key whose lease has ended by mistake comes back sooner. */
const ETCD_KEPT_MS = 15_000;

/**
 * Opens the source of addresses that a configuration names; undefined: the configuration lists the addresses itself.
 * Reads files. Throws `ConfigError`.
 */
export function openSource(config: SourceSettings, nodeId: string, env: Environment): OpenedSource | undefined {
  const address = config.discoveryAddress();
  const { maxMasters: seats } = config;
  switch (address.kind) {
    case 'list':
      return undefined;
    case 'dns':
      return { source: new DnsSource({ address, port: config.discoveryPort, env }), seats, keptMs: DNS_KEPT_MS };
    case 'etcd': {
      const client = clientOf(address, config, env);
      const source = new EtcdSource({ address, client, seats, nodeId, env });
      // Everything in etcd is the address of a master.
      return { source, seats: DISCOVERY_MASTERS_MAX_COUNT, keptMs: ETCD_KEPT_MS };
    }
  }
}

/**
 * Returns the addresses that the source of a configuration names now, in the order in which they are to be tried.
 * Rejects if the source does not answer.
 */
export async function askOnce(config: SourceSettings, env: Environment): Promise<readonly Endpoint[]> {
  const address = config.discoveryAddress();
  switch (address.kind) {
    case 'list':
      return address.endpoints;
    case 'dns':
      return (await lookUpAll({ address, port: config.discoveryPort, env })).endpoints;
    case 'etcd': {
      const client = clientOf(address, config, env);
      try {
        return (await readSeats(client, address.name)).seats.map(({ endpoint }) => endpoint);
      } finally {
        client.close();
      }
    }
  }
}

/** Like {@link askOnce}, but also rejects if this node could not register its master there. Changes nothing. */
export async function examineSource(config: SourceSettings, env: Environment): Promise<readonly Endpoint[]> {
  const address = config.discoveryAddress();
  if (address.kind !== 'etcd') return askOnce(config, env);
  const client = clientOf(address, config, env);
  try {
    const { seats } = await readSeats(client, address.name);
    await checkRights(client, address.name);
    return seats.map(({ endpoint }) => endpoint);
  } finally {
    client.close();
  }
}

function clientOf(
  { endpoints, isTls }: Extract<DiscoveryAddress, { readonly kind: 'etcd' }>,
  config: SourceSettings,
  env: Environment,
): EtcdClient {
  const { etcdUser: user, etcdPassword: password } = config;
  const tls = isTls ? tlsOf(config, env) : undefined;
  // A random first server spreads the nodes over the servers.
  const first = env.random.u32() % endpoints.length;
  return new EtcdClient({ endpoints, first, tls, user, password, env });
}

function tlsOf({ etcdCaFile, etcdCertFile, etcdKeyFile }: SourceSettings, { files }: Environment): HttpTls {
  const read = (key: string, path: string | undefined): string | undefined =>
    path === undefined ? undefined : readNamedFile(key, path, files, 'PEM file').toString();
  return {
    ca: etcdCaFile === undefined ? undefined : readAuthorityFile('etcd_ca_file', etcdCaFile, files),
    cert: read('etcd_cert_file', etcdCertFile),
    key: read('etcd_key_file', etcdKeyFile),
  };
}
