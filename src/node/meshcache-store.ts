import { join } from 'node:path';
import { FairTurns } from '../base/concurrency/fair-turns.js';
import type { Environment } from '../base/environment/environment.js';
import type { Host } from '../base/environment/host.js';
import { formatEndpoint } from '../base/environment/network.js';
import { ArgumentError, ConfigError } from '../base/errors.js';
import { checkNames } from '../base/settings/known-names.js';
import { Signal } from '../base/signal.js';
import { formatSize } from '../base/sizes.js';
import type { ClientInfo } from '../clients/client-server.js';
import { MeshCacheConfig, type StorageConfig } from '../config.js';
import type { KeyEncoder, KeyNamespace } from '../core/index.js';
import type { DiskStore } from '../disk/disk-store.js';
import { HostRegion } from '../memory/host-region.js';
import type { PageEventSource } from '../metrics/event-stream.js';
import { Metrics } from '../metrics/metrics.js';
import { Users } from '../net/users/users.js';
import { readUsersFile } from '../net/users/users-file.js';
import { NamespaceTenants } from '../pool/tenants/namespace-tenants.js';
import { checkOptions, NO_OPTIONS, type WaitOptions } from '../store/call/call-options.js';
import type { FollowOptions, PageEvent } from '../store/events/page-events.js';
import { KeyPolicies } from '../store/holding/key-policies.js';
import type { ClientPins } from '../store/holding/pinning.js';
import { StoredPages } from '../store/namespace/namespace-pages.js';
import { NodeNamespace } from '../store/namespace/node-namespace.js';
import { wholeNamespace } from '../store/namespace/whole-namespace.js';
import { systemEnvironment } from '../system/system-environment.js';
import type { DataLocation } from '../types.js';
import { AuditLog } from './audit/audit-log.js';
import { openDisk } from './disk-wiring.js';
import { type DoorParts, type Doors, openDoors } from './doors.js';
import { fingerprintOf } from './fingerprints.js';
import { KeyEncoders } from './key-encoders.js';
import { type ModelPart, modelPartOf, namespaceOf } from './key-namespace.js';
import { objectStoreOf } from './object-wiring.js';
import { NodeReporting } from './reporting/node-reporting.js';
import { packageVersion } from './reporting/package-version.js';
import { RecentEvents } from './reporting/recent-events.js';
import { storeReporter } from './reporting/store-reporting.js';
import { type StoreStats, storeStats } from './reporting/store-stats.js';
import { NodeRuntime } from './runtime/node-runtime.js';
import { type MeshCacheStoreOptions, namedAsGiven, storageConfigOf } from './store-options.js';
import { assembleStore, closeStore, type StoreParts, storePartOf } from './store-parts.js';
import { KeptPool, type KeptPoolOptions } from './warm/kept-pool.js';

const FOLLOW_OPTIONS: ReadonlySet<string> = new Set(['after', 'signal']);

/** The proof that the constructor is called by `create`. */
const CREATED = Symbol('created');

/**
 * One node of the cache: it publishes pages in its own pool, and reads the pages of every node. Its own methods use the
 * namespace of its configuration; {@link namespace} gives access to others.
 *
 * @example
 * import { MeshCacheStore } from 'meshcache';
 *
 * await using store = await MeshCacheStore.create({
 *   discoveryAddr: '10.0.0.1:31990',
 *   protocol: 'tcp',
 *   globalSegmentSize: '4gb',
 *   modelName: 'llama-3-8b',
 * });
 * await store.set('greeting', new TextEncoder().encode('hello'));
 * const greeting = await store.get('greeting', { timeoutMs: 500 }); // null: not there, or not in time
 */
export class MeshCacheStore extends NodeNamespace {
  readonly runtime: NodeRuntime;
  /** Turns this store's keys into the keys of the directory, for programs that look there themselves. */
  readonly keyEncoder: KeyEncoder;
  readonly #metrics: Metrics;
  readonly #parts: StoreParts;
  readonly #reporting: NodeReporting;
  readonly #turns: FairTurns;
  readonly #keyEncoders: KeyEncoders;
  /** The pins of this program. */
  readonly #ownPins: ClientPins;
  readonly #doors: Doors;
  readonly #audit: AuditLog | undefined;
  #closing: Promise<void> | undefined;

  private constructor(
    created: symbol,
    given: {
      parts: StoreParts;
      metrics: Metrics;
      keyEncoders: KeyEncoders;
      reporting: NodeReporting;
      doors: Doors;
      turns: FairTurns;
      audit: AuditLog | undefined;
    },
  ) {
    if (created !== CREATED)
      throw new ArgumentError('MeshCacheStore has no public constructor; use `await MeshCacheStore.create(...)`');
    const { parts, keyEncoders, turns, metrics } = given;
    const ownPins = parts.pinning.client();
    super({
      namespacePages: new StoredPages(parts.pages, keyEncoders.own, ownPins),
      turns,
      onLookup: (asked, found) => metrics.recordLookup(asked, found),
    });
    this.keyEncoder = keyEncoders.own;
    this.runtime = parts.runtime;
    this.#metrics = metrics;
    this.#parts = parts;
    this.#reporting = given.reporting;
    this.#turns = turns;
    this.#keyEncoders = keyEncoders;
    this.#ownPins = ownPins;
    this.#doors = given.doors;
    this.#audit = given.audit;
  }

  static create(options: MeshCacheStoreOptions, environment?: Partial<Environment>): Promise<MeshCacheStore>;
  static create(storage: StorageConfig, environment?: Partial<Environment>): Promise<MeshCacheStore>;
  /**
   * Starts a node and joins the cluster. If no discovery master answers yet, the node works alone, logs that, and joins
   * when a master appears. Over RDMA, `create` also waits until the system has provided the pool's memory; with
   * `wait_for_directory`, until the other nodes have announced their pages to this one, for half a minute at most.
   * Throws `ConfigError`, also when a discovery master refuses the node because of settings that must be equal on all
   * nodes, and `DiskError` when the disk tier cannot be opened.
   */
  static async create(
    options: MeshCacheStoreOptions | StorageConfig,
    environment: Partial<Environment> = {},
  ): Promise<MeshCacheStore> {
    const storage = storageConfigOf(options);
    return namedAsGiven(storage, () => MeshCacheStore.#start(storage, environment));
  }

  static async #start(storage: StorageConfig, environment: Partial<Environment>): Promise<MeshCacheStore> {
    const config = MeshCacheConfig.fromExtraConfig(storage.extraConfig ?? {});
    const part = modelPartOf(storage);
    const machine = systemEnvironment(environment);
    checkMemory(config.globalSegmentSize, machine.host);
    const nodeId = config.nodeId ?? NodeRuntime.generateNodeId(machine.random);
    const metrics = new Metrics(nodeId, { version: packageVersion(), clock: machine.clock, host: machine.host });
    const recent = new RecentEvents(machine.log, machine.clock);
    const unaudited = { ...machine, metrics: environment.metrics ?? metrics, log: recent };
    const own = namespaceOf(storage, part, config);
    const { tenants, policies, keyEncoders, fingerprint, users } = keySpaceOf(own, config, unaudited);
    const { audit, env } = await auditedEnvironment(config, nodeId, unaudited);
    const reporting = new NodeReporting({ config, metrics, events: recent, users, env });
    warnOfUncheckedReads(config, env);
    let kept: KeptPool | undefined;
    let region: HostRegion | undefined;
    let disk: DiskStore | null = null;
    let objectStore: Awaited<ReturnType<typeof objectStoreOf>>;
    let runtime: NodeRuntime | undefined;
    let parts: StoreParts | undefined;
    let doors: Doors | undefined;
    const evicted = new Signal<[keys: readonly string[]]>();
    try {
      await reporting.start();
      runtime = new NodeRuntime(config, { nodeId, metricsEndpoint: reporting.endpoint, fingerprint, users, env });
      if (config.poolPath !== undefined) kept = await openKeptPool(part, config, { nodeId, tenants, env });
      region = kept?.region ?? HostRegion.allocateFrom(env.host, config.globalSegmentSize);
      disk = await openDisk(part, config, { nodeId, tenants, onEvict: evicted.tell, runtime, env });
      objectStore = await objectStoreOf(config, nodeId, env);
      await runtime.open();
      if (disk !== null) await kept?.compareWith(disk);
      if (runtime.transport.protocol === 'rdma') await providePool(region, env);
      const ground = { config, env, metrics, runtime, region, disk, kept, objectStore, tenants, policies, evicted };
      const made = assembleStore(ground);
      parts = made;
      await runtime.join(storePartOf(made, reporting));
      made.settling.start((keys) => made.pages.statements.confirm(keys));
      doors = await openDoors(config, doorParts(made, { keyEncoders, users, turns: reporting.turns, env }));
      reporting.running(
        runtime,
        storeReporter({ ...made, ...doors, config, tenants, events: eventSource(made, keyEncoders) }),
      );
      if (config.waitForDirectory) await runtime.waitForDirectory();
      const turns = new FairTurns(env.clock);
      return new MeshCacheStore(CREATED, { parts: made, metrics, keyEncoders, reporting, doors, turns, audit });
    } catch (error) {
      if (parts !== undefined) {
        await closeStore(parts, { reporting, doors, audit });
      } else {
        await runtime?.stop();
        objectStore?.close();
        await disk?.close();
        await (kept?.close() ?? region?.free());
        await reporting.stop();
        await audit?.close();
      }
      throw error;
    }
  }

  /**
   * The metrics of this node. They include the event loop from the first use of this property on, or while the metrics
   * server runs.
   */
  get metrics(): Metrics {
    this.#metrics.observe();
    return this.#metrics;
  }

  /**
   * Resolves when an operator has drained this node: the node has left the cluster, and the program should close it.
   */
  get drained(): Promise<void> {
    return this.#parts.leaving.drain.drained;
  }

  /** `host:port` of this node's metrics server; empty without one. */
  get metricsEndpoint(): string {
    const { endpoint } = this.#reporting;
    return endpoint === undefined ? '' : formatEndpoint(endpoint);
  }

  /**
   * Another namespace of this node. What is left out is as in a configuration without it: a store that was created with
   * these settings shares its pages. Throws `ArgumentError` for an invalid namespace.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * const weights = store.namespace({ modelName: 'llama-3-8b', tag: 'weights-2' });
   * await weights.set('layer-0', new Float32Array(4096));
   */
  namespace(namespace: Partial<KeyNamespace>): NodeNamespace {
    const pages = new StoredPages(this.#parts.pages, this.#keyEncoders.of(wholeNamespace(namespace)), this.#ownPins);
    const metrics = this.#metrics;
    return new NodeNamespace({
      namespacePages: pages,
      turns: this.#turns,
      onLookup: (asked, found) => metrics.recordLookup(asked, found),
    });
  }

  /** Path of the socket at which processes of this host attach; empty without one. */
  get clientSocket(): string {
    return this.#doors.clients?.path ?? '';
  }

  /** Where Redis clients find this node: `host:port`, or the path of a Unix socket; empty without either. */
  get respEndpoint(): string {
    return this.#doors.resp?.endpoint || this.#doors.resp?.path || '';
  }

  /** The attached processes. */
  clients(): ClientInfo[] {
    return this.#doors.clients?.clients() ?? [];
  }

  /**
   * @internal All pages that this node has now, in its pool or on its disk, as it announces them to the directory. For
   * simulations.
   */
  *holdings(): Generator<readonly [objectKey: string, location: DataLocation], void> {
    const { statements } = this.#parts.pages;
    for (const keys of statements.keysInSlices()) {
      const locations = statements.locationsOf(keys);
      for (let i = 0; i < keys.length; i++) {
        const location = locations[i] ?? null;
        if (location !== null) yield [keys[i] as string, location];
      }
    }
  }

  /**
   * What becomes of the pages of this node: a list of them, then each change, or what follows the position `after`.
   * Routers keep a list of pages by it; the metrics server streams the same at `/api/events`. Ends when the signal is
   * aborted or the store closes.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * for await (const event of store.pageEvents({ signal: AbortSignal.timeout(60_000) })) {
   *   if (event.kind === 'changed') for (const { key, tier } of event.changes) console.log(key, tier ?? 'gone');
   * }
   */
  pageEvents(options: FollowOptions = {}): AsyncGenerator<PageEvent, void> {
    checkNames('pageEvents', options, FOLLOW_OPTIONS);
    return this.#parts.events.follow(options);
  }

  /** Current sizes, and counters since the store was created. */
  stats(): StoreStats {
    return statsOf(this.#parts);
  }

  /**
   * Drops all pages of this node, of all namespaces: in its pool, on its disk and in the directory, and the copies that
   * other nodes have made of them where no other node has set the page. Pages that other nodes have set stay.
   */
  override async clear(options: WaitOptions = NO_OPTIONS): Promise<void> {
    return this.#turns.run(() => {
      checkOptions('clear', options);
      return this.#parts.pages.clear(undefined, options);
    });
  }

  /**
   * Leaves the cluster, writes the pages that wait for the disk, and frees everything. Idempotent; takes seconds at
   * most. Calls in progress end as misses.
   */
  close(): Promise<void> {
    const around = { reporting: this.#reporting, doors: this.#doors, audit: this.#audit };
    this.#closing ??= closeStore(this.#parts, around);
    return this.#closing;
  }

  /** A short form for logs. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const { members, poolEntries, poolUsedBytes, poolCapacityBytes } = this.stats();
    const state = this.#closing === undefined ? `members: ${members}` : 'closed';
    const used = `pages: ${poolEntries}, ${formatSize(poolUsedBytes)} of ${formatSize(poolCapacityBytes)}`;
    return `MeshCacheStore { ${this.runtime.nodeId}, ${state}, ${used} }`;
  }

  /** A short form for logs that write objects as JSON. */
  toJSON(): object {
    const { members, poolEntries, poolUsedBytes, poolCapacityBytes } = this.stats();
    const isClosed = this.#closing !== undefined;
    return { nodeId: this.runtime.nodeId, isClosed, members, poolEntries, poolUsedBytes, poolCapacityBytes };
  }

  /** Closes the store: `await using store = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * @internal Throws `InvariantError` unless all of this node's structures are consistent. Changes nothing, takes time
   * in proportion to their size, and is for tests and simulations.
   */
  verify(): void {
    const { runtime, pages, events, disk, promoter, leaving, hotReads, pins } = this.#parts;
    const { clients, resp } = this.#doors;
    for (const part of [runtime, pages, events, disk, promoter, leaving, hotReads, pins, clients, resp]) part?.verify();
  }
}

/**
 * What a node knows of namespaces: whose pages are which share of its tiers, where they are kept, how their keys are
 * encoded, and which users may reach them.
 */
function keySpaceOf(own: KeyNamespace, config: MeshCacheConfig, env: Environment) {
  const { namespaceQuotas: quotas, namespaceWritePolicies } = config;
  const tenants = new NamespaceTenants({ quotas, otherTags: Object.keys(namespaceWritePolicies), env });
  const policies = new KeyPolicies(config, (key) => tenants.tagOf(key));
  const keyEncoders = new KeyEncoders(own, (prefix, { tag }) => tenants.use(prefix, tag));
  const fingerprint = fingerprintOf(keyEncoders.own.namespace);
  return { tenants, policies, keyEncoders, fingerprint, users: usersOf(config, env) };
}

/**
 * The environment of a node with its audit log, if one is configured. Throws `ConfigError` for a file that cannot be
 * used.
 */
async function auditedEnvironment({ auditLogPath: path }: MeshCacheConfig, nodeId: string, env: Environment) {
  env.metrics.setGaugeProvider('meshcache_audit_failing', () => 0);
  const audit = path === undefined ? undefined : await AuditLog.open({ path, nodeId, env });
  return { audit, env: { ...env, audit: env.audit ?? audit } };
}

function doorParts(parts: StoreParts, given: Pick<DoorParts, 'keyEncoders' | 'users' | 'turns' | 'env'>): DoorParts {
  const { pages, runtime, pinning, events } = parts;
  const { nodeId, directory, versions } = runtime;
  const follow = (options: FollowOptions) => events.follow(options);
  return { nodeId, directory, versions, pages, pinning, follow, stats: () => statsOf(parts), ...given };
}

/** The users of the node. Throws `ConfigError` for a file that cannot be used. */
function usersOf({ usersFile }: MeshCacheConfig, { files }: Environment): Users {
  return usersFile === undefined ? new Users() : new Users(readUsersFile(usersFile, files));
}

function warnOfUncheckedReads({ verifyReads }: MeshCacheConfig, { log }: Environment): void {
  if (verifyReads) return;
  log.log(
    'warn',
    'verify_reads is off: a page that is overwritten while it is read is not noticed; only the quarantine protects it',
  );
}

function eventSource({ runtime, events }: StoreParts, keyEncoders: KeyEncoders): PageEventSource {
  return {
    nodeId: runtime.nodeId,
    follow: (options) => events.follow(options),
    describe: (namespace) => keyEncoders.describe(namespace),
  };
}

function statsOf({ runtime, pages, pool, disk, pins, placing: { placements } }: StoreParts): StoreStats {
  return storeStats({ pages, pool, disk, pins, placements, members: runtime.members().size });
}

/** Opens the folder of `pool_path`; of several ranks, each has a folder of its own below it. Throws `ConfigError`. */
function openKeptPool(
  { tpRank, tpSize, ppRank, ppSize }: ModelPart,
  config: MeshCacheConfig,
  options: Pick<KeptPoolOptions, 'nodeId' | 'tenants' | 'env'>,
): Promise<KeptPool> {
  const isAlone = tpSize === 1 && ppSize === 1;
  const path = join(config.poolPath as string, isAlone ? '' : `tp${tpRank}-pp${ppRank}`);
  const { globalSegmentSize: capacityBytes, verifyReads } = config;
  return KeptPool.open({ path, capacityBytes, verifyReads, ...options });
}

/**
 * Pre-allocates the pool's memory on the addon's threads. An RDMA device locks the memory that is registered with it;
 * without this, the system would provide all of it on this thread then.
 */
async function providePool(region: HostRegion, { log }: Environment): Promise<void> {
  await region.prefault().catch((error: Error) => {
    log.log('warn', 'cannot pre-allocate the pool', { error: error.message });
  });
}

/** Throws `ConfigError` for a pool that is larger than the memory of this machine or container. */
function checkMemory(poolBytes: number, { memoryBytes }: Host): void {
  if (poolBytes <= memoryBytes) return;
  throw new ConfigError(
    `configuration key "global_segment_size": got ${formatSize(poolBytes)}, allowed is at most the memory of this machine or container, ${formatSize(memoryBytes)}`,
  );
}
