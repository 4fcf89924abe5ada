import type { ClusterSecrets } from './base/environment/credentials.js';
import type { Endpoint } from './base/environment/network.js';
import { ConfigError } from './base/errors.js';
import {
  DISK_INDEX_MIN_BYTES,
  DISK_MAX_BYTES,
  DISK_MIN_BYTES,
  PIN_SHARE_MAX,
  PIN_TIME_MAX_S,
  POOL_MAX_BYTES,
  POOL_MIN_BYTES,
  VNODES_DEFAULT_COUNT,
  ZONE_MAX_CHARACTERS,
} from './base/limits.js';
import { meantName, nearestName, toCamelCase, toSnakeCase } from './base/names.js';
import { type DiscoveryAddress, parseDiscoveryAddress } from './base/settings/discovery-address.js';
import { CLIENT_FIELDS, DOOR_TLS_FIELDS, type DoorSettings, doorTlsFault } from './base/settings/door-settings.js';
import { ETCD_FIELDS, type EtcdSettings, etcdFault } from './base/settings/etcd-settings.js';
import { EVICTION_POLICIES, type EvictionPolicy } from './base/settings/eviction-policy.js';
import {
  choice,
  decimal,
  describeValue,
  discoveryAddress,
  FINGERPRINT,
  FINGERPRINT_ALLOWED,
  type Field,
  flag,
  freeText,
  integer,
  names,
  secrets,
  size,
  socketPath,
  text,
} from './base/settings/fields.js';
import { type NamespaceQuota, type NamespaceQuotas, namespaceQuotas } from './base/settings/namespace-quotas.js';
import { NETWORK_FIELDS, type NetworkSettings } from './base/settings/network-settings.js';
import {
  OBJECT_STORE_FIELDS,
  type ObjectStoreSettings,
  objectStoreFault,
} from './base/settings/object-store-settings.js';
import { READ_FIELDS, type ReadSettings } from './base/settings/read-settings.js';
import {
  checkRole,
  type NamespaceWritePolicies,
  namespaceWritePolicies,
  WRITE_POLICIES,
  type WritePolicy,
} from './base/settings/write-policies.js';
import { checkSecurity } from './net/credentials/secured-environment.js';
import { openRedisDoorFault } from './net/loopback.js';
import type { NodeRole } from './types.js';

export {
  EVICTION_POLICIES,
  type EvictionPolicy,
  type NamespaceQuota,
  type NamespaceQuotas,
  type NamespaceWritePolicies,
  WRITE_POLICIES,
  type WritePolicy,
};
/** What `eviction_policy` is when it is left out: docs/eviction.md has the figures. */
export const DEFAULT_EVICTION_POLICY: EvictionPolicy = 'lru';

/** What `disk_write` may be. */
export const DISK_WRITE_MODES = ['wait', 'skip', 'evicted'] as const;
/** One of {@link DISK_WRITE_MODES}: when pages are written to disk, and what setting them does when it is behind. */
export type DiskWriteMode = (typeof DISK_WRITE_MODES)[number];

/** What `role` may be. */
export const NODE_ROLES = ['peer', 'storage'] as const satisfies readonly NodeRole[];

/**
 * What a host framework hands over when it creates a store. Ranks, sizes and the boolean may be text, as other settings
 * may.
 */
export interface StorageConfig {
  readonly tpRank: number | string;
  readonly tpSize: number | string;
  readonly ppRank: number | string;
  readonly ppSize: number | string;
  /** All tensor-parallel ranks of such a model hold the same pages, so they share entries. */
  readonly isMlaModel: boolean | string | number;
  readonly modelName?: string;
  /** Configuration keys, snake_case or camelCase, and the framework's own ones. */
  readonly extraConfig: Readonly<Record<string, unknown>>;
}

/** The settings of one node; docs/configuration.md has the table of their meanings. */
export interface MeshCacheConfigFields
  extends DoorSettings,
    EtcdSettings,
    NetworkSettings,
    ObjectStoreSettings,
    ReadSettings {
  /** `host:port` of a discovery master, or several, comma-separated; or a source of addresses, such as `dns://name`. */
  readonly discoveryAddr: string;
  /** Port of the discovery masters that a source names without one. */
  readonly discoveryPort: number;
  readonly protocol: 'rdma' | 'tcp';
  readonly deviceName: string | undefined;
  readonly deviceNames: readonly string[];
  readonly ibPort: number;
  readonly gidIndex: number | undefined;
  /** Bytes of the pool. */
  readonly globalSegmentSize: number;
  /** Must be the same on all nodes: others are refused (`ClusterSettings`). */
  readonly vnodes: number;
  /** Must be the same on all nodes. */
  readonly directoryReplicas: number;
  /** Seats of discovery masters. */
  readonly maxMasters: number;
  /** Rack or zone of this host; undefined: none. */
  readonly zone: string | undefined;
  readonly nodeId: string | undefined;
  /** Seconds. */
  readonly heartbeatInterval: number;
  /** Seconds. */
  readonly memberTtl: number;
  readonly diskEnabled: boolean;
  readonly diskPath: string | undefined;
  /** Bytes, everything that the tier has on disk included. */
  readonly diskSize: number;
  /**
   * What the index may take of that, bytes; undefined: a 32nd. Small pages with long keys need more to fill the disk.
   */
  readonly diskIndexSize: number | undefined;
  readonly diskWrite: DiskWriteMode;
  /** Folder on tmpfs or hugetlbfs in which the pool outlives its process; undefined: it does not. */
  readonly poolPath: string | undefined;
  readonly metricsEnabled: boolean;
  readonly metricsHost: string;
  readonly metricsPort: number;
  readonly metricsDashboard: boolean;
  /** Bearer token that the metrics server asks for; without it everybody who reaches it may read. */
  readonly metricsToken: string | undefined;
  /** Port for Redis clients; undefined: none. */
  readonly respPort: number | undefined;
  readonly respHost: string;
  /** Path of a Unix socket for Redis clients; undefined: none. */
  readonly respSocket: string | undefined;
  /** What Redis clients must know. */
  readonly respPassword: string | undefined;
  /** Path of a file with it, instead. */
  readonly respPasswordFile: string | undefined;
  /**
   * Tag of the namespace in which the values of Redis clients are; must be the same on all nodes whose clients share
   * values.
   */
  readonly respNamespace: string;
  /** A new store waits until the other nodes have announced their pages to it. */
  readonly waitForDirectory: boolean;
  readonly evictionPolicy: EvictionPolicy;
  /** Whether the node takes pages that others place on it. */
  readonly role: NodeRole;
  /** Where pages that are set on this node are kept; see {@link WritePolicy}. */
  readonly writePolicy: WritePolicy;
  /** `writePolicy` of single namespaces, by their tags. */
  readonly namespaceWritePolicies: NamespaceWritePolicies;
  /** Part of the pool that clients may pin; 0: none. */
  readonly pinMaxShare: number;
  /** Longest time for which a page may be pinned, in seconds. */
  readonly pinMaxS: number;
  /** Computed pages are kept in the own pool although another node has them. */
  readonly keepDuplicates: boolean;
  /**
   * What nodes must know to talk to each other; two while it is being changed: the first is presented, both are
   * accepted.
   */
  readonly clusterSecret: ClusterSecrets | undefined;
  /** Path of a file with it, one or two lines, instead. */
  readonly clusterSecretFile: string | undefined;
  /**
   * PEM files; with all three the control plane and reads over TCP speak TLS, and take only peers whom the authority
   * has signed.
   */
  readonly tlsCertFile: string | undefined;
  readonly tlsKeyFile: string | undefined;
  readonly tlsCaFile: string | undefined;
  /** PEM file of the certificates that the authority has revoked. */
  readonly tlsCrlFile: string | undefined;
  /** Names of which a peer's certificate must have one; empty: the authority's signature is enough. */
  readonly tlsNames: readonly string[];
  readonly allowUnauthenticated: boolean;
  /** File to which the node appends who has done what at its doors, and who was refused; undefined: none. */
  readonly auditLogPath: string | undefined;
  /** Shares of the pool and of the disk tier by namespace tag; empty: no quotas. */
  readonly namespaceQuotas: NamespaceQuotas;
  /** Parts of the key space that the host framework does not know by itself. */
  readonly namespace: string;
  readonly dtype: string;
  readonly layout: string;
  /**
   * Identity of the model's weights; undefined: not said. Nodes of one namespace that state different ones refuse each
   * other.
   */
  readonly fingerprint: string | undefined;
}

/** Every field may be left out, but for the discovery address; text is parsed (`'4gb'`, `'true'`). */
export type MeshCacheConfigInit = { readonly discoveryAddr: string } & {
  readonly [K in keyof MeshCacheConfigFields]?:
    | MeshCacheConfigFields[K]
    | string
    | (K extends 'clusterSecret' ? readonly string[] : never)
    | (K extends 'namespaceWritePolicies' ? Readonly<Record<string, string>> : never)
    | (K extends 'namespaceQuotas' ? Readonly<Record<string, Partial<NamespaceQuota>>> : never);
};

const ZONE_PATTERN = new RegExp(`^\\s*[\\w.:/-]{1,${ZONE_MAX_CHARACTERS}}\\s*$`);

const SCHEMA: Readonly<Record<string, Field>> = {
  discovery_addr: discoveryAddress(),
  discovery_port: integer(1, 65535, 31990),
  ...ETCD_FIELDS,
  protocol: choice(['rdma', 'tcp'], 'rdma'),
  device_name: text('the name of an RDMA device', undefined),
  device_names: names(),
  ib_port: integer(1, 255, 1),
  gid_index: integer(0, 255, undefined),
  global_segment_size: size(POOL_MIN_BYTES, POOL_MAX_BYTES, '4gb'),
  vnodes: integer(1, 4096, VNODES_DEFAULT_COUNT),
  directory_replicas: integer(1, 16, 2),
  max_masters: integer(1, 16, 3),
  zone: text(`1 to ${ZONE_MAX_CHARACTERS} letters, digits and . _ - : /`, undefined, ZONE_PATTERN),
  node_id: text('text of 1 to 256 characters, none of them a control character', undefined, /^(?=.*\S)\P{Cc}{1,256}$/u),
  ...NETWORK_FIELDS,
  heartbeat_interval: decimal(0.05, 3600, 2, 'seconds'),
  member_ttl: decimal(0.1, 36_000, 6, 'seconds'),
  disk_enabled: flag(false),
  disk_path: text('a directory', undefined),
  disk_size: size(DISK_MIN_BYTES, DISK_MAX_BYTES, '100gb'),
  disk_index_size: size(DISK_INDEX_MIN_BYTES, DISK_MAX_BYTES, undefined),
  disk_write: choice(DISK_WRITE_MODES, 'wait'),
  pool_path: text('a folder on tmpfs or hugetlbfs', undefined),
  ...OBJECT_STORE_FIELDS,
  metrics_enabled: flag(true),
  metrics_host: text('a host name or address', '127.0.0.1'),
  metrics_port: integer(0, 65535, 31997),
  metrics_dashboard: flag(true),
  metrics_token: text('visible characters without spaces', undefined, /^\s*(?!\[secret\]\s*$)[\x21-\x7e]+\s*$/),
  ...CLIENT_FIELDS,
  resp_port: integer(0, 65535, undefined),
  resp_host: text('a host name or address', '127.0.0.1'),
  resp_socket: socketPath(),
  resp_password: text('visible characters without spaces', undefined, /^\s*(?!\[secret\]\s*$)[\x21-\x7e]{1,1024}\s*$/),
  resp_password_file: text('the path of a file', undefined),
  resp_namespace: text('text', 'redis'),
  ...DOOR_TLS_FIELDS,
  wait_for_directory: flag(false),
  ...READ_FIELDS,
  eviction_policy: choice(EVICTION_POLICIES, DEFAULT_EVICTION_POLICY),
  role: choice(NODE_ROLES, 'peer'),
  write_policy: choice(WRITE_POLICIES, 'local'),
  namespace_write_policies: namespaceWritePolicies(),
  keep_duplicates: flag(false),
  namespace_quotas: namespaceQuotas(),
  pin_max_share: decimal(0, PIN_SHARE_MAX, 0.25, 'of the pool'),
  pin_max_s: decimal(1, PIN_TIME_MAX_S, 600, 'seconds'),
  cluster_secret: secrets(),
  cluster_secret_file: text('the path of a file', undefined),
  tls_cert_file: text('the path of a PEM file', undefined),
  tls_key_file: text('the path of a PEM file', undefined),
  tls_ca_file: text('the path of a PEM file', undefined),
  tls_crl_file: text('the path of a PEM file', undefined),
  tls_names: names(),
  allow_unauthenticated: flag(false),
  audit_log_path: text('the path of a file', undefined),
  namespace: freeText(''),
  dtype: freeText(''),
  layout: freeText(''),
  fingerprint: text(FINGERPRINT_ALLOWED, undefined, FINGERPRINT),
};

/** Never shown, in no message, and not taken from a command line. */
export const SECRET_KEYS: ReadonlySet<string> = new Set([
  ...['cluster_secret', 'metrics_token', 'resp_password', 'etcd_password'],
  ...['object_store_access_key_id', 'object_store_secret_access_key', 'object_store_session_token'],
]);

/** All configuration keys, snake_case. */
export const CONFIG_KEYS: readonly string[] = Object.keys(SCHEMA);

/** Keys of the host framework's own that share the mapping. */
const FRAMEWORK_KEYS: ReadonlySet<string> = new Set([
  'backend_name',
  'module_path',
  'class_name',
  'interface_v1',
  'allocator',
]);

/** Validated, complete, immutable. Every refusal is a {@link ConfigError} that names the key. */
export class MeshCacheConfig implements MeshCacheConfigFields {
  declare readonly discoveryAddr: string;
  declare readonly discoveryPort: number;
  declare readonly etcdUser: string | undefined;
  declare readonly etcdPassword: string | undefined;
  declare readonly etcdCaFile: string | undefined;
  declare readonly etcdCertFile: string | undefined;
  declare readonly etcdKeyFile: string | undefined;
  declare readonly protocol: 'rdma' | 'tcp';
  declare readonly deviceName: string | undefined;
  declare readonly deviceNames: readonly string[];
  declare readonly ibPort: number;
  declare readonly gidIndex: number | undefined;
  declare readonly globalSegmentSize: number;
  declare readonly vnodes: number;
  declare readonly directoryReplicas: number;
  declare readonly maxMasters: number;
  declare readonly localHostname: string | undefined;
  declare readonly zone: string | undefined;
  declare readonly nodeId: string | undefined;
  declare readonly controlPort: number;
  declare readonly rdmaPort: number;
  declare readonly tcpPort: number;
  declare readonly tcpThreads: number | undefined;
  declare readonly spinUs: number;
  declare readonly dscp: number | undefined;
  declare readonly heartbeatInterval: number;
  declare readonly memberTtl: number;
  declare readonly diskEnabled: boolean;
  declare readonly diskPath: string | undefined;
  declare readonly diskSize: number;
  declare readonly diskIndexSize: number | undefined;
  declare readonly diskWrite: DiskWriteMode;
  declare readonly poolPath: string | undefined;
  declare readonly objectStore: string | undefined;
  declare readonly objectStoreEndpoint: string | undefined;
  declare readonly objectStoreRegion: string | undefined;
  declare readonly objectStoreAccessKeyId: string | undefined;
  declare readonly objectStoreSecretAccessKey: string | undefined;
  declare readonly objectStoreSessionToken: string | undefined;
  declare readonly objectStoreCaFile: string | undefined;
  declare readonly objectStoreWriteRate: number;
  declare readonly metricsEnabled: boolean;
  declare readonly metricsHost: string;
  declare readonly metricsPort: number;
  declare readonly metricsDashboard: boolean;
  declare readonly metricsToken: string | undefined;
  declare readonly clientSocket: string | undefined;
  declare readonly clientSocketMode: string;
  declare readonly clientSocketGroup: string | undefined;
  declare readonly clientRegionsMax: number;
  declare readonly usersFile: string | undefined;
  declare readonly respPort: number | undefined;
  declare readonly respHost: string;
  declare readonly respSocket: string | undefined;
  declare readonly respPassword: string | undefined;
  declare readonly respPasswordFile: string | undefined;
  declare readonly respNamespace: string;
  declare readonly respTlsCertFile: string | undefined;
  declare readonly respTlsKeyFile: string | undefined;
  declare readonly respTlsCaFile: string | undefined;
  declare readonly metricsTlsCertFile: string | undefined;
  declare readonly metricsTlsKeyFile: string | undefined;
  declare readonly metricsTlsCaFile: string | undefined;
  declare readonly waitForDirectory: boolean;
  declare readonly verifyReads: boolean;
  declare readonly reuseQuarantineMs: number;
  declare readonly locationReuseMs: number;
  declare readonly existsMaxAgeMs: number;
  declare readonly evictionPolicy: EvictionPolicy;
  declare readonly role: NodeRole;
  declare readonly writePolicy: WritePolicy;
  declare readonly namespaceWritePolicies: NamespaceWritePolicies;
  declare readonly clusterMap: number;
  declare readonly promoteHotReads: boolean;
  declare readonly keepDuplicates: boolean;
  declare readonly namespaceQuotas: NamespaceQuotas;
  declare readonly pinMaxShare: number;
  declare readonly pinMaxS: number;
  declare readonly clusterSecret: ClusterSecrets | undefined;
  declare readonly clusterSecretFile: string | undefined;
  declare readonly tlsCertFile: string | undefined;
  declare readonly tlsKeyFile: string | undefined;
  declare readonly tlsCaFile: string | undefined;
  declare readonly tlsCrlFile: string | undefined;
  declare readonly tlsNames: readonly string[];
  declare readonly allowUnauthenticated: boolean;
  declare readonly auditLogPath: string | undefined;
  declare readonly namespace: string;
  declare readonly dtype: string;
  declare readonly layout: string;
  declare readonly fingerprint: string | undefined;

  constructor(init: MeshCacheConfigInit) {
    const mapping = init as unknown as Record<string, unknown>;
    Object.assign(this, parseMapping(mapping));
    checkRelations(this, spellingOf(mapping));
    Object.freeze(this);
  }

  /** From a framework's mapping: snake_case or camelCase keys; unknown ones are refused. */
  static fromExtraConfig(mapping: Readonly<Record<string, unknown>>): MeshCacheConfig {
    return new MeshCacheConfig(mapping as unknown as MeshCacheConfigInit);
  }

  /** The listed discovery addresses, in order; empty if `discoveryAddr` is a source of addresses. */
  discoveryEndpoints(): readonly Endpoint[] {
    const address = this.discoveryAddress();
    return address.kind === 'list' ? address.endpoints : [];
  }

  /** @internal What `discoveryAddr` says. */
  discoveryAddress(): DiscoveryAddress {
    return parseDiscoveryAddress(this.discoveryAddr) as DiscoveryAddress;
  }

  /** The fields, with `[secret]` for what is one. */
  toJSON(): Record<string, unknown> {
    const shown: Record<string, unknown> = Object.fromEntries(Object.entries(this));
    for (const key of SECRET_KEYS) {
      const field = toCamelCase(key);
      if (shown[field] !== undefined) shown[field] = '[secret]';
    }
    return shown;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): Record<string, unknown> {
    return this.toJSON();
  }
}

function parseMapping(mapping: Readonly<Record<string, unknown>>): Record<string, unknown> {
  if (typeof mapping !== 'object' || mapping === null || Array.isArray(mapping)) {
    throw new ConfigError(`the configuration must be a mapping of keys to values, got ${describeValue(mapping)}`);
  }
  const spell = spellingOf(mapping);
  const given = new Map<string, unknown>();
  for (const [name, value] of Object.entries(mapping)) {
    const key = toSnakeCase(name);
    if (FRAMEWORK_KEYS.has(key) || value === undefined || value === null) continue;
    if (!Object.hasOwn(SCHEMA, key)) {
      const near = nearestName(key, CONFIG_KEYS);
      const meant = meantName(near === undefined ? undefined : spell(near));
      throw new ConfigError(`unknown configuration key "${name}"${meant || '; docs/configuration.md has all of them'}`);
    }
    if (given.has(key)) throw new ConfigError(`configuration key "${spell(key)}" is given twice`);
    given.set(key, value);
  }
  const parsed: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(SCHEMA)) {
    parsed[toCamelCase(key)] = given.has(key) ? parseField(key, field, given.get(key), spell) : field.byDefault;
  }
  fillTiming(parsed, given);
  if (parsed.discoveryAddr === undefined) {
    throw new ConfigError(`configuration key "${spell('discovery_addr')}" is required, for example "10.0.0.1:31990"`);
  }
  return parsed;
}

/** Writes a key in messages as the mapping writes its keys: in snake_case, unless all of them are in camelCase. */
type Spelling = (key: string) => string;

/** How messages about `mapping` write keys. */
export function spellingOf(mapping: Readonly<Record<string, unknown>>): Spelling {
  const names = Object.keys(mapping);
  const isCamelCase = names.some((name) => /[A-Z]/.test(name)) && !names.some((name) => name.includes('_'));
  return isCamelCase ? toCamelCase : (key) => key;
}

function parseField(key: string, field: Field, value: unknown, spell: Spelling): unknown {
  const parsed = field.parse(value);
  if (parsed !== undefined) return parsed;
  const shown = SECRET_KEYS.has(key) ? 'a value that is not shown' : describeValue(value);
  const fault = field.fault?.(value) ?? `got ${shown}, allowed is ${field.allowed}`;
  throw new ConfigError(`configuration key "${spell(key)}": ${fault}`);
}

/** When one of the two intervals is not given, it follows the other one. */
function fillTiming(parsed: Record<string, unknown>, given: ReadonlyMap<string, unknown>): void {
  const heartbeat = parsed.heartbeatInterval as number;
  const ttl = parsed.memberTtl as number;
  if (!given.has('member_ttl')) parsed.memberTtl = Math.max(ttl, 3 * heartbeat);
  else if (!given.has('heartbeat_interval')) parsed.heartbeatInterval = Math.min(heartbeat, ttl / 3);
}

function checkRelations(config: MeshCacheConfig, spell: Spelling): void {
  checkSecurity(config);
  checkRole(config, spell);
  const doorFault = openRedisDoorFault(config, spell) ?? doorTlsFault(config, spell);
  const fault = doorFault ?? etcdFault(config, spell) ?? objectStoreFault(config, spell);
  if (fault !== undefined) throw new ConfigError(fault);
  if (config.memberTtl < 2 * config.heartbeatInterval) {
    throw new ConfigError(
      `configuration key "${spell('member_ttl')}": got ${config.memberTtl} s, allowed is at least twice ${spell('heartbeat_interval')} (${config.heartbeatInterval} s)`,
    );
  }
  if (config.diskEnabled && config.diskPath === undefined) {
    throw new ConfigError(
      `configuration key "${spell('disk_path')}" is required when ${spell('disk_enabled')} is true`,
    );
  }
}
