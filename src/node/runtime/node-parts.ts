import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import type { MeshCacheConfig } from '../../config.js';
import { openNodeFault } from '../../net/loopback.js';
import type { Users } from '../../net/users/users.js';
import { RpcClient } from '../../rpc/client.js';
import { RpcServer } from '../../rpc/server.js';
import type { Transport } from '../../transport/contract/transport.js';
import { type ChosenTransport, chooseTransport } from '../../transport/create-transport.js';
import type { NamespaceFingerprint, NodeInfo } from '../../types.js';
import { Handovers } from '../leaving/handovers.js';
import { PlacementCalls } from '../placing/placement-calls.js';
import { DataEndpoints } from '../remote-pages/data-endpoints.js';
import { PageNotices } from '../remote-pages/page-notices.js';
import { Promotions } from '../remote-pages/promotions.js';
import { UnreachableNodes } from '../remote-pages/unreachable-nodes.js';
import { MemberEvents } from '../reporting/member-events.js';
import { logMemberChange } from '../upkeep/member-log.js';
import { NodeDirectory } from '../upkeep/node-directory.js';
import { ShardFilling } from '../upkeep/shard-filling.js';
import { Members } from './members.js';
import { Membership, type MembershipListener } from './membership.js';
import { describeNode, masterSeatOf, type StorageRole } from './node-description.js';
import type { NodeIdentity } from './node-identity.js';
import { masterPortOf, openDiscovery } from './open-discovery.js';
import { OperatorAccess } from './operator-access.js';

export interface NodePartsOptions {
  readonly config: MeshCacheConfig;
  readonly identity: NodeIdentity;
  /** Where the node's metrics server listens; goes into the node's record. */
  readonly metricsEndpoint: Endpoint | undefined;
  /** Fingerprint of the node's own namespace; undefined: none. */
  readonly fingerprint: NamespaceFingerprint | undefined;
  /** Whether the node's disk does not answer. */
  readonly isDiskHung: () => boolean;
  /** The users, of whom some may give orders to the node. */
  readonly users: Users;
  /** The source of versions for pages that are set on this node. */
  readonly versions: HybridClock;
  readonly env: Environment;
  /** Receives the function that stops each part, as soon as the part runs. They are to be called in reverse order. */
  readonly stops: (() => Promise<void>)[];
}

/** The parts of a node that its store is built on. */
export interface NodeParts {
  readonly chosen: ChosenTransport;
  readonly dataEndpoints: DataEndpoints;
  readonly unreachable: UnreachableNodes;
  readonly rpcServer: RpcServer;
  readonly rpcClient: RpcClient;
  readonly members: Members;
  readonly memberEvents: MemberEvents;
  readonly directory: NodeDirectory;
  readonly notices: PageNotices;
  readonly promotions: Promotions;
  readonly handovers: Handovers;
  readonly placementCalls: PlacementCalls;
  readonly membership: Membership;
  /** The record of this node as it is now. */
  readonly describe: () => NodeInfo;
  readonly filling: ShardFilling;
}

/** The transport and the control plane of a node. */
interface NodeNetwork {
  /** The address on which this node listens, and at which the others reach it. */
  readonly host: string;
  readonly chosen: ChosenTransport;
  readonly rpcServer: RpcServer;
  readonly rpcClient: RpcClient;
  /** Where the control plane listens. */
  readonly control: Endpoint;
}

/** Makes and starts the parts of a node, each from parts made before it. The node is not a member of the cluster before `DiscoveryClient.start`. */
export async function openNodeParts(options: NodePartsOptions): Promise<NodeParts> {
  const { config, identity, metricsEndpoint: metrics, isDiskHung, versions, env, stops } = options;
  const { nodeId } = identity;
  const { rendezvous, listed, host: foundHost } = await openDiscovery(config, { nodeId, env, stops });
  const { host, chosen, rpcServer, rpcClient, control } = await openNetwork(options, foundHost);
  const { transport } = chosen;
  const masterSeat = await masterSeatOf(host, { listed, port: masterPortOf(config, listed) }, env);
  const storage = storageRoleOf(config);
  const stated = { masterSeat, storage, zone: config.zone, fingerprint: options.fingerprint };
  const describe = () => describeNode({ identity, transport, control, metrics, ...stated, isDiskHung: isDiskHung() });
  const self = describe();
  const members = new Members(self);
  const events = new MemberEvents(env.clock, env.metrics);
  const endpointOf = (id: string) => members.endpointOf(id);
  const directory = new NodeDirectory({
    self,
    vnodes: config.vnodes,
    replicas: config.directoryReplicas,
    settleMs: 1000 * (config.memberTtl + config.heartbeatInterval),
    endpointOf,
    isLive: (id, incarnation) => members.isLive(id, incarnation),
    rpc: rpcClient,
    versions,
    env,
  });
  stops.push(() => directory.stop());
  directory.attach(rpcServer);
  const notices = new PageNotices({ rpc: rpcClient, endpointOf, env });
  stops.push(async () => notices.close());
  const promotions = new Promotions({ rpc: rpcClient, endpointOf, nodeId });
  const handovers = new Handovers({ rpc: rpcClient, endpointOf });
  const placementCalls = new PlacementCalls({ rpc: rpcClient, endpointOf });
  const listener = membershipListener({ members, events, directory, options, describe });
  const membership = new Membership({ config, self, host, listed, rendezvous, listener, clock: versions, env });
  await membership.master.start();
  stops.push(() => membership.master.stop());
  stops.push(() => membership.discovery.stop());
  const filling = new ShardFilling({
    nodeId,
    rpc: rpcClient,
    env,
    members: () => members.byId,
    isJoined: () => membership.discovery.isReachable,
  });
  stops.push(async () => filling.stop());
  const dataEndpoints = new DataEndpoints(transport, env.log);
  const asking = { notices, promotions, handovers, placementCalls };
  const unreachable = new UnreachableNodes(transport, dataEndpoints, members);
  const asked = { chosen, dataEndpoints, unreachable, rpcServer, rpcClient };
  return { ...asked, members, memberEvents: events, directory, ...asking, membership, describe, filling };
}

function storageRoleOf({ role, globalSegmentSize }: MeshCacheConfig): StorageRole {
  return { role, poolBytes: role === 'storage' ? globalSegmentSize : 0 };
}

async function openNetwork({ config, users, env, stops }: NodePartsOptions, host: string): Promise<NodeNetwork> {
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

/** Carries news of the membership to the parts of the node. */
function membershipListener({
  members,
  events,
  directory,
  options: { identity, config, env },
  describe,
}: {
  readonly members: Members;
  readonly events: MemberEvents;
  readonly directory: NodeDirectory;
  readonly options: NodePartsOptions;
  readonly describe: () => NodeInfo;
}): MembershipListener {
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
 * Refuses an address at which everyone would be a member, unless that is allowed; then it is warned of. The RDMA data plane is never on loopback:
 * no RDMA device is there. Throws `ConfigError`.
 */
function checkReach(
  { allowUnauthenticated }: MeshCacheConfig,
  host: string,
  { transport, env }: { readonly transport: Transport; readonly env: Environment },
): void {
  const rdmaHost = transport.localEndpoints().rdma?.host;
  // TLS protects what goes over TCP, not the RDMA data plane.
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
