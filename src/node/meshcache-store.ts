import type { Clock } from '../base/clock.js';
import { type Environment, systemEnvironment } from '../base/environment.js';
import { ArgumentError } from '../base/errors.js';
import { FairTurns } from '../base/fair-turns.js';
import { formatEndpoint } from '../base/network.js';
import { shown } from '../base/shown.js';
import { MeshCacheConfig, type StorageConfig } from '../config.js';
import type { KeyEncoder } from '../core/index.js';
import type { DiskStore } from '../disk/disk-store.js';
import { HostRegion } from '../memory/host-region.js';
import { Metrics } from '../metrics/metrics.js';
import { PublishedPool } from '../pool/published-pool.js';
import {
  checkDistinct,
  checkHostPool,
  checkKeys,
  type HostIndices,
  type HostMemPool,
  hostPoolPages,
  pointerPages,
  withPage,
} from '../store/host-pool.js';
import { HotReads } from '../store/hot-reads.js';
import { checkTransfers, type HybridHits, hybridHits, type PoolTransfer, prefixLength } from '../store/hybrid.js';
import { type CallerPage, PageStore, type PageStoreParts } from '../store/page-store.js';
import type { Promoter } from '../store/promoter.js';
import { RemoteCopies } from '../store/remote-copies.js';
import { WantedPages } from '../store/wanted-pages.js';
import { type DiskListeners, diskTierOf, openDisk, promoterOf } from './disk-wiring.js';
import { earlierPages } from './earlier-pages.js';
import { NodeReporting } from './node-reporting.js';
import { NodeRuntime } from './node-runtime.js';
import { packageVersion } from './package-version.js';
import { RecentEvents } from './recent-events.js';
import { checkMemory, providePool } from './store-checks.js';
import { leavingOf, type StoreLeaving } from './store-leaving.js';
import { encoderOf, modelPartOf } from './store-namespace.js';
import { storeReporter } from './store-reporting.js';
import { type StoreStats, storeStats } from './store-stats.js';

/** The pool that `batchSetV1`, `batchGetV1`, `set` and `get` use. */
const MAIN_POOL = 'kv';

/** What only `create` hands to the constructor. */
const CREATED = Symbol('created');

interface HostPages {
  readonly objectKeys: readonly string[];
  readonly pages: readonly CallerPage[];
}

/**
 * One node of the cache: publishes pages in its own pool, reads those of every node.
 *
 * Pointers are addresses within live `HostRegion`s. A buffer handed to a call is in use until the
 * call's promise has resolved; nothing reads or writes it afterwards. A miss is `false`, `null` or a
 * shorter prefix, never an exception; wrong arguments throw `ArgumentError` before anything is
 * touched, any call after `close()` throws `ClosedError`.
 */
export class MeshCacheStore {
  readonly runtime: NodeRuntime;
  readonly metrics: Metrics;
  /** Makes the keys of this store as they are in the directory: for those who look there themselves. */
  readonly keyEncoder: KeyEncoder;
  readonly #pages: PageStore;
  readonly #pool: PublishedPool;
  readonly #region: HostRegion;
  readonly #disk: DiskStore | null;
  readonly #promoter: Promoter | null;
  readonly #reporting: NodeReporting;
  readonly #leaving: StoreLeaving;
  readonly #turns: FairTurns;
  readonly #hostPools = new Map<string, HostMemPool>();
  #closing: Promise<void> | undefined;

  private constructor(
    created: symbol,
    parts: {
      runtime: NodeRuntime;
      metrics: Metrics;
      pages: PageStore;
      pool: PublishedPool;
      region: HostRegion;
      keyEncoder: KeyEncoder;
      disk: DiskStore | null;
      promoter: Promoter | null;
      reporting: NodeReporting;
      leaving: StoreLeaving;
      clock: Clock;
    },
  ) {
    if (created !== CREATED)
      throw new ArgumentError('MeshCacheStore has no public constructor; use `await MeshCacheStore.create(...)`');
    this.runtime = parts.runtime;
    this.metrics = parts.metrics;
    this.#pages = parts.pages;
    this.#pool = parts.pool;
    this.#region = parts.region;
    this.keyEncoder = parts.keyEncoder;
    this.#disk = parts.disk;
    this.#promoter = parts.promoter;
    this.#reporting = parts.reporting;
    this.#leaving = parts.leaving;
    this.#turns = new FairTurns(parts.clock);
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
    checkMemory(config.globalSegmentSize);
    const keyEncoder = encoderOf(storage, part, config);
    const nodeId = config.nodeId ?? NodeRuntime.generateNodeId();
    const metrics = new Metrics(nodeId, { version: packageVersion() });
    const given = systemEnvironment({ metrics, ...environment });
    const events = new RecentEvents(given.log, given.clock);
    const env = { ...given, log: events };
    const reporting = new NodeReporting({ config, metrics, events, env });
    if (!config.verifyReads) {
      env.log.log('warn', 'verify_reads is off: only the quarantine keeps pages whole while they are read');
    }
    let region: HostRegion | undefined;
    let disk: DiskStore | null = null;
    let runtime: NodeRuntime | undefined;
    // Told of what the disk drops, from when there is somebody to tell.
    const listeners: DiskListeners = { onEvict() {} };
    try {
      await reporting.start();
      runtime = new NodeRuntime(config, { nodeId, metricsEndpoint: reporting.endpoint, env });
      region = HostRegion.allocate(config.globalSegmentSize);
      disk = await openDisk(part, config, { nodeId, env, listeners });
      await runtime.start();
      if (runtime.transport.protocol === 'rdma') await providePool(region, env);
      const store = MeshCacheStore.#assemble({
        keyEncoder,
        config,
        env,
        metrics,
        reporting,
        runtime,
        region,
        disk,
        listeners,
      });
      if (config.waitForDirectory) await runtime.waitForDirectory();
      return store;
    } catch (error) {
      await runtime?.stop();
      await disk?.close();
      region?.free();
      await reporting.stop();
      throw error;
    }
  }

  static #assemble(given: {
    keyEncoder: KeyEncoder;
    config: MeshCacheConfig;
    env: Environment;
    metrics: Metrics;
    reporting: NodeReporting;
    runtime: NodeRuntime;
    region: HostRegion;
    disk: DiskStore | null;
    listeners: DiskListeners;
  }): MeshCacheStore {
    const { keyEncoder, config, env, metrics, reporting, runtime, region, disk, listeners } = given;
    const { rkey } = runtime.transport.registerMr(region.addr, region.length);
    const pool = new PublishedPool(region.addr, region.length, rkey, {
      policy: config.evictionPolicy,
      quarantineMs: config.reuseQuarantineMs,
      neverReuseEarly: !config.verifyReads,
      clock: env.clock,
      stamps: env.random,
      onEvict: (keys) => pages.forget(keys),
    });
    const wanted = new WantedPages();
    const storeParts: PageStoreParts = {
      pool,
      disk: disk === null ? undefined : diskTierOf(disk, pool, config, env),
      promotions: runtime.promotions,
      directory: runtime.directory,
      transport: runtime.transport,
      endpointOf: (location) => runtime.dataEndpointOf(location),
      versions: runtime.versions,
      deleteEverywhere: (keys, version) => runtime.drops.deleteEverywhere(keys, version),
      isSettled: earlierPages(runtime, disk),
      keepsDuplicates: config.keepDuplicates,
      onRemoteHits(owner, keys) {
        runtime.notices.touched(owner, keys);
        if (config.promoteHotReads) hotReads.read(keys);
      },
      onRemoteFailures: (owner, keys) => runtime.notices.unreadable(owner, keys),
      onVoid: (owner, key, voidBelow) => runtime.drops.dropFrom(owner, key, voidBelow),
      identity: {
        nodeId: runtime.nodeId,
        get incarnation() {
          return runtime.incarnation;
        },
        dataEndpoint: runtime.localRdmaEndpoint,
      },
      verifyReads: config.verifyReads,
      quarantineMs: config.reuseQuarantineMs,
      clock: env.clock,
      log: env.log,
      metrics,
    };
    const pages: PageStore = new PageStore({
      ...storeParts,
      onTouched: (keys) => wanted.read(keys),
      onSet: (keys) => copies.set(keys),
      onGone: (keys) => copies.gone(keys),
    });
    listeners.onEvict = (keys) => pages.forget(keys);
    const { statements } = pages;
    const touch = (keys: readonly string[]) => pages.touch(keys);
    runtime.announceFrom(statements, { touch, restate: (keys) => statements.restate(keys) });
    const promoter = disk === null ? null : promoterOf(disk, pool, pages, env);
    if (promoter !== null) runtime.promoteFrom(promoter);
    metrics.setGaugeProvider('meshcache_members', () => runtime.members().size);
    const copies = new RemoteCopies({ ...storeParts, nodeId: runtime.nodeId, pages });
    const leaving = leavingOf({ runtime, pages, copies, wanted, disk, env });
    const hotReads = new HotReads({
      copy: (keys) => copies.copy(keys, 'hot'),
      mayCopy: () => !leaving.drain.isDraining,
      clock: env.clock,
    });
    reporting.attach(runtime, storeReporter(pool, disk, leaving.drain));
    return new MeshCacheStore(CREATED, {
      runtime,
      metrics,
      pages,
      pool,
      region,
      keyEncoder,
      disk,
      promoter,
      reporting,
      leaving,
      clock: env.clock,
    });
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

  /** The framework's main host buffer; a later one replaces it. */
  async registerMemPoolHost(pool: HostMemPool): Promise<void> {
    await this.#registerHostPool('registerMemPoolHost', pool, MAIN_POOL);
  }

  /** The host buffer of a further pool of a hybrid model, by its name (`kv` is the main one). */
  async registerMemHostPoolV2(pool: HostMemPool, name: string): Promise<void> {
    await this.#registerHostPool('registerMemHostPoolV2', pool, name);
  }

  /**
   * Publishes pages of the registered host pool, page i from `hostIndices[i * pageSize]`; true for each that is in
   * the pool and known to the directory. The buffers belong to the call until it resolves. Throws `ArgumentError`
   * before anything is touched.
   */
  async batchSetV1(keys: string[], hostIndices: HostIndices): Promise<boolean[]> {
    return this.#turns.run(async () => {
      const { objectKeys, pages } = this.#hostPages('batchSetV1', MAIN_POOL, keys, hostIndices);
      return this.#pages.set(objectKeys, pages, 'computed');
    });
  }

  /**
   * Reads pages into the registered host pool, page i to `hostIndices[i * pageSize]`; true for each whose buffer
   * holds exactly the bytes that were set, anything else is a miss. The buffers belong to the call until it resolves.
   * Throws `ArgumentError` before anything is touched.
   */
  async batchGetV1(keys: string[], hostIndices: HostIndices): Promise<boolean[]> {
    return this.#turns.run(async () => {
      const { objectKeys, pages } = this.#hostPages('batchGetV1', MAIN_POOL, keys, hostIndices);
      checkDistinct('batchGetV1', pages);
      return this.#pages.get(objectKeys, pages);
    });
  }

  /** How many of the keys exist from the first on without a gap. Not a use of them. */
  async batchExists(keys: string[]): Promise<number> {
    return this.#turns.run(async () => {
      checkKeys('batchExists', keys);
      const found = prefixLength(await this.#pages.exists(this.keyEncoder.encodeKeys(keys, MAIN_POOL)));
      this.metrics.recordLookup(keys.length, found);
      return found;
    });
  }

  /** One result list a transfer, by its name. A transfer without keys moves nothing. */
  async batchSetV2(transfers: readonly PoolTransfer[]): Promise<Record<string, boolean[]>> {
    return this.#turns.run(() =>
      this.#moveAll(this.#prepare('batchSetV2', transfers), (keys, pages) => this.#pages.set(keys, pages, 'computed')),
    );
  }

  /**
   * Reads the pages of several pools; one array a transfer, by the names of the pools, as {@link batchGetV1} gives
   * it.
   */
  async batchGetV2(transfers: readonly PoolTransfer[]): Promise<Record<string, boolean[]>> {
    return this.#turns.run(async () => {
      const prepared = this.#prepare('batchGetV2', transfers);
      checkDistinct(
        'batchGetV2',
        prepared.flatMap(({ pages }) => pages),
      );
      return this.#moveAll(prepared, (keys, pages) => this.#pages.get(keys, pages));
    });
  }

  /** The longest prefix that the KV pool and every pool of `transfers` can serve together. */
  async batchExistsV2(keys: readonly string[], transfers: readonly PoolTransfer[] = []): Promise<HybridHits> {
    return this.#turns.run(async () => {
      checkKeys('batchExistsV2', keys);
      checkTransfers('batchExistsV2', transfers);
      const extra = transfers.filter((transfer) => transfer.name !== MAIN_POOL);
      const [kv, ...others] = await Promise.all(
        [MAIN_POOL, ...extra.map((transfer) => transfer.name)].map((name) =>
          this.#pages.exists(this.keyEncoder.encodeKeys(keys, name)),
        ),
      );
      const hits = hybridHits(
        prefixLength(kv as boolean[]),
        extra.map((transfer, i) => ({
          name: transfer.name,
          present: others[i] as boolean[],
          trailingCount: transfer.hitPolicy === 'trailing_pages' ? Math.max(1, transfer.keys?.length ?? 0) : undefined,
        })),
      );
      this.metrics.recordLookup(keys.length, hits.kvHitPages);
      return hits;
    });
  }

  /** Publishes one entry from memory at `ptr`, or from `data`. */
  async set(key: string, source: bigint | Uint8Array, size?: number): Promise<boolean> {
    return this.#turns.run(async () => {
      checkKeys('set', [key]);
      const [objectKey] = this.keyEncoder.encodeKeys([key], MAIN_POOL);
      return withPage('set', source, size, async (page) => {
        const [ok] = await this.#pages.set([objectKey as string], [page], 'named');
        return ok === true;
      });
    });
  }

  get(key: string): Promise<Uint8Array | null>;
  get(key: string, into: Uint8Array): Promise<boolean>;
  get(key: string, ptr: bigint, size: number): Promise<boolean>;
  /** Reads one entry; a size other than the stored length is a miss. */
  async get(key: string, target?: bigint | Uint8Array, size?: number): Promise<Uint8Array | boolean | null> {
    return this.#turns.run(async () => {
      checkKeys('get', [key]);
      const objectKeys = this.keyEncoder.encodeKeys([key], MAIN_POOL);
      if (target === undefined) return this.#pages.getCopy(objectKeys[0] as string);
      return withPage('get', target, size, async (page) => {
        const [ok] = await this.#pages.get(objectKeys, [page]);
        return ok === true;
      });
    });
  }

  /**
   * Publishes what lies at `ptrs`, in registered or {@link HostRegion} memory, of `sizes` bytes; true as by {@link
   * batchSetV1}.
   */
  async batchSet(keys: string[], ptrs: ArrayLike<bigint>, sizes: ArrayLike<number>): Promise<boolean[]> {
    return this.#turns.run(async () => {
      checkKeys('batchSet', keys);
      const pages = pointerPages('batchSet', keys.length, ptrs, sizes);
      return this.#pages.set(this.keyEncoder.encodeKeys(keys, MAIN_POOL), pages, 'named');
    });
  }

  /** Reads to `ptrs`; true as by {@link batchGetV1}. Another size than was set is a miss. */
  async batchGet(keys: string[], ptrs: ArrayLike<bigint>, sizes: ArrayLike<number>): Promise<boolean[]> {
    return this.#turns.run(async () => {
      checkKeys('batchGet', keys);
      const pages = pointerPages('batchGet', keys.length, ptrs, sizes);
      checkDistinct('batchGet', pages);
      return this.#pages.get(this.keyEncoder.encodeKeys(keys, MAIN_POOL), pages);
    });
  }

  /** Whether the directory has the key. Not a use of it. */
  async exists(key: string): Promise<boolean> {
    return (await this.batchExists([key])) === 1;
  }

  /** Counts of now, and counters since the store was created. */
  stats(): StoreStats {
    const members = this.runtime.members().size;
    return storeStats({ pages: this.#pages, pool: this.#pool, disk: this.#disk, members });
  }

  /**
   * Away everywhere: in the pool and on the disk of every node, and in the directory. True: no node can read the entry any more, but for reads that
   * had begun before. False: a node did not answer within RPC_CALL_TIMEOUT_MS; all others have dropped the entry, and that node is
   * told again until it answers or is no member any more. Until then it may still read the entry itself, and serve it to readers that ask it
   * for a location. A key that nobody has is true.
   */
  async delete(keys: readonly string[]): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkKeys('delete', keys);
      return this.#pages.delete(this.keyEncoder.encodeKeys(keys, MAIN_POOL));
    });
  }

  /**
   * Drops what this node has, in its pool, copies included, on its disk and in the directory, and the copies that other nodes have made of
   * it where nobody else has set the page. Nothing that others have set.
   */
  async clear(): Promise<void> {
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
    await this.runtime.stop();
    await this.#promoter?.close();
    await leavingClosed;
    await pagesClosed;
    await this.#reporting.stop();
    this.#pool.free();
    this.#region.free();
  }

  #registerHostPool(method: string, pool: HostMemPool, name: string): Promise<void> {
    return this.#turns.run(() => {
      if (typeof name !== 'string' || name === '') {
        throw new ArgumentError(`${method}: name must be text that is not empty, got ${shown(name)}`);
      }
      checkHostPool(method, pool);
      this.#hostPools.set(name, pool);
    });
  }

  /** Object keys and pages of a call on a host pool; everything wrong with its arguments is thrown here. */
  #hostPages(method: string, name: string, keys: readonly string[], hostIndices: HostIndices): HostPages {
    checkKeys(method, keys);
    const pages = hostPoolPages(method, this.#hostPools.get(name), keys.length, hostIndices);
    return { objectKeys: this.keyEncoder.encodeKeys(keys, name), pages };
  }

  #prepare(method: string, transfers: readonly PoolTransfer[]): (HostPages & { readonly name: string })[] {
    checkTransfers(method, transfers);
    return transfers.map(({ name, keys, hostIndices }) => ({
      name,
      ...(keys ? this.#hostPages(method, name, keys, hostIndices ?? []) : { objectKeys: [], pages: [] }),
    }));
  }

  async #moveAll(
    prepared: readonly (HostPages & { readonly name: string })[],
    move: (objectKeys: readonly string[], pages: readonly CallerPage[]) => Promise<boolean[]>,
  ): Promise<Record<string, boolean[]>> {
    const moved = prepared.map(async ({ name, objectKeys, pages }) => [name, await move(objectKeys, pages)] as const);
    return Object.fromEntries(await Promise.all(moved));
  }
}
