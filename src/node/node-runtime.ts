import { type Environment, systemEnvironment } from '../base/environment.js';
import { ClosedError, ConfigError } from '../base/errors.js';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { type RandomSource, systemRandom } from '../base/random.js';
import type { MeshCacheConfig } from '../config.js';
import type { DirectoryClient } from '../directory/client.js';
import { DiscoveryClient } from '../discovery/client.js';
import { EmbeddedMaster } from '../discovery/embedded-master.js';
import { RpcClient } from '../rpc/client.js';
import { RpcServer } from '../rpc/server.js';
import type { Promoter } from '../store/promoter.js';
import { createTransport } from '../transport/create-transport.js';
import type { Transport } from '../transport/transport.js';
import { type DataLocation, NodeInfo } from '../types.js';
import type { Publications } from './announcer.js';
import { DataEndpoints } from './data-endpoints.js';
import { NodeDirectory } from './node-directory.js';
import { ownAddressTowards } from './own-address.js';
import { type PageNoticeHandler, PageNotices } from './page-notices.js';
import { Promotions } from './promotions.js';

export interface NodeRuntimeOptions {
  /** Instead of the configured or a generated one. */
  readonly nodeId?: string;
  readonly env?: Environment;
}

/** What there is between `start` and `stop`. */
interface RunningParts {
  readonly transport: Transport;
  readonly dataEndpoints: DataEndpoints;
  readonly rpcServer: RpcServer;
  readonly ownDirectory: NodeDirectory;
  readonly notices: PageNotices;
  readonly promotions: Promotions;
  readonly master: EmbeddedMaster;
  readonly discovery: DiscoveryClient;
}

/** One node without its pool: transport, control plane, directory shard and membership, wired together. */
export class NodeRuntime {
  readonly config: MeshCacheConfig;
  readonly nodeId: string;
  /** Wall-clock milliseconds of this start. */
  readonly incarnation: number;
  readonly #env: Environment;
  readonly #startedMs: number;
  /** What stops the parts, in the order of their start. */
  readonly #stops: (() => Promise<void>)[] = [];
  #parts: RunningParts | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #reportStore: () => Record<string, unknown> = () => ({});
  #members: ReadonlyMap<string, NodeInfo> = new Map();

  constructor(config: MeshCacheConfig, options: NodeRuntimeOptions = {}) {
    this.config = config;
    this.#env = options.env ?? systemEnvironment();
    this.nodeId = options.nodeId ?? config.nodeId ?? NodeRuntime.generateNodeId(this.#env.random);
    this.incarnation = Math.floor(this.#env.clock.wallMs());
    this.#startedMs = this.#env.clock.nowMs();
    refuseWhatIsMissing(config);
  }

  /** An id that no other node has: `node-` and 64 random bits. */
  static generateNodeId(random: RandomSource = systemRandom): string {
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

  /** Live nodes by id, this one included. */
  members(): ReadonlyMap<string, NodeInfo> {
    return this.#members;
  }

  /**
   * Joins the cluster. Resolves also when no master answers yet (see `DiscoveryClient.start`).
   * Throws `ConfigError` when a port is taken or an address is not this host's.
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

  /** From now on, what `publications` has is announced to directory owners as they change, and others may ask about it. */
  announceFrom(publications: Publications & PageNoticeHandler): void {
    const { ownDirectory, notices, rpcServer } = this.#running();
    ownDirectory.announceFrom(publications);
    // What a disk has kept from an earlier start is news to everybody.
    if (!publications.isEmpty) ownDirectory.announceAll();
    notices.handle(rpcServer, publications);
  }

  /** From now on other nodes may have pages brought from this node's disk into its pool. */
  promoteFrom(promoter: Pick<Promoter, 'promote' | 'release'>): void {
    const { promotions, rpcServer } = this.#running();
    promotions.handle(rpcServer, promoter);
  }

  /** For asking other nodes for what is on their disks. */
  get promotions(): Promotions {
    return this.#running().promotions;
  }

  /** For telling other nodes what became of reads of their pages. */
  get notices(): PageNotices {
    return this.#running().notices;
  }

  /** What a store adds to the answer of `node.status`. */
  reportStatus(report: () => Record<string, unknown>): void {
    this.#reportStore = report;
  }

  /** Where to read a location's owner, by the best protocol that both speak; undefined when it is not alive. */
  dataEndpointOf(location: DataLocation): string | undefined {
    const owner = this.#members.get(location.nodeId);
    if (owner === undefined || owner.incarnation !== location.incarnation) return undefined;
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
    env.metrics.setGaugeProvider('meshcache_directory_keys', () => this.#parts?.ownDirectory.keys ?? 0);
    env.log.log('info', 'node started', {
      node_id: this.nodeId,
      data_endpoint: this.localRdmaEndpoint,
      is_meta: this.isMeta,
    });
  }

  /** The address that this node listens on and is reached at. */
  async #ownHost(): Promise<string> {
    const [first] = this.config.discoveryEndpoints();
    return this.config.localHostname ?? (await ownAddressTowards(first as Endpoint));
  }

  /** The data plane by RDMA is never on loopback, whose devices it does not have. */
  #warnOfReach(host: string, transport: Transport): void {
    const rdmaHost = transport.localEndpoints().rdma?.host;
    if (isLoopback(host) && rdmaHost === undefined) return;
    const message = 'this node listens beyond loopback without authentication; use a network that you trust';
    this.#env.log.log('warn', message, { host, rdma_host: rdmaHost });
  }

  /** Starts every part but the discovery client, which is made last and told to start when all the others are there. */
  async #startParts(host: string): Promise<RunningParts> {
    const { config } = this;
    const env = this.#env;
    const { controlPort: port } = config;
    const transport = await createTransport({ ...config, localHostname: host }, env);
    this.#stops.push(() => transport.close());
    this.#warnOfReach(host, transport);
    const rpcServer = new RpcServer({ host, port, env });
    const controlPort = await rpcServer.start();
    this.#stops.push(() => rpcServer.stop());
    const rpcClient = new RpcClient({ env });
    this.#stops.push(() => rpcClient.close());

    const self = this.#describe(transport, { host, port: controlPort });
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
    rpcServer.handle('node.status', () => this.#status());
    const notices = new PageNotices({ rpc: rpcClient, endpointOf });
    const promotions = new Promotions({ rpc: rpcClient, endpointOf, nodeId: this.nodeId });

    const timing = { heartbeatInterval: config.heartbeatInterval, memberTtl: config.memberTtl };
    const master = new EmbeddedMaster(config.discoveryEndpoints(), { ...timing, env });
    await master.start();
    this.#stops.push(() => master.stop());
    const discovery = new DiscoveryClient(config.discoveryAddr, self, {
      ...timing,
      onMembers: (members) => this.#onMembers(members),
      onUnreachable: () => void master.tryTakeOver(),
      onForgotten: () => ownDirectory.announceAll(),
      env,
    });
    this.#stops.push(() => discovery.stop());
    return {
      transport,
      dataEndpoints: new DataEndpoints(transport, env.log),
      rpcServer,
      ownDirectory,
      notices,
      promotions,
      master,
      discovery,
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

  #describe(transport: Transport, control: Endpoint): NodeInfo {
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
      incarnation: this.incarnation,
    });
  }

  #onMembers(members: ReadonlyMap<string, NodeInfo>): void {
    const before = this.#members;
    this.#members = new Map(members);
    this.#parts?.ownDirectory.membersChanged(before, this.#members);
  }

  #status(): Record<string, unknown> {
    const parts = this.#running();
    const self = this.#members.get(this.nodeId);
    return {
      node_id: this.nodeId,
      incarnation: this.incarnation,
      uptime_s: (this.#env.clock.nowMs() - this.#startedMs) / 1000,
      vnodes: this.config.vnodes,
      protocols: self?.protocols ?? [],
      control_endpoint: self === undefined ? '' : formatEndpoint({ host: self.controlHost, port: self.controlPort }),
      data_endpoint: parts.transport.localEndpoint(),
      data_protocol: parts.transport.protocol,
      is_meta: parts.master.isHead,
      members: this.#members.size,
      directory: { keys: parts.ownDirectory.keys },
      rss_bytes: process.memoryUsage.rss(),
      ...this.#reportStore(),
    };
  }
}

/** Settings that later versions will know are refused rather than ignored. */
function refuseWhatIsMissing(config: MeshCacheConfig): void {
  if (config.clusterSecret !== undefined) {
    throw new ConfigError('configuration key "cluster_secret": this version has no authentication; leave it out');
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}

function controlEndpoint(node: NodeInfo | undefined): Endpoint | undefined {
  return node === undefined ? undefined : { host: node.controlHost, port: node.controlPort };
}
