import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint, isEveryAddress } from '../../base/environment/network.js';
import { AuthError, ConfigError } from '../../base/errors.js';
import { DISCOVERY_START_TIMEOUT_MS } from '../../base/limits.js';
import type { MeshCacheConfig } from '../../config.js';
import { isHostOf } from '../../discovery/local-address.js';
import { openSource } from '../../discovery/sources/open-source.js';
import { Rendezvous } from '../../discovery/sources/rendezvous.js';
import { openNodeFault } from '../../net/loopback.js';
import { PasswordCheck } from '../../net/password-check.js';
import type { Right } from '../../net/users/user.js';
import type { Identity, Users } from '../../net/users/users.js';
import { RpcClient } from '../../rpc/client.js';
import { type RpcCall, RpcServer } from '../../rpc/server.js';
import type { Transport } from '../../transport/contract/transport.js';
import { type ChosenTransport, chooseTransport } from '../../transport/create-transport.js';
import { type NamespaceFingerprint, NodeInfo } from '../../types.js';
import { HoldCalls } from '../holding/hold-calls.js';
import { DataEndpoints } from '../remote-pages/data-endpoints.js';
import { PageNotices } from '../remote-pages/page-notices.js';
import { UnreachableNodes } from '../remote-pages/unreachable-nodes.js';
import { MemberEvents } from '../reporting/member-events.js';
import { Introduction } from '../upkeep/introduction.js';
import { logMemberChange, type MemberChange } from '../upkeep/member-log.js';
import { NodeDirectory } from '../upkeep/node-directory.js';
import { ShardFilling } from '../upkeep/shard-filling.js';
import { Membership, type MembershipListener } from './membership.js';
import { METHOD_CALLERS } from './method-callers.js';
import type { NodeIdentity } from './node-identity.js';
import { ownAddressTowards, reachableName, reachFault } from './own-address.js';

/** Longest time that a node which does not know its own address waits for the first answer of its source. */
const OWN_ADDRESS_TIMEOUT_MS = 15_000;

/** Where a node finds the others, and at which address they find it. */
interface OpenDiscovery {
  /** The listed addresses now; none if a source has not answered yet, or knows no node. */
  readonly listed: readonly Endpoint[];
  /** The source of further ones; undefined: the configuration lists the addresses. */
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

/** The address of the discovery master on a node's host, for when that host has a seat. */
type MasterSeat = Pick<NodeInfo, 'isListed' | 'masterAddr'>;

/** Whether the node takes pages of others, and how many bytes it has for them. */
type StorageRole = Pick<NodeInfo, 'role' | 'poolBytes'>;

interface NodeDescriptionParts {
  readonly identity: NodeIdentity;
  readonly transport: Transport;
  /** Where the control plane listens. */
  readonly control: Endpoint;
  /** Where the metrics server listens; undefined without one. */
  readonly metrics: Endpoint | undefined;
  readonly masterSeat: MasterSeat;
  /** Rack or zone of this host; undefined: none. */
  readonly zone: string | undefined;
  /** Fingerprint of the node's own namespace; undefined: none. */
  readonly fingerprint: NamespaceFingerprint | undefined;
  readonly storage: StorageRole;
  /** Whether the node's disk does not answer. */
  readonly isDiskHung: boolean;
}

/** Why a call is refused: the reason for the audit log, and what to tell the caller. */
const REFUSALS = {
  wrong: ['wrong token', 'the token is of no user of this node'],
  paused: ['too many wrong tokens', 'too many wrong tokens from this address; try again in a few seconds'],
  nobody: ['no token', 'no token was shown'],
} as const;

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
  readonly holders: HoldCalls;
  readonly membership: Membership;
  /** The record of this node as it is now. */
  readonly describe: () => NodeInfo;
  readonly introduction: Introduction;
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

/**
 * Makes and starts the parts of a node, each from parts made before it. The node is not a member of the cluster before
 * `DiscoveryClient.start`.
 */
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
  const holders = new HoldCalls({ rpc: rpcClient, endpointOf, nodeId });
  const listener = membershipListener({ members, events, directory, options, describe });
  const membership = new Membership({ config, self, host, listed, rendezvous, listener, clock: versions, env });
  await membership.master.start();
  stops.push(() => membership.master.stop());
  stops.push(() => membership.discovery.stop());
  const asker = { nodeId, rpc: rpcClient, env, members: () => members.byId };
  const introduction = new Introduction(asker);
  introduction.attach(rpcServer);
  directory.changed.listen(() => introduction.membersChanged());
  stops.push(async () => introduction.stop());
  const filling = new ShardFilling({
    ...asker,
    isJoined: () => membership.discovery.isReachable,
  });
  stops.push(async () => filling.stop());
  const dataEndpoints = new DataEndpoints(transport, env.log);
  const asking = { notices, holders };
  const unreachable = new UnreachableNodes(transport, dataEndpoints, members);
  const asked = { chosen, dataEndpoints, unreachable, rpcServer, rpcClient };
  return { ...asked, members, memberEvents: events, directory, ...asking, membership, describe, introduction, filling };
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
 * Refuses an address at which everyone would be a member, unless that is allowed; then it is warned of. The RDMA data
 * plane is never on loopback: no RDMA device is there. Throws `ConfigError`.
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

/** The live nodes, this one included, as the discovery masters have last listed them. */
class Members {
  #byId: ReadonlyMap<string, NodeInfo>;

  constructor(self: NodeInfo) {
    this.#byId = new Map([[self.nodeId, self]]);
  }

  /** The members by id. Each change of members replaces the map. */
  get byId(): ReadonlyMap<string, NodeInfo> {
    return this.#byId;
  }

  /** Where a node's control plane listens; undefined when the node is not a member. */
  endpointOf(nodeId: string): Endpoint | undefined {
    const node = this.#byId.get(nodeId);
    return node === undefined ? undefined : { host: node.controlHost, port: node.controlPort };
  }

  /** Whether this start of a node is a member. */
  isLive(nodeId: string, incarnation: number): boolean {
    return this.#byId.get(nodeId)?.incarnation === incarnation;
  }

  /** Replaces the members; `changed` has the ids whose records differ. */
  change(members: ReadonlyMap<string, NodeInfo>, changed: readonly string[]): MemberChange {
    const before = this.#byId;
    this.#byId = members;
    return { before, after: members, changed };
  }
}

/** Decides which calls of operators a node carries out: those of users who have the right. */
class OperatorAccess {
  readonly #users: Users;
  readonly #tokens: PasswordCheck<Identity>;
  readonly #env: Pick<Environment, 'audit'>;

  constructor(users: Users, env: Environment) {
    this.#users = users;
    this.#tokens = new PasswordCheck((tokenDigest) => users.identify({ tokenDigest }), 'rpc', env);
    this.#env = env;
  }

  /**
   * Name of the user who makes a call; undefined: any member may make it. Throws {@link AuthError} if the caller may
   * not.
   */
  check(call: RpcCall): string | undefined {
    const caller = METHOD_CALLERS[call.method];
    if (caller === 'member') return undefined;
    if (caller === undefined) throw new AuthError(`${call.method} has no entry in the table of who may call what`);
    return this.#userWith(caller, call);
  }

  #userWith(right: Right, call: RpcCall): string {
    const { token } = call.params as { readonly token?: unknown };
    const shown = token === undefined || token === null ? undefined : String(token);
    const found = shown === undefined ? this.#users.identify({}) : this.#tokens.judge(shown, call.address);
    if (!(found instanceof Object)) {
      const [reason, text] = REFUSALS[found ?? 'nobody'];
      throw this.#refusal(right, call, { reason, text });
    }
    if (found.user?.has(right) === true) return found.name;
    const text = `user ${found.name} has no right "${right}"`;
    throw this.#refusal(right, call, { reason: 'no right', text, user: found.name });
  }

  #refusal(
    right: Right,
    { method, address }: RpcCall,
    { reason, text, user }: { readonly reason: string; readonly text: string; readonly user?: string },
  ): AuthError {
    this.#env.audit?.record({ action: right, door: 'control', outcome: 'refused', actor: { user, address }, reason });
    const advice = `show the token of a user with the right "${right}" (users_file of the node; --token-file of the command)`;
    return new AuthError(`${method}: ${text}; ${advice}`);
  }
}

/** The record by which other nodes know this one. */
function describeNode(parts: NodeDescriptionParts): NodeInfo {
  const { identity, transport, control, metrics, masterSeat, storage, zone = '', fingerprint, isDiskHung } = parts;
  const { rdma, tcp } = transport.localEndpoints();
  return new NodeInfo({
    nodeId: identity.nodeId,
    controlHost: control.host,
    controlPort: control.port,
    rdmaHost: rdma?.host,
    rdmaPort: rdma?.port,
    tcpHost: tcp?.host,
    tcpPort: tcp?.port,
    protocols: rdma === undefined ? ['tcp'] : ['rdma', 'tcp'],
    ...metricsAddress(metrics, control.host),
    incarnation: identity.incarnation,
    ...masterSeat,
    zone,
    fingerprint,
    ...storage,
    isDiskHung,
  });
}

/** A host's master has the listed address of that host; on a host that is not listed, it has `port`. */
async function masterSeatOf(
  host: string,
  { listed, port }: { readonly listed: readonly Endpoint[]; readonly port: number },
  env: Environment,
): Promise<MasterSeat> {
  const isHost = await Promise.all(listed.map((endpoint) => isHostOf(endpoint.host, host, env.host)));
  const own = listed[isHost.indexOf(true)];
  return { isListed: own !== undefined, masterAddr: formatEndpoint(own ?? { host, port }) };
}

/** The address at which others reach the metrics server: the node's own one, if the server listens on every address. */
function metricsAddress(
  metrics: Endpoint | undefined,
  ownHost: string,
): { metricsHost?: string; metricsPort?: number } {
  if (metrics === undefined) return {};
  const { host, port } = metrics;
  return { metricsHost: isEveryAddress(host) ? ownHost : host, metricsPort: port };
}

/**
 * Opens the source of discovery addresses, if there is one. Without an answer a node starts all the same and goes on
 * asking, provided that it knows its own address: from `local_hostname`, or from the route to the source. Throws
 * `ConfigError`, also if no other host could reach it there.
 */
async function openDiscovery(config: MeshCacheConfig, options: OpenDiscoveryOptions): Promise<OpenDiscovery> {
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

/** The configured name of this host, as others reach it; undefined: none is configured. */
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
 * The port of a master on a host that is not listed: that of the first listed address, or what the configuration says
 * for a source.
 */
function masterPortOf(config: MeshCacheConfig, listed: readonly Endpoint[]): number {
  const address = config.discoveryAddress();
  if (address.kind === 'dns' && address.port !== undefined) return address.port;
  return address.kind === 'etcd' ? config.discoveryPort : (listed[0]?.port ?? config.discoveryPort);
}
