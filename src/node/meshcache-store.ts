import { FairTurns } from '../base/concurrency/fair-turns.js';
import type { Environment } from '../base/environment/environment.js';
import { formatEndpoint } from '../base/environment/network.js';
import { ArgumentError } from '../base/errors.js';
import { Signal } from '../base/signal.js';
import type { ClientInfo, ClientServer } from '../clients/client-server.js';
import { MeshCacheConfig, type StorageConfig } from '../config.js';
import type { KeyEncoder, KeyNamespace } from '../core/index.js';
import type { DiskStore } from '../disk/disk-store.js';
import { HostRegion } from '../memory/host-region.js';
import { Metrics } from '../metrics/metrics.js';
import type { PublishedPool } from '../pool/published-pool.js';
import type { HotReads } from '../store/hot-reads.js';
import { StoredPages } from '../store/namespace-pages.js';
import type { PageStore } from '../store/page-store.js';
import type { Promoter } from '../store/promoter.js';
import { StoreNamespace } from '../store/store-namespace.js';
import { wholeNamespace } from '../store/whole-namespace.js';
import { systemEnvironment } from '../system/system-environment.js';
import type { DataLocation } from '../types.js';
import { openClientSocket } from './client-wiring.js';
import { openDisk } from './disk-wiring.js';
import { KeyEncoders } from './key-encoders.js';
import { encoderOf, modelPartOf } from './key-namespace.js';
import type { StoreLeaving } from './leaving/store-leaving.js';
import { NodeReporting } from './reporting/node-reporting.js';
import { packageVersion } from './reporting/package-version.js';
import { RecentEvents } from './reporting/recent-events.js';
import { storeReporter } from './reporting/store-reporting.js';
import { type StoreStats, storeStats } from './reporting/store-stats.js';
import { NodeRuntime } from './runtime/node-runtime.js';
import { checkMemory, providePool } from './store-checks.js';
import { assembleStore } from './store-parts.js';

/** What only `create` hands to the constructor. */
const CREATED = Symbol('created');

/**
 * One node of the cache: publishes pages in its own pool, reads those of every node. Its own methods for pages are those of the
 * namespace that its configuration names; {@link namespace} gives others.
 */
export class MeshCacheStore extends StoreNamespace {
  readonly runtime: NodeRuntime;
  /** Makes the keys of this store as they are in the directory: for those who look there themselves. */
  readonly keyEncoder: KeyEncoder;
  readonly #metrics: Metrics;
  readonly #pages: PageStore;
  readonly #pool: PublishedPool;
  readonly #region: HostRegion;
  readonly #disk: DiskStore | null;
  readonly #promoter: Promoter | null;
  readonly #reporting: NodeReporting;
  readonly #leaving: StoreLeaving;
  readonly #hotReads: HotReads;
  readonly #turns: FairTurns;
  readonly #keyEncoders: KeyEncoders;
  #clients: ClientServer | undefined;
  #closing: Promise<void> | undefined;

  private constructor(
    created: symbol,
    parts: {
      runtime: NodeRuntime;
      metrics: Metrics;
      pages: PageStore;
      pool: PublishedPool;
      region: HostRegion;
      keyEncoders: KeyEncoders;
      disk: DiskStore | null;
      promoter: Promoter | null;
      reporting: NodeReporting;
      leaving: StoreLeaving;
      hotReads: HotReads;
      turns: FairTurns;
    },
  ) {
    if (created !== CREATED)
      throw new ArgumentError('MeshCacheStore has no public constructor; use `await MeshCacheStore.create(...)`');
    const { pages, keyEncoders, turns, metrics } = parts;
    super({
      namespacePages: new StoredPages(pages, keyEncoders.own),
      turns,
      onLookup: (asked, found) => metrics.recordLookup(asked, found),
    });
    this.keyEncoder = keyEncoders.own;
    this.runtime = parts.runtime;
    this.#metrics = parts.metrics;
    this.#pages = parts.pages;
    this.#pool = parts.pool;
    this.#region = parts.region;
    this.#disk = parts.disk;
    this.#promoter = parts.promoter;
    this.#reporting = parts.reporting;
    this.#leaving = parts.leaving;
    this.#hotReads = parts.hotReads;
    this.#turns = parts.turns;
    this.#keyEncoders = keyEncoders;
  }

  /**
   * Starts a node and joins the cluster. Resolves although no discovery master answers yet: the node
   * then works alone, says so in the log, and joins when one appears. Over RDMA it also waits until the system has
   * provided the pool's memory; with `wait_for_directory`, until the other nodes have announced their pages to it, for half a
   * minute at most. Throws `ConfigError`, also when a discovery master refuses the node because settings that must be alike differ,
   * and `DiskError` when the disk tier cannot be opened.
   */
  static async create(storage: StorageConfig, environment: Partial<Environment> = {}): Promise<MeshCacheStore> {
    const config = MeshCacheConfig.fromExtraConfig(storage?.extraConfig ?? {});
    const part = modelPartOf(storage);
    const machine = systemEnvironment(environment);
    checkMemory(config.globalSegmentSize, machine.host);
    const keyEncoders = new KeyEncoders(encoderOf(storage, part, config));
    const nodeId = config.nodeId ?? NodeRuntime.generateNodeId(machine.random);
    const metrics = new Metrics(nodeId, { version: packageVersion(), clock: machine.clock, host: machine.host });
    const given = { ...machine, metrics: environment.metrics ?? metrics };
    const events = new RecentEvents(given.log, given.clock);
    const env = { ...given, log: events };
    const reporting = new NodeReporting({ config, metrics, events, env });
    if (!config.verifyReads) {
      env.log.log('warn', 'verify_reads is off: only the quarantine keeps pages whole while they are read');
    }
    let region: HostRegion | undefined;
    let disk: DiskStore | null = null;
    let runtime: NodeRuntime | undefined;
    let clients: ClientServer | undefined;
    const evicted = new Signal<[keys: readonly string[]]>();
    try {
      await reporting.start();
      runtime = new NodeRuntime(config, { nodeId, metricsEndpoint: reporting.endpoint, env });
      region = HostRegion.allocateFrom(env.host, config.globalSegmentSize);
      disk = await openDisk(part, config, { nodeId, onEvict: evicted.tell, env });
      await runtime.start();
      if (runtime.transport.protocol === 'rdma') await providePool(region, env);
      const parts = assembleStore({ config, env, metrics, runtime, region, disk, evicted });
      const store = new MeshCacheStore(CREATED, {
        ...parts,
        runtime,
        metrics,
        region,
        keyEncoders,
        disk,
        reporting,
        turns: new FairTurns(env.clock),
      });
      const attached = () => store.#clients;
      reporting.attach(runtime, storeReporter({ ...parts, disk, drain: parts.leaving.drain, clients: attached }));
      clients = await openClientSocket(config, {
        runtime,
        pages: store.#pages,
        keyEncoders,
        stats: () => store.stats(),
        env,
      });
      store.#clients = clients;
      if (config.waitForDirectory) await runtime.waitForDirectory();
      return store;
    } catch (error) {
      await clients?.close();
      await runtime?.stop();
      await disk?.close();
      region?.free();
      await reporting.stop();
      throw error;
    }
  }

  /** What this node counts; it observes the event loop from when somebody asks for this, or the metrics server runs. */
  get metrics(): Metrics {
    this.#metrics.observe();
    return this.#metrics;
  }

  /** Resolves when an operator has had this node drained: it has left the cluster, and is to be closed. */
  get drained(): Promise<void> {
    return this.#leaving.drain.drained;
  }

  /** `host:port` of this node's metrics server; empty when it has none. */
  get metricsEndpoint(): string {
    const { endpoint } = this.#reporting;
    return endpoint === undefined ? '' : formatEndpoint(endpoint);
  }

  /**
   * Another namespace of this node: what is left out of it counts as absent, ranks as 0 and sizes as 1. Throws `ArgumentError` for what
   * cannot be.
   */
  namespace(namespace: Partial<KeyNamespace>): StoreNamespace {
    const pages = new StoredPages(this.#pages, this.#keyEncoders.of(wholeNamespace(namespace)));
    const metrics = this.#metrics;
    return new StoreNamespace({
      namespacePages: pages,
      turns: this.#turns,
      onLookup: (asked, found) => metrics.recordLookup(asked, found),
    });
  }

  /** Path of the socket at which processes of this host attach; empty when there is none. */
  get clientSocket(): string {
    return this.#clients?.path ?? '';
  }

  /** The processes that are attached. */
  clients(): ClientInfo[] {
    return this.#clients?.clients() ?? [];
  }

  /** @internal What this node has now, in its pool or on its disk: each page as the directory is told of it. For simulations. */
  *holdings(): Generator<readonly [objectKey: string, location: DataLocation], void> {
    const { statements } = this.#pages;
    for (const keys of statements.keysInSlices()) {
      const locations = statements.locationsOf(keys);
      for (let i = 0; i < keys.length; i++) {
        const location = locations[i] ?? null;
        if (location !== null) yield [keys[i] as string, location];
      }
    }
  }

  /** Counts of now, and counters since the store was created. */
  stats(): StoreStats {
    const members = this.runtime.members().size;
    return storeStats({ pages: this.#pages, pool: this.#pool, disk: this.#disk, members });
  }

  /**
   * Drops what this node has, in its pool, copies included, on its disk and in the directory, and the copies that other nodes have made of
   * it where nobody else has set the page; of all namespaces. Nothing that others have set.
   */
  override async clear(): Promise<void> {
    return this.#turns.run(() => this.#pages.clear());
  }

  /**
   * Leaves the cluster, writes what waits for the disk, and frees everything. Idempotent; ends within seconds. Calls under way end
   * as misses.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#reporting.closing();
    const leavingClosed = this.#leaving.close();
    const pagesClosed = this.#pages.close();
    const clientsClosed = this.#clients?.close();
    await this.runtime.stop();
    await this.#promoter?.close();
    await leavingClosed;
    await pagesClosed;
    await clientsClosed;
    await this.#reporting.stop();
    this.#pool.free();
    this.#region.free();
  }

  /**
   * @internal Throws `InvariantError` unless everything that this node keeps agrees with itself. Changes nothing, takes time in proportion to
   * what it keeps, and is for tests and simulations.
   */
  verify(): void {
    this.runtime.verify();
    this.#pages.verify();
    this.#disk?.verify();
    this.#promoter?.verify();
    this.#leaving.verify();
    this.#hotReads.verify();
    this.#clients?.verify();
  }
}
