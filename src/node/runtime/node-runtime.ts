import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint, isEveryAddress } from '../../base/environment/network.js';
import type { RandomSource } from '../../base/environment/random.js';
import { ArgumentError, ClosedError } from '../../base/errors.js';
import type { MeshCacheConfig } from '../../config.js';
import type { DirectoryClient } from '../../directory/client.js';
import type { LocationNode } from '../../directory/location-columns.js';
import { DiscoveryClient } from '../../discovery/client.js';
import { EmbeddedMaster } from '../../discovery/embedded-master.js';
import { isHostOf } from '../../discovery/local-address.js';
import type { ClusterReport, NodeReport } from '../../metrics/node-report.js';
import { securedEnvironment } from '../../net/secured-environment.js';
import { RpcClient } from '../../rpc/client.js';
import { type RpcHandler, RpcServer } from '../../rpc/server.js';
import type { Promoter } from '../../store/promoter.js';
import type { Transport } from '../../transport/contract/transport.js';
import { type ChosenTransport, chooseTransport } from '../../transport/create-transport.js';
import { NodeInfo } from '../../types.js';
import { type CopyRequestHandler, Handovers } from '../leaving/handovers.js';
import { DataEndpoints } from '../remote-pages/data-endpoints.js';
import { type PageNoticeHandler, PageNotices } from '../remote-pages/page-notices.js';
import { Promotions } from '../remote-pages/promotions.js';
import { ClusterReporter, STATUS_METHOD } from '../reporting/cluster-reporter.js';
import { discoveryTroubles } from '../reporting/discovery-troubles.js';
import { packageVersion } from '../reporting/package-version.js';
import type { Publications } from '../upkeep/announcer.js';
import { logMemberChange } from '../upkeep/member-log.js';
import { NodeDirectory } from '../upkeep/node-directory.js';
import { ShardFilling } from '../upkeep/shard-filling.js';
import { ownAddressTowards } from './own-address.js';

/** What a {@link NodeRuntime} takes beside its configuration. */
export interface NodeRuntimeOptions {
  /** Instead of the configured or a generated one. */
  readonly nodeId?: string;
  /** Where this node's metrics server listens, for others to know. */
  readonly metricsEndpoint?: Endpoint | undefined;
  readonly env: Environment;
}

/** What there is between `start` and `stop`. */
interface RunningParts {
  readonly chosen: ChosenTransport;
  readonly transport: Transport;
  readonly dataEndpoints: DataEndpoints;
  readonly rpcServer: RpcServer;
  readonly rpcClient: RpcClient;
  readonly ownDirectory: NodeDirectory;
  readonly notices: PageNotices;
  readonly promotions: Promotions;
  readonly handovers: Handovers;
  readonly master: EmbeddedMaster;
  readonly discovery: DiscoveryClient;
  readonly clusterReporter: ClusterReporter;
  readonly filling: ShardFilling;
}

/** One node without its pool: transport, control plane, directory shard and membership, wired together. */
export class NodeRuntime {
  readonly config: MeshCacheConfig;
  readonly nodeId: string;
  readonly #env: Environment;
  readonly #metricsEndpoint: Endpoint | undefined;
  #incarnation: number;
  readonly #version = packageVersion();
  #startedMs: number;
  /** What stops the parts, in the order of their start. */
  readonly #stops: (() => Promise<void>)[] = [];
  #parts: RunningParts | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #reportStore: () => Promise<Record<string, unknown>> = async () => ({});
  #members: ReadonlyMap<string, NodeInfo> = new Map();

  constructor(config: MeshCacheConfig, options: NodeRuntimeOptions) {
    if (typeof config?.discoveryEndpoints !== 'function') {
      throw new ArgumentError(
        'a node runtime needs a MeshCacheConfig: `new NodeRuntime(new MeshCacheConfig({ ... }))`',
      );
    }
    this.config = config;
    this.#env = securedEnvironment(config, options.env);
    this.#metricsEndpoint = options.metricsEndpoint;
    this.nodeId = options.nodeId ?? config.nodeId ?? NodeRuntime.generateNodeId(this.#env.random);
    this.#incarnation = Math.floor(this.#env.clock.wallMs());
    this.#startedMs = this.#env.clock.nowMs();
  }

  /**
   * Wall-clock milliseconds of this start. A node that the others have dropped, because they did not hear of it, joins again
   * as newly started: what was known of it before is void.
   */
  get incarnation(): number {
    return this.#incarnation;
  }

  /** An id that no other node has: `node-` and 64 random bits. */
  static generateNodeId(random: RandomSource): string {
    return `node-${Buffer.from(random.bytes(8)).toString('hex')}`;
  }

  /** `host:port` of this node's data plane. */
  get localRdmaEndpoint(): string {
    return this.#running().transport.localEndpoint();
  }

  /** Whether this node runs a discovery master now; false before `start` and after `stop`. */
  get isMeta(): boolean {
    return this.#parts?.master.isHead ?? false;
  }

  get directory(): DirectoryClient {
    return this.#running().ownDirectory.client;
  }

  get transport(): Transport {
    return this.#running().transport;
  }

  /** @internal What is set gets its versions from here. */
  get versions(): HybridClock {
    return this.#running().ownDirectory.versions;
  }

  /** @internal Makes other nodes drop pages, and knows whether they have told this one which of its own are outdated. */
  get drops(): Pick<NodeDirectory, 'deleteEverywhere' | 'dropFrom' | 'isAnnounced'> {
    return this.#running().ownDirectory;
  }

  /** Live nodes by id, this one included. */
  members(): ReadonlyMap<string, NodeInfo> {
    return this.#members;
  }

  /**
   * Joins the cluster. Resolves also when no master answers yet (see `DiscoveryClient.start`).
   * Throws `ConfigError` when a port is taken, an address is not this host's, or the cluster has other settings.
   */
  async start(): Promise<void> {
    if (this.#stopping !== undefined) throw new ClosedError('the node');
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /** Leaves the cluster. Idempotent; ends within seconds. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** @internal From now on, what `publications` has is announced to directory owners as they change; others tell `notified` what became of it. */
  announceFrom(publications: Publications, notified: PageNoticeHandler): void {
    const { ownDirectory, notices, rpcServer } = this.#running();
    ownDirectory.announceFrom(publications);
    // What a disk has kept from an earlier start is news to everybody.
    if (!publications.isEmpty) ownDirectory.announceAll();
    notices.handle(rpcServer, notified);
  }

  /** @internal From now on other nodes may have pages brought from this node's disk into its pool. */
  promoteFrom(promoter: Pick<Promoter, 'promote' | 'release'>): void {
    const { promotions, rpcServer } = this.#running();
    promotions.handle(rpcServer, promoter);
  }

  /** @internal For asking other nodes for what is on their disks. */
  get promotions(): Promotions {
    return this.#running().promotions;
  }

  /** @internal From now on other nodes may have this one copy pages of theirs. */
  copyWith(handler: CopyRequestHandler): void {
    const { handovers, rpcServer } = this.#running();
    handovers.handle(rpcServer, handler);
  }

  /** @internal For having other nodes copy pages of this one. */
  get handovers(): Handovers {
    return this.#running().handovers;
  }

  /** @internal From now on calls of `method` are answered by `handler`. */
  handle(method: string, handler: RpcHandler): void {
    this.#running().rpcServer.handle(method, handler);
  }

  /** @internal The other nodes drop this one from their members, and nothing is announced any more; it goes on serving until `stop`. */
  async leave(): Promise<void> {
    const { ownDirectory, discovery } = this.#running();
    ownDirectory.client.setSilent(true);
    await discovery.stop();
  }

  /**
   * Resolves with true when every node that was a member before this one has announced its pages to it, or has left; with false when
   * SHARD_FILLING_TIMEOUT_MS are over, or the node is stopped.
   */
  waitForDirectory(): Promise<boolean> {
    return this.#running().filling.filled();
  }

  /** @internal For telling other nodes what became of reads of their pages. */
  get notices(): PageNotices {
    return this.#running().notices;
  }

  /** @internal What a store adds to the report of its node. */
  reportStatus(report: () => Promise<Record<string, unknown>>): void {
    this.#reportStore = report;
  }

  /** What this node says of itself; a runtime without a store has only its own part of it. */
  async report(): Promise<NodeReport> {
    return { ...this.#ownReport(), ...(await this.#reportStore()) } as unknown as NodeReport;
  }

  /** What all members say of themselves. */
  cluster(): Promise<ClusterReport> {
    return this.#running().clusterReporter.report();
  }

  /** What is wrong with this node's part in the cluster, in words for an operator. */
  troubles(): string[] {
    if (this.#parts === undefined) return ['the node has not joined the cluster'];
    const { discovery, transport, master } = this.#parts;
    const troubles = discoveryTroubles(discovery, master, this.config.discoveryAddr);
    if (!transport.isServing()) troubles.push('other nodes cannot read from this one: its serving thread has failed');
    return troubles;
  }

  /** Where to read a location's owner, by the best protocol that both speak; undefined when it is not alive. */
  dataEndpointOf({ nodeId, incarnation }: Pick<LocationNode, 'nodeId' | 'incarnation'>): string | undefined {
    const owner = this.#members.get(nodeId);
    if (owner === undefined || owner.incarnation !== incarnation) return undefined;
    return this.#running().dataEndpoints.of(owner);
  }

  async #start(): Promise<void> {
    const env = this.#env;
    try {
      const host = await this.#ownHost();
      const parts = await this.#startParts(host);
      this.#parts = parts;
      await parts.discovery.start();
    } catch (error) {
      await this.#stopAll();
      this.#parts = undefined;
      throw error;
    }
    env.log.log('info', 'node started', {
      node_id: this.nodeId,
      data_endpoint: this.localRdmaEndpoint,
      is_meta: this.isMeta,
    });
  }

  /** The address that this node listens on and is reached at. */
  async #ownHost(): Promise<string> {
    const [first] = this.config.discoveryEndpoints();
    return this.config.localHostname ?? (await ownAddressTowards(first as Endpoint, this.#env.host));
  }

  /** The data plane by RDMA is never on loopback, whose devices it does not have. */
  #warnOfReach(host: string, transport: Transport): void {
    const rdmaHost = transport.localEndpoints().rdma?.host;
    // Certificates are for what goes over TCP.
    if (this.#env.secrets !== undefined || (this.#env.tls !== undefined && rdmaHost === undefined)) return;
    if (isLoopback(host) && rdmaHost === undefined) return;
    const message =
      'this node listens beyond loopback without authentication; set cluster_secret, or use a network that you trust';
    this.#env.log.log('warn', message, { host, rdma_host: rdmaHost });
  }

  /** Starts every part but the discovery client, which is made last and told to start when all the others are there. */
  async #startParts(host: string): Promise<RunningParts> {
    const { config } = this;
    const env = this.#env;
    const { controlPort: port } = config;
    const chosen = await chooseTransport({ ...config, localHostname: host }, env);
    const { transport } = chosen;
    this.#stops.push(() => transport.close());
    this.#warnOfReach(host, transport);
    const rpcServer = new RpcServer({ host, port, env });
    const controlPort = await rpcServer.start();
    this.#stops.push(() => rpcServer.stop());
    const rpcClient = new RpcClient({ env });
    this.#stops.push(() => rpcClient.close());

    const masterSeat = await this.#masterSeat(host);
    const describe = () => this.#describe(transport, { host, port: controlPort }, masterSeat);
    const self = describe();
    this.#members = new Map([[self.nodeId, self]]);
    const endpointOf = (nodeId: string) => controlEndpoint(this.#members.get(nodeId));
    const ownDirectory = new NodeDirectory({
      self,
      vnodes: config.vnodes,
      replicas: config.directoryReplicas,
      settleMs: 1000 * (config.memberTtl + config.heartbeatInterval),
      endpointOf,
      isLive: (nodeId, incarnation) => this.#members.get(nodeId)?.incarnation === incarnation,
      rpc: rpcClient,
      env,
    });
    this.#stops.push(() => ownDirectory.stop());
    ownDirectory.attach(rpcServer);
    rpcServer.handle(STATUS_METHOD, async (params) => withLastEvents(await this.report(), params));
    const notices = new PageNotices({ rpc: rpcClient, endpointOf, env });
    this.#stops.push(async () => notices.close());
    const promotions = new Promotions({ rpc: rpcClient, endpointOf, nodeId: this.nodeId });
    const handovers = new Handovers({ rpc: rpcClient, endpointOf });

    const timing = { heartbeatInterval: config.heartbeatInterval, memberTtl: config.memberTtl };
    const isHostChosen = config.localHostname !== undefined;
    const owner = { nodeId: this.nodeId, settings: config };
    const master = new EmbeddedMaster(config.discoveryEndpoints(), {
      ...timing,
      ownHost: host,
      isHostChosen,
      owner,
      env,
    });
    await master.start();
    this.#stops.push(() => master.stop());
    const discovery = new DiscoveryClient(config.discoveryAddr, self, {
      ...timing,
      onMembers: (members, changed) => this.#onMembers(members, changed),
      onUnreachable: () => void master.tryTakeOver(),
      onForgotten: () => ownDirectory.announceAll(),
      onExpired: () => {
        this.#renew();
        ownDirectory.restartAs(this.incarnation);
        return describe();
      },
      onReplaced: (isReplaced) => ownDirectory.setReplaced(isReplaced),
      onMasters: (masters) => this.#onMasters(masters),
      isOwnMaster: (masterId) => master.has(masterId),
      settings: config,
      maxMasters: config.maxMasters,
      env,
    });
    this.#stops.push(() => discovery.stop());
    const clusterReporter = new ClusterReporter({
      nodeId: this.nodeId,
      vnodes: config.vnodes,
      heartbeatInterval: config.heartbeatInterval,
      members: () => this.#members,
      ownReport: () => this.report(),
      rpc: rpcClient,
      clock: env.clock,
    });
    const filling = new ShardFilling({
      nodeId: this.nodeId,
      rpc: rpcClient,
      env,
      members: () => this.#members,
      isJoined: () => discovery.isReachable,
    });
    this.#stops.push(async () => filling.stop());
    return {
      chosen,
      transport,
      dataEndpoints: new DataEndpoints(transport, env.log),
      rpcServer,
      rpcClient,
      ownDirectory,
      notices,
      promotions,
      handovers,
      master,
      discovery,
      clusterReporter,
      filling,
    };
  }

  async #stop(): Promise<void> {
    await this.#starting?.catch(() => {});
    await this.#stopAll();
  }

  async #stopAll(): Promise<void> {
    for (const stop of this.#stops.splice(0).reverse()) await stop();
  }

  #running(): RunningParts {
    if (this.#parts === undefined) throw new ClosedError(`node ${this.nodeId}, which has not been started,`);
    return this.#parts;
  }

  /** Where this host's discovery master is when it has a seat: at the listed address of this host, or at the port of the first one. */
  async #masterSeat(host: string): Promise<Pick<NodeInfo, 'isListed' | 'masterAddr'>> {
    const listed = this.config.discoveryEndpoints();
    const isHost = await Promise.all(listed.map((endpoint) => isHostOf(endpoint.host, host, this.#env.host)));
    const own = listed[isHost.indexOf(true)];
    const { port } = listed[0] as Endpoint;
    return { isListed: own !== undefined, masterAddr: formatEndpoint(own ?? { host, port }) };
  }

  /** Goes on as a later start of this node. */
  #renew(): void {
    const { clock } = this.#env;
    this.#incarnation = Math.max(Math.floor(clock.wallMs()), this.#incarnation + 1);
    this.#startedMs = clock.nowMs();
  }

  #describe(transport: Transport, control: Endpoint, masterSeat: Pick<NodeInfo, 'isListed' | 'masterAddr'>): NodeInfo {
    const { rdma, tcp } = transport.localEndpoints();
    return new NodeInfo({
      nodeId: this.nodeId,
      controlHost: control.host,
      controlPort: control.port,
      rdmaHost: rdma?.host,
      rdmaPort: rdma?.port,
      tcpHost: tcp?.host,
      tcpPort: tcp?.port,
      protocols: rdma === undefined ? ['tcp'] : ['rdma', 'tcp'],
      ...this.#metricsAddress(control.host),
      incarnation: this.incarnation,
      ...masterSeat,
    });
  }

  /** A server that listens everywhere is found where this node is. */
  #metricsAddress(ownHost: string): { metricsHost?: string; metricsPort?: number } {
    if (this.#metricsEndpoint === undefined) return {};
    const { host, port } = this.#metricsEndpoint;
    return { metricsHost: isEveryAddress(host) ? ownHost : host, metricsPort: port };
  }

  #onMasters(masters: readonly Endpoint[]): void {
    if (this.#parts === undefined) return;
    const { master, discovery } = this.#parts;
    const seats = discovery.seats().map(formatEndpoint).join(', ');
    this.#env.log.log('info', 'seats of discovery masters have changed', { seats });
    void master.mastersChanged(masters);
  }

  #onMembers(members: ReadonlyMap<string, NodeInfo>, changed: readonly string[]): void {
    const before = this.#members;
    this.#members = members;
    const change = { before, after: members, changed };
    logMemberChange(this.#env.log, change);
    this.#parts?.ownDirectory.membersChanged(change);
  }

  #ownReport(): Record<string, unknown> {
    const parts = this.#running();
    const self = this.#members.get(this.nodeId);
    return {
      node_id: this.nodeId,
      version: this.#version,
      incarnation: this.incarnation,
      uptime_s: (this.#env.clock.nowMs() - this.#startedMs) / 1000,
      vnodes: this.config.vnodes,
      protocols: self?.protocols ?? [],
      control_endpoint: self === undefined ? '' : formatEndpoint({ host: self.controlHost, port: self.controlPort }),
      data_endpoint: parts.transport.localEndpoint(),
      data_protocol: parts.transport.protocol,
      transport: { wanted: parts.chosen.wanted, reason: parts.chosen.reason },
      metrics_endpoint: self?.metricsPort ? formatEndpoint({ host: self.metricsHost, port: self.metricsPort }) : '',
      is_meta: parts.master.isHead,
      masters: parts.discovery.seats().map(formatEndpoint),
      members: this.#members.size,
      directory: { keys: parts.ownDirectory.keys },
      rss_bytes: this.#env.host.residentBytes(),
    };
  }

  /** @internal Throws `InvariantError` unless every part of the node below its store agrees with itself. */
  verify(): void {
    if (this.#parts === undefined) return;
    const { ownDirectory, rpcServer, rpcClient, transport, notices, discovery, master } = this.#parts;
    for (const part of [ownDirectory, rpcServer, rpcClient, transport, notices, discovery, master]) part.verify();
  }
}

/** `events_max` of the params: how many events are wanted, the last ones. */
function withLastEvents(report: NodeReport, params: unknown): NodeReport {
  const max = (params as { events_max?: unknown } | null)?.events_max;
  if (typeof max !== 'number' || !(max >= 0) || !Array.isArray(report.events)) return report;
  return { ...report, events: report.events.slice(Math.max(0, report.events.length - Math.floor(max))) };
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}

function controlEndpoint(node: NodeInfo | undefined): Endpoint | undefined {
  return node === undefined ? undefined : { host: node.controlHost, port: node.controlPort };
}
