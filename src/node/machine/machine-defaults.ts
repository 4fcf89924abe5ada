/**
 * Classes that programs can create on their own. Without an environment they use the real machine; everything below
 * them takes the environment that it is given.
 */
import type { Environment } from '../../base/environment/environment.js';
import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import {
  DirectoryClient as DirectoryClientOf,
  type DirectoryClientOptions as DirectoryClientOptionsOf,
  type ResolveControl,
} from '../../directory/client.js';
import type { OwnerRing } from '../../directory/owners/owners.js';
import {
  DiscoveryClient as DiscoveryClientOf,
  type DiscoveryClientOptions as DiscoveryClientOptionsOf,
} from '../../discovery/client.js';
import {
  DiscoveryServer as DiscoveryServerOf,
  type DiscoveryServerOptions as DiscoveryServerOptionsOf,
} from '../../discovery/server.js';
import { RpcClient as RpcClientOf, type RpcClientOptions as RpcClientOptionsOf } from '../../rpc/client.js';
import { RpcServer as RpcServerOf, type RpcServerOptions as RpcServerOptionsOf } from '../../rpc/server.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { Transport } from '../../transport/contract/transport.js';
import { createTransport as createTransportOf, type TransportConfig } from '../../transport/create-transport.js';
import type { NodeInfo } from '../../types.js';

/** Source of time, randomness, connections and everything else outside the program. */
export interface EnvironmentOption {
  /** Default: the real machine. */
  readonly env?: Environment;
}

function withEnvironment<Options extends EnvironmentOption>(options: Options): Options & { readonly env: Environment } {
  if (typeof options !== 'object' || options === null) {
    throw new ArgumentError(`the options must be an object, got ${shown(options)}`);
  }
  return { ...options, env: options.env ?? systemEnvironment() };
}

/** The address and the limits of an `RpcServer`. */
export interface RpcServerOptions extends Omit<RpcServerOptionsOf, 'env'>, EnvironmentOption {}

/**
 * Answers calls of the control plane. A peer that breaks the protocol loses its connection, and nothing else happens;
 * `meshcache_rpc_errors_total` counts such cases by kind. With secrets in its environment, the server answers only
 * peers that have proved to know one.
 */
export class RpcServer extends RpcServerOf {
  /** Throws `ArgumentError` for an invalid host or port. */
  constructor(options: RpcServerOptions) {
    super(withEnvironment(options));
  }
}

/** The options of an {@link RpcClient}. */
export interface RpcClientOptions extends Omit<RpcClientOptionsOf, 'env'>, EnvironmentOption {}

/**
 * Calls methods of `RpcServer`s over one connection per endpoint, opened on demand and shared by all calls.
 *
 * An unreachable endpoint costs one deadline: afterwards calls to it reject at once, and after RPC_RETRY_AFTER_MS one
 * of them tries again. Idle connections and timers do not keep the process alive; a call in progress does, at most
 * until its deadline.
 */
export class RpcClient extends RpcClientOf {
  constructor(options: RpcClientOptions = {}) {
    super(withEnvironment(options));
  }
}

/** The options of a {@link DirectoryClient}, apart from its ring. */
export interface DirectoryClientOptions extends Omit<DirectoryClientOptionsOf, 'env'>, EnvironmentOption {}

/**
 * Queries and updates the shards of each key's owners: one request per owner and batch. A shard that does not answer
 * counts as a miss or false, never as an exception; only invalid arguments throw (`ArgumentError`), before anything is
 * sent.
 *
 * The client owns the node's statement counter, which orders every `put`, `announce` and `delete`, so that a late
 * delete does not remove what was put after it.
 */
export class DirectoryClient extends DirectoryClientOf {
  constructor(ring: OwnerRing, resolveControl: ResolveControl, replicas: number, options: DirectoryClientOptions = {}) {
    super(ring, resolveControl, replicas, withEnvironment(options));
  }
}

/** Timing options of a {@link DiscoveryServer}; its members must use the same ones. */
export interface DiscoveryServerOptions extends Omit<DiscoveryServerOptionsOf, 'env'>, EnvironmentOption {}

/**
 * A discovery master: it lists nodes while their heartbeats arrive, and informs all of them at once of changes. It
 * stores nothing on disk; after a restart its members register again on their own.
 */
export class DiscoveryServer extends DiscoveryServerOf {
  /** Throws `ArgumentError` for an invalid host, port or time. */
  constructor(host: string, port: number, options: DiscoveryServerOptions = {}) {
    super(host, port, withEnvironment(options));
  }
}

/** The callbacks and timing of a {@link DiscoveryClient}. */
export interface DiscoveryClientOptions extends Omit<DiscoveryClientOptionsOf, 'env'>, EnvironmentOption {}

/**
 * Registers a node with every master and keeps the list of all members, which always includes this node. While no
 * master answers, the list stays unchanged.
 */
export class DiscoveryClient extends DiscoveryClientOf {
  /** `addr`: one or more comma-separated `host:port`. Throws `ConfigError`, and `ArgumentError` for an invalid time. */
  constructor(addr: string, nodeInfo: NodeInfo, options: DiscoveryClientOptions = {}) {
    super(addr, nodeInfo, withEnvironment(options));
  }
}

/**
 * Creates the requested transport if possible, else TCP; reports which one and why, once, in the log and in the gauge
 * `meshcache_transport_info`. Other metrics follow its statistics. Throws `ConfigError` if it cannot listen, and if the
 * configuration names a device, port or GID that a machine with RDMA does not have.
 */
export function createTransport(config: TransportConfig, env: Environment = systemEnvironment()): Promise<Transport> {
  if (typeof config !== 'object' || config === null) {
    throw new ArgumentError(`createTransport: needs a MeshCacheConfig, got ${shown(config)}`);
  }
  return createTransportOf(config, env);
}
