import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import type { MeshCacheConfig } from '../../config.js';
import type { Distances } from '../../net/distance.js';
import { openNodeFault } from '../../net/loopback.js';
import type { Users } from '../../net/users.js';
import { RpcClient } from '../../rpc/client.js';
import { RpcServer } from '../../rpc/server.js';
import type { Transport } from '../../transport/contract/transport.js';
import { chooseTransport } from '../../transport/create-transport.js';
import type { NamespaceFingerprint, NodeInfo } from '../../types.js';
import { HoldCalls } from '../holding/hold-calls.js';
import { ClusterMap } from '../map/cluster-map.js';
import { PageNotices } from '../remote-pages/page-notices.js';
import { MemberEvents } from '../reporting/member-events.js';
import { logMemberChange } from '../upkeep/member-log.js';
import { NodeDirectory } from '../upkeep/node-directory.js';
import { ShardFilling } from '../upkeep/shard-filling.js';
import { DataEndpoints, Members, UnreachableNodes } from './members.js';
import { Membership, type MembershipListener } from './membership.js';
import { masterPortOf, openDiscovery } from './opened-discovery.js';
import { OperatorAccess } from './operator-access.js';
import { describeNode, masterSeatOf, type NodeIdentity, storageRoleOf } from './own-record.js';

export interface NodeNetworkOptions {
  readonly config: MeshCacheConfig;
  readonly identity: NodeIdentity;
  /** Endpoint of the node's metrics server, for the node's record. */
  readonly metricsEndpoint: Endpoint | undefined;
  /** Fingerprint of the node's own namespace; undefined: none. */
  readonly fingerprint: NamespaceFingerprint | undefined;
  /** Whether the node's disk does not answer. */
  readonly isDiskHung: () => boolean;
  /** The users; some may send operator calls to the node. */
  readonly users: Users;
  /** Source of versions for pages set on this node. */
  readonly versions: HybridClock;
  readonly env: Environment;
  /** Receives a function that stops each part as soon as the part runs; to be called in reverse order. */
  readonly stops: (() => Promise<void>)[];
}

/** A node without its store: its transport, control plane, directory shard and membership. */
export type NodeNetwork = Awaited<ReturnType<typeof openNodeNetwork>>;

/**
 * Creates and starts the parts of a node, each from parts made before it. The node does not become a member of the
 * cluster before `DiscoveryClient.start`.
 */
export async function openNodeNetwork(options: NodeNetworkOptions) {
  const { config, identity, metricsEndpoint: metrics, isDiskHung, versions, env, stops } = options;
  const { nodeId } = identity;
  const { rendezvous, listed, host: foundHost } = await openDiscovery(config, { nodeId, env, stops });
  const { host, chosen, rpcServer, rpcClient, control } = await openPlanes(options, foundHost);
  const { transport } = chosen;
  const masterSeat = await masterSeatOf(host, { listed, port: masterPortOf(config, listed) }, env);
  const storage = storageRoleOf(config);
  const stated = { masterSeat, storage, zone: config.zone, fingerprint: options.fingerprint };
  const describe = () => describeNode({ identity, transport, control, metrics, ...stated, isDiskHung: isDiskHung() });
  const self = describe();
  const members = new Members(self);
  const events = new MemberEvents(env.clock, env.metrics);
  const endpointOf = (id: string) => members.endpointOf(id);
  const map = mapOf(options, rpcClient, () => directory.distances());
  stops.push(async () => map?.close());
  const directory = new NodeDirectory({
    self,
    vnodes: config.vnodes,
    replicas: config.directoryReplicas,
    settleMs: 1000 * (config.memberTtl + config.heartbeatInterval),
    endpointOf,
    isLive: (id, incarnation) => members.isLive(id, incarnation),
    rpc: rpcClient,
    map,
    versions,
    env,
  });
  directory.changed.listen(({ after }) => map?.membersChanged(after));
  stops.push(() => directory.stop());
  directory.attach(rpcServer);
  const notices = new PageNotices({ rpc: rpcClient, endpointOf, env });
  stops.push(async () => notices.close());
  const holders = new HoldCalls({ rpc: rpcClient, endpointOf, nodeId });
  const listener = membershipListener(options, { members, events, directory, describe });
  const membership = new Membership({ config, self, host, listed, rendezvous, listener, clock: versions, env });
  await membership.master.start();
  stops.push(() => membership.master.stop());
  stops.push(() => membership.discovery.stop());
  const asker = { nodeId, rpc: rpcClient, env, members: () => members.byId };
  const filling = new ShardFilling({
    ...asker,
    isJoined: () => membership.discovery.isReachable,
  });
  stops.push(async () => filling.stop());
  const dataEndpoints = new DataEndpoints(transport, env.log);
  const asking = { notices, holders };
  const unreachable = new UnreachableNodes(transport, dataEndpoints, members);
  const asked = { chosen, dataEndpoints, unreachable, rpcServer, rpcClient };
  return { ...asked, members, memberEvents: events, directory, map, ...asking, membership, describe, filling };
}

/** The map of the cluster's pages; undefined: none is kept. */
function mapOf(
  { config, identity, env }: NodeNetworkOptions,
  rpc: RpcClient,
  distances: () => Distances,
): ClusterMap | undefined {
  const { clusterMap: maxBytes } = config;
  return maxBytes === 0 ? undefined : new ClusterMap({ nodeId: identity.nodeId, rpc, distances, env, maxBytes });
}

/** Opens the transport and the control plane. `host`: the address on which this node listens and others reach it. */
async function openPlanes({ config, users, env, stops }: NodeNetworkOptions, host: string) {
  const chosen = await chooseTransport({ ...config, localHostname: host }, env);
  stops.push(() => chosen.transport.close());
  checkReach(config, host, { transport: chosen.transport, env });
  const access = new OperatorAccess(users, env);
  const rpcServer = new RpcServer({ host, port: config.controlPort, userOf: (call) => access.check(call), env });
  const control = { host, port: await rpcServer.start().catch(throwWithKey) };
  stops.push(() => rpcServer.stop());
  const rpcClient = new RpcClient({ env });
  stops.push(() => rpcClient.close());
  return { host, chosen, rpcServer, rpcClient, control };
}

/** Forwards membership changes to the parts of the node. */
function membershipListener(
  { identity, config, env }: NodeNetworkOptions,
  {
    members,
    events,
    directory,
    describe,
  }: { members: Members; events: MemberEvents; directory: NodeDirectory; describe: () => NodeInfo },
): MembershipListener {
  return {
    onMembers(all, changed, left) {
      const change = members.change(all, changed);
      const hasLeft = (id: string) => left.includes(id);
      logMemberChange(env.log, change, { hasLeft, memberTtlS: config.memberTtl });
      events.note(change, hasLeft);
      directory.membersChanged(change);
    },
    onForgotten: () => directory.announceAfterAway(),
    onExpired: (begunAgain) => {
      identity.renew();
      directory.restartAs(identity.incarnation, { begunAgain });
      return describe();
    },
    onReplaced: (isReplaced) => directory.setReplaced(isReplaced),
  };
}

/**
 * Refuses an address at which anyone could become a member, or only warns if the configuration allows it. The RDMA data
 * plane is never on loopback, because there is no RDMA device. Throws `ConfigError`.
 */
function checkReach(
  { allowUnauthenticated }: MeshCacheConfig,
  host: string,
  { transport, env }: { readonly transport: Transport; readonly env: Environment },
): void {
  const rdmaHost = transport.localEndpoints().rdma?.host;
  // TLS protects TCP connections, not the RDMA data plane.
  const hasSecret = env.secrets !== undefined;
  const fault =
    openNodeFault(host, hasSecret || env.tls !== undefined) ?? (rdmaHost && openNodeFault(rdmaHost, hasSecret));
  if (fault === undefined) return;
  if (!allowUnauthenticated) throw new ConfigError(`configuration key "allow_unauthenticated": ${fault}`);
  const message = 'no authentication: this node listens beyond loopback; set cluster_secret, or use a trusted network';
  env.log.log('warn', message, { host, rdma_host: rdmaHost });
}

/** Adds the configuration key to the error of a control plane that cannot listen. */
function throwWithKey(error: unknown): never {
  if (!(error instanceof ConfigError)) throw error;
  const advice = 'choose another port, or 0 for any that is free';
  throw new ConfigError(`configuration key "control_port": ${error.message}; ${advice}`, { cause: error });
}
