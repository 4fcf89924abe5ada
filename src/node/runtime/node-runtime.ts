import { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import type { RandomSource } from '../../base/environment/random.js';
import { ArgumentError, ClosedError } from '../../base/errors.js';
import type { MeshCacheConfig } from '../../config.js';
import type { DirectoryClient } from '../../directory/client.js';
import type { LocationNode } from '../../directory/messages/location-columns.js';
import type { OwnPages } from '../../directory/server.js';
import { digestOf } from '../../directory/shard/removals.js';
import type { ClusterHistory, HistoryReport } from '../../metrics/history-report.js';
import type { ClusterReport, NodeReport } from '../../metrics/node-report.js';
import { certificateTrouble, memberCredentials } from '../../net/credentials/credential-files.js';
import { securedEnvironment } from '../../net/credentials/secured-environment.js';
import type { Distances } from '../../net/distance.js';
import { Users } from '../../net/users.js';
import type { RpcHandler } from '../../rpc/server.js';
import type { OtherHolders } from '../../store/ground/other-holders.js';
import type { HeldPages } from '../../store/holding/held-pages.js';
import type { Transport } from '../../transport/contract/transport.js';
import type { NamespaceFingerprint, NodeInfo } from '../../types.js';
import { DRAIN_METHOD } from '../leaving/drain.js';
import type { MapFeed } from '../map/map-feed.js';
import type { PageNoticeHandler, PageNotices } from '../remote-pages/page-notices.js';
import { ClusterReporter } from '../reporting/cluster-reporter.js';
import { discoveryTroubles } from '../reporting/discovery-troubles.js';
import { ownReport } from '../reporting/own-report.js';
import type { ClearedDrop, Clears } from '../upkeep/clears.js';
import { introduce } from '../upkeep/introduction.js';
import type { NodeDirectory } from '../upkeep/node-directory.js';
import type { Publications } from '../upkeep/owner-lists.js';
import { VoidPages } from '../upkeep/void-pages.js';
import { type NodeNetwork, openNodeNetwork } from './node-network.js';
import { NodeIdentity } from './own-record.js';

/** The options of a {@link NodeRuntime}, apart from its configuration. */
export interface NodeRuntimeOptions {
  /** The id of the node, instead of the configured or a generated one. */
  readonly nodeId?: string;
  /** Endpoint of this node's metrics server, for the node's record. */
  readonly metricsEndpoint?: Endpoint | undefined;
  /** @internal Fingerprint of the node's own namespace. */
  readonly fingerprint?: NamespaceFingerprint | undefined;
  /** @internal The users of the node; their file is reread while the node runs. */
  readonly users?: Users | undefined;
  readonly env: Environment;
}

/** What a store adds to its node: its pages, and the handlers for other nodes' requests about them. */
export interface StorePart {
  /** The pages to announce to directory owners. */
  readonly pages: Publications;
  /** Drops copies of pages that other nodes have cleared. */
  readonly dropCleared: ClearedDrop;
  readonly notices: PageNoticeHandler;
  /** Locations of pages that this node may name without their directory owners. */
  readonly ownPages: OwnPages;
  /** Tells other nodes which pages this one has. */
  readonly mapFeed: Pick<MapFeed, 'attach'>;
  /** Holds pages for other nodes. */
  readonly held: Pick<HeldPages, 'hold' | 'release'>;
  readonly drain: RpcHandler;
  /** The store's part of its node's report. */
  readonly report: () => Promise<Record<string, unknown>>;
  /** The store's figures over time; undefined if it keeps none. */
  readonly history: (stepS: number) => Omit<HistoryReport, 'node_id' | 'incarnation'> | undefined;
}

/** The parts of a node that exist once it joins. */
interface JoinedParts {
  /** The pages that directory owners are told of. */
  readonly pages: Publications;
  readonly clusterReporter: ClusterReporter;
  readonly report: () => Promise<NodeReport>;
}

const NO_MEMBERS: ReadonlyMap<string, NodeInfo> = new Map();

/** The pages of a node without a store. */
const NO_PAGES: Publications = {
  isEmpty: true,
  keysInSlices: () => [],
  drop: async () => {},
  locationsOf: (keys) => keys.map(() => null),
  *eachNote() {},
};

/** One node without its pool: its transport, control plane, directory shard and membership. */
export class NodeRuntime {
  readonly config: MeshCacheConfig;
  readonly nodeId: string;
  readonly #env: Environment;
  readonly #metricsEndpoint: Endpoint | undefined;
  readonly #fingerprint: NamespaceFingerprint | undefined;
  readonly #users: Users;
  readonly #identity: NodeIdentity;
  /** @internal Source of versions for content set on this node. */
  readonly versions: HybridClock;
  /** Functions that stop the parts, in the order in which the parts were started. */
  readonly #stops: (() => Promise<void>)[] = [];
  #parts: NodeNetwork | undefined;
  #joined: JoinedParts | undefined;
  #isDiskHung = false;
  /** The most recent step of the start. */
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(config: MeshCacheConfig, options: NodeRuntimeOptions) {
    if (typeof config?.discoveryEndpoints !== 'function') {
      throw new ArgumentError(
        'a node runtime needs a MeshCacheConfig: `new NodeRuntime(new MeshCacheConfig({ ... }))`',
      );
    }
    this.config = config;
    this.#env = securedEnvironment(config, options.env);
    this.#metricsEndpoint = options.metricsEndpoint;
    this.#fingerprint = options.fingerprint;
    this.#users = options.users ?? new Users();
    this.nodeId = options.nodeId ?? config.nodeId ?? NodeRuntime.generateNodeId(this.#env.random);
    this.#identity = new NodeIdentity(this.nodeId, this.#env.clock);
    this.versions = new HybridClock(this.#env.clock, digestOf(this.nodeId));
  }

  /**
   * Wall-clock milliseconds of this start. A node that the others have dropped because its heartbeats did not arrive
   * rejoins under a new incarnation; what others knew of it before is void.
   */
  get incarnation(): number {
    return this.#identity.incarnation;
  }

  /** Generates a unique node id: `node-` and 64 random bits. */
  static generateNodeId(random: RandomSource): string {
    return `node-${Buffer.from(random.bytes(8)).toString('hex')}`;
  }

  /** `host:port` of this node's data plane. */
  get localRdmaEndpoint(): string {
    return this.transport.localEndpoint();
  }

  /** Whether this node runs a discovery master now; false before `start` and after `stop`. */
  get isMeta(): boolean {
    return this.#parts?.membership.master.isHead ?? false;
  }

  /** Whether a discovery master answers now. Without one, a node works alone and joins when one answers. */
  get isJoined(): boolean {
    return this.#parts?.membership.discovery.isReachable ?? false;
  }

  get directory(): DirectoryClient {
    return this.#running().directory.client;
  }

  get transport(): Transport {
    return this.#running().chosen.transport;
  }

  /** @internal `as configured`, or why the node does not use the transport that it was configured for. */
  get transportReason(): string {
    return this.#running().chosen.reason;
  }

  /** @internal Distances of other nodes from this one; undefined if this node has no zone. */
  distances(): Distances {
    return this.#running().directory.distances();
  }

  /**
   * @internal Makes other nodes drop pages, and knows whether they have told this node which of its own are outdated.
   */
  get drops(): Pick<NodeDirectory, 'deleteEverywhere' | 'dropFrom' | 'isAnnounced'> {
    return this.#running().directory;
  }

  /** @internal Tells nodes about clears, and knows all clears. */
  get clears(): Pick<Clears, 'clear' | 'known'> {
    return this.#running().directory.clears;
  }

  /** @internal Asks other nodes to hold pages. */
  get holders(): OtherHolders {
    return this.#running().holders;
  }

  /** @internal Tells other nodes the results of reads of their pages. */
  get notices(): PageNotices {
    return this.#running().notices;
  }

  /** Live nodes by id, this one included. */
  members(): ReadonlyMap<string, NodeInfo> {
    return this.#parts?.members.byId ?? NO_MEMBERS;
  }

  /** @internal The live storage nodes, except this one. */
  storageNodes(): readonly NodeInfo[] {
    return [...this.members().values()].filter(({ role, nodeId }) => role === 'storage' && nodeId !== this.nodeId);
  }

  /**
   * @internal Tells the cluster that this node's disk does not answer, or answers again; meanwhile nobody looks for its
   * pages there.
   */
  setDiskHung(isHung: boolean): void {
    this.#isDiskHung = isHung;
    if (this.#parts !== undefined) this.#parts.membership.discovery.restate(this.#parts.describe());
  }

  /** @internal Signals changes of members. The node must be open. */
  get changed(): NodeDirectory['changed'] {
    return this.#running().directory.changed;
  }

  /** @internal Signals that other nodes have, or may have, dropped this one as a member. The node must be open. */
  get away(): NodeDirectory['away'] {
    return this.#running().directory.away;
  }

  /** @internal Signals that this node's clock was ahead and goes by its date again. The node must be open. */
  get begunAgain(): NodeDirectory['begunAgain'] {
    return this.#running().directory.begunAgain;
  }

  /** @internal Signals new members, see `NodeDirectory.met`. The node must be open. */
  get met(): NodeDirectory['met'] {
    return this.#running().directory.met;
  }

  /**
   * Joins the cluster. Resolves even if no master answers yet (see `DiscoveryClient.start`).
   * Throws `ConfigError` when a port is taken, an address is not this host's, or the cluster has other settings.
   */
  async start(): Promise<void> {
    if (this.#stopping !== undefined) throw new ClosedError('the node');
    this.#starting ??= this.#open().then(() => this.#join(undefined));
    return this.#starting;
  }

  /**
   * @internal First half of {@link start}: starts everything that a store is built on. The node is not a member of the
   * cluster yet.
   */
  open(): Promise<void> {
    this.#starting = this.#open();
    return this.#starting;
  }

  /** @internal Second half of {@link start}: joins the cluster with a store made after {@link open}. */
  join(store: StorePart): Promise<void> {
    this.#starting = this.#join(store);
    return this.#starting;
  }

  /** Leaves the cluster; takes a few seconds at most. Idempotent. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** @internal Leaves the cluster and stops announcing, but continues serving until {@link stop}. */
  async leave(): Promise<void> {
    const { directory, membership } = this.#running();
    directory.client.setSilent(true);
    await membership.discovery.stop();
  }

  /**
   * Resolves with true when every node that was a member before this one has announced its pages to this node, or has
   * left; with false after SHARD_FILLING_TIMEOUT_MS, or when the node is stopped.
   */
  waitForDirectory(): Promise<boolean> {
    return this.#running().filling.filled();
  }

  /** The report of this node; without a store, only the runtime's part. */
  async report(): Promise<NodeReport> {
    return this.#member().report();
  }

  /** The reports of all members. */
  cluster(): Promise<ClusterReport> {
    return this.#member().clusterReporter.report();
  }

  /** The figures of all members over time. */
  history(stepS: number): Promise<ClusterHistory> {
    return this.#member().clusterReporter.history(stepS);
  }

  /** Describes to an operator what is wrong with this node's membership. */
  troubles(): string[] {
    if (this.#parts === undefined) return ['the node has not joined the cluster'];
    const troubles = discoveryTroubles(this.#parts.membership, this.config.discoveryAddr, this.versions);
    const certificate = certificateTrouble(this.#env);
    if (certificate !== undefined) troubles.push(certificate);
    const isServing = this.#parts.chosen.transport.isServing();
    if (!isServing) troubles.push('the serving thread has failed: other nodes cannot read from this one');
    return troubles;
  }

  /**
   * The endpoint at which a node's pages are read, by the best protocol that both nodes support; undefined if that
   * incarnation of it is not alive.
   */
  dataEndpointOf({ nodeId, incarnation }: Pick<LocationNode, 'nodeId' | 'incarnation'>): string | undefined {
    const owner = this.members().get(nodeId);
    if (owner === undefined || owner.incarnation !== incarnation) return undefined;
    return this.#running().dataEndpoints.of(owner);
  }

  /**
   * @internal Members whose pages cannot be read now, as found by earlier reads; also this one while its disk hangs.
   */
  unreachableNodes(): readonly string[] {
    const ids = this.#running().unreachable.ids();
    return this.#isDiskHung ? [...ids, this.nodeId] : ids;
  }

  /** Runs a step of the start; if it fails, stops everything that runs. */
  async #orStop(step: () => Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      await this.#stopAll();
      this.#parts = undefined;
      this.#joined = undefined;
      throw error;
    }
  }

  #open(): Promise<void> {
    return this.#orStop(async () => {
      const credentials = memberCredentials(this.config, this.#env, this.#users);
      credentials.start();
      this.#stops.push(async () => credentials.stop());
      this.#parts = await openNodeNetwork({
        config: this.config,
        identity: this.#identity,
        metricsEndpoint: this.#metricsEndpoint,
        fingerprint: this.#fingerprint,
        isDiskHung: () => this.#isDiskHung,
        users: this.#users,
        versions: this.versions,
        env: this.#env,
        stops: this.#stops,
      });
    });
  }

  #join(store: StorePart | undefined): Promise<void> {
    return this.#orStop(async () => {
      const parts = this.#running();
      const joined = this.#answerWith(parts, store);
      this.#joined = joined;
      await parts.membership.join();
      parts.directory.startAnnouncing(joined.pages);
      await introduce(parts.membership.discovery, this.nodeId, this.#env);
      this.#env.log.log('info', this.isJoined ? 'node started' : 'node started, not joined yet', {
        node_id: this.nodeId,
        data_endpoint: this.localRdmaEndpoint,
        is_meta: this.isMeta,
      });
    });
  }

  /** Creates the parts that need the store; from now on it answers other nodes. */
  #answerWith(parts: NodeNetwork, store: StorePart | undefined): JoinedParts {
    const { rpcServer, directory, notices, holders } = parts;
    const { nodeId, config } = this;
    const { vnodes, heartbeatInterval, memberTtl } = config;
    const env = this.#env;
    const pages = store?.pages ?? NO_PAGES;
    const dropCleared = store?.dropCleared ?? (async () => {});
    new VoidPages({ directory, pages, dropCleared, log: env.log }).attach(rpcServer);
    if (store !== undefined) {
      notices.handle(rpcServer, store.notices);
      holders.handle(rpcServer, store.held);
      directory.answerFrom(store.ownPages);
      store.mapFeed.attach(rpcServer);
      rpcServer.handle(DRAIN_METHOD, store.drain);
    }
    const report = async () => ({ ...this.#ownReport(parts), ...(await store?.report()) }) as unknown as NodeReport;
    const history = (stepS: number) => {
      const figures = store?.history(stepS);
      return figures && { node_id: nodeId, incarnation: this.incarnation, ...figures };
    };
    const members = () => parts.members.byId;
    const { rpcClient: rpc } = parts;
    const timing = { heartbeatInterval, memberTtl, clock: env.clock };
    const reporterParts = { nodeId, vnodes, members, ownReport: report, history, rpc, ...timing };
    ClusterReporter.handle(rpcServer, { report, history });
    return { pages, clusterReporter: new ClusterReporter(reporterParts), report };
  }

  async #stop(): Promise<void> {
    await this.#starting?.catch(() => {});
    await this.#stopAll();
  }

  async #stopAll(): Promise<void> {
    for (const stop of this.#stops.splice(0).reverse()) await stop();
  }

  #running(): NodeNetwork {
    if (this.#parts === undefined) throw new ClosedError(`node ${this.nodeId}, which has not been started,`);
    return this.#parts;
  }

  #member(): JoinedParts {
    if (this.#joined === undefined) throw new ClosedError(`node ${this.nodeId}, which has not been started,`);
    return this.#joined;
  }

  #ownReport({
    chosen,
    membership,
    members,
    memberEvents,
    directory,
    unreachable,
  }: NodeNetwork): Record<string, unknown> {
    const { master, discovery, rendezvous } = membership;
    return ownReport({
      identity: this.#identity,
      vnodes: this.config.vnodes,
      isMetricsTls: this.config.metricsTlsCertFile !== undefined,
      chosen,
      master,
      discovery,
      source: rendezvous?.state(),
      members: members.byId,
      memberEvents,
      unreachable: unreachable.ids(),
      versions: this.versions,
      directoryKeys: directory.keys,
      env: this.#env,
    });
  }

  /** @internal Throws `InvariantError` unless every part of the node below its store is consistent. */
  verify(): void {
    if (this.#parts === undefined) return;
    const { directory, rpcServer, rpcClient, chosen, notices, membership } = this.#parts;
    const { discovery, master } = membership;
    for (const part of [directory, rpcServer, rpcClient, chosen.transport, notices, discovery, master]) part.verify();
  }
}
