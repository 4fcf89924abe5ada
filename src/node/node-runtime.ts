import { type Environment, systemEnvironment } from '../base/environment.js';
import { ClosedError, ConfigError } from '../base/errors.js';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { type RandomSource, systemRandom } from '../base/random.js';
import type { MeshCacheConfig } from '../config.js';
import { DirectoryClient } from '../directory/client.js';
import { DirectoryServer } from '../directory/server.js';
import { DirectoryShard } from '../directory/shard.js';
import { DiscoveryClient } from '../discovery/client.js';
import { EmbeddedMaster } from '../discovery/embedded-master.js';
import { RpcClient } from '../rpc/client.js';
import { RpcServer } from '../rpc/server.js';
import { createTransport } from '../transport/create-transport.js';
import type { Transport } from '../transport/transport.js';
import { type DataLocation, NodeInfo } from '../types.js';
import { Announcer, type Publications } from './announcer.js';
import { ownAddressTowards } from './own-address.js';
import { OwnerRings } from './owner-rings.js';
import { type PageNoticeHandler, PageNotices } from './page-notices.js';
import { ShardUpkeep } from './shard-upkeep.js';

export interface NodeRuntimeOptions {
  /** Instead of the configured or a generated one. */
  readonly nodeId?: string;
  readonly env?: Environment;
}

/** Everything that exists between `start` and `stop`; a part started later is stopped earlier. */
interface RunningParts {
  readonly transport: Transport;
  readonly rpcServer: RpcServer;
  readonly rpcClient: RpcClient;
  readonly shard: DirectoryShard;
  readonly directory: DirectoryClient;
  readonly announcer: Announcer;
  readonly notices: PageNotices;
  readonly upkeep: ShardUpkeep;
  readonly rings: OwnerRings;
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
    return this.#running().directory;
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
    const { announcer, notices, rpcServer } = this.#running();
    announcer.announceFrom(publications);
    notices.handle(rpcServer, publications);
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
    return endpointFor(this.#running().transport.protocol, owner);
  }

  async #start(): Promise<void> {
    const { config } = this;
    const env = this.#env;
    const masters = config.discoveryEndpoints();
    const host = config.localHostname ?? (await ownAddressTowards(masters[0] as Endpoint));
    if (!isLoopback(host)) {
      env.log.log('warn', 'this node listens beyond loopback without authentication; use a network that you trust', {
        host,
      });
    }
    const undo: (() => Promise<void>)[] = [];
    try {
      const transport = await createTransport(
        { protocol: config.protocol, localHostname: host, tcpPort: config.tcpPort },
        env,
      );
      undo.unshift(() => transport.close());
      const rpcServer = new RpcServer({ host, port: config.controlPort, env });
      const controlPort = await rpcServer.start();
      undo.unshift(() => rpcServer.stop());
      const rpcClient = new RpcClient({ env });
      undo.unshift(() => rpcClient.close());

      const self = this.#describe(transport, { host, port: controlPort });
      this.#members = new Map([[self.nodeId, self]]);
      const shard = new DirectoryShard({ isLive: (nodeId, incarnation) => this.#isLive(nodeId, incarnation) });
      new DirectoryServer({ shard }).attach(rpcServer);
      const rings = new OwnerRings(config.vnodes);
      const ring = rings.make([self.nodeId]);
      const pruneDelayMs = 1000 * (config.memberTtl + config.heartbeatInterval);
      const endpointOf = (nodeId: string) => controlEndpoint(this.#members.get(nodeId));
      const directory = new DirectoryClient(ring, endpointOf, config.directoryReplicas, {
        nodeId: self.nodeId,
        incarnation: self.incarnation,
        rpc: rpcClient,
        localShard: shard,
        // Former owners forget after the delay, by their own clocks and by the news that reached them later.
        formerRingMs: 2 * pruneDelayMs,
        env,
      });
      const notices = new PageNotices({ rpc: rpcClient, endpointOf });
      const announcer = new Announcer({
        directory,
        replicas: config.directoryReplicas,
        initial: { ring, incarnations: new Map([[self.nodeId, self.incarnation]]) },
        env,
      });
      undo.unshift(() => announcer.stop());
      const upkeep = new ShardUpkeep({
        shard,
        nodeId: self.nodeId,
        replicas: config.directoryReplicas,
        pruneDelayMs,
        clock: env.clock,
      });
      rpcServer.handle('node.status', () => this.#status());

      const timing = { heartbeatInterval: config.heartbeatInterval, memberTtl: config.memberTtl };
      const master = new EmbeddedMaster(masters, { ...timing, env });
      await master.start();
      undo.unshift(() => master.stop());
      const discovery = new DiscoveryClient(config.discoveryAddr, self, {
        ...timing,
        onMembers: (members) => this.#onMembers(members),
        onUnreachable: () => void master.tryTakeOver(),
        onForgotten: () => announcer.announceAll(),
        env,
      });
      this.#parts = {
        transport,
        rpcServer,
        rpcClient,
        shard,
        directory,
        announcer,
        notices,
        upkeep,
        rings,
        master,
        discovery,
      };
      undo.unshift(() => discovery.stop());
      await discovery.start();
    } catch (error) {
      this.#parts = undefined;
      for (const stop of undo) await stop();
      throw error;
    }
    env.metrics.setGaugeProvider('meshcache_directory_keys', () => this.#parts?.shard.stats().keys ?? 0);
    env.log.log('info', 'node started', {
      node_id: this.nodeId,
      data_endpoint: this.localRdmaEndpoint,
      is_meta: this.isMeta,
    });
  }

  async #stop(): Promise<void> {
    await this.#starting?.catch(() => {});
    const parts = this.#parts;
    if (parts === undefined) return;
    await parts.discovery.stop();
    await parts.announcer.stop();
    parts.upkeep.stop();
    await parts.master.stop();
    await parts.rpcServer.stop();
    await parts.rpcClient.close();
    await parts.transport.close();
  }

  #running(): RunningParts {
    if (this.#parts === undefined) throw new ClosedError(`node ${this.nodeId}, which has not been started,`);
    return this.#parts;
  }

  #describe(transport: Transport, control: Endpoint): NodeInfo {
    const endpoint = transport.localEndpoint();
    const at = endpoint.lastIndexOf(':');
    return new NodeInfo({
      nodeId: this.nodeId,
      controlHost: control.host,
      controlPort: control.port,
      tcpHost: control.host,
      tcpPort: Number(endpoint.slice(at + 1)),
      protocols: [transport.protocol],
      incarnation: this.incarnation,
    });
  }

  #isLive(nodeId: string, incarnation: number): boolean {
    return this.#members.get(nodeId)?.incarnation === incarnation;
  }

  #onMembers(members: ReadonlyMap<string, NodeInfo>): void {
    const parts = this.#parts;
    if (parts === undefined) return;
    const gone = [...this.#members.values()].filter(
      (node) => members.get(node.nodeId)?.incarnation !== node.incarnation,
    );
    this.#members = new Map(members);
    for (const node of gone) parts.shard.dropNode(node.nodeId, node.incarnation);
    const ring = parts.rings.make([...members.keys()]);
    parts.directory.setRing(ring);
    const incarnations = new Map([...members].map(([id, node]) => [id, node.incarnation]));
    parts.announcer.ownersChanged({ ring, incarnations });
    parts.upkeep.ownersChanged(ring);
    parts.rings.keepFor([parts.directory, parts.announcer, parts.upkeep]);
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
      is_meta: parts.master.isHead,
      members: this.#members.size,
      directory: { keys: parts.shard.stats().keys },
      rss_bytes: process.memoryUsage.rss(),
      ...this.#reportStore(),
    };
  }
}

/** Settings that later versions will know are refused rather than ignored. */
function refuseWhatIsMissing(config: MeshCacheConfig): void {
  if (config.diskEnabled) {
    throw new ConfigError('configuration key "disk_enabled": this version has no disk tier; set it to false');
  }
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

function endpointFor(protocol: 'rdma' | 'tcp', owner: NodeInfo): string | undefined {
  if (protocol === 'rdma' && owner.rdmaPort > 0) return formatEndpoint({ host: owner.rdmaHost, port: owner.rdmaPort });
  return owner.tcpPort > 0 ? formatEndpoint({ host: owner.tcpHost, port: owner.tcpPort }) : undefined;
}
