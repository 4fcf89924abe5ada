import type { Environment } from '../base/environment/environment.js';
import { formatEndpoint } from '../base/environment/network.js';
import { ArgumentError } from '../base/errors.js';
import { formatSize } from '../base/sizes.js';
import type { ClientInfo } from '../clients/client-server.js';
import type { StorageConfig } from '../config.js';
import type { KeyEncoder, KeyNamespace } from '../core/index.js';
import type { Metrics } from '../metrics/metrics.js';
import { checkBasicOptions, checkOptions, NO_OPTIONS, type WaitOptions } from '../store/call/call-options.js';
import type { FollowOptions, PageEvent } from '../store/events/page-events.js';
import { type PageCare, StoredPages } from '../store/namespace/namespace-pages.js';
import { NodeNamespace, wholeNamespace } from '../store/namespace/node-namespace.js';
import type { DataLocation } from '../types.js';
import { closeNode, type Node, openNode, statsOf } from './node.js';
import type { StoreStats } from './reporting/store-stats.js';
import type { NodeRuntime } from './runtime/node-runtime.js';
import { type MeshCacheStoreOptions, namedAsGiven, storageConfigOf } from './store-options.js';

const FOLLOW_OPTIONS: ReadonlySet<string> = new Set(['after', 'signal']);

/** Token that only `create` passes to the constructor. */
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
  /** Turns this store's keys into directory keys, for programs that query the directory themselves. */
  readonly keyEncoder: KeyEncoder;
  readonly #node: Node;
  /** What this program asks for pages that it does not read yet. */
  readonly #care: PageCare;
  #closing: Promise<void> | undefined;

  private constructor(created: symbol, node: Node) {
    if (created !== CREATED)
      throw new ArgumentError('MeshCacheStore has no public constructor; use `await MeshCacheStore.create(...)`');
    const { pages, pinning, prefetching, sessions, keyEncoders, turns, metrics, runtime } = node;
    const own = prefetching.client({ one: 'this program', group: 'this program' });
    const care = { pins: pinning.client(), pinning, prefetching: own, sessions };
    super(new StoredPages(pages, keyEncoders.own, care), turns, (asked, found) => metrics.recordLookup(asked, found));
    this.keyEncoder = keyEncoders.own;
    this.runtime = runtime;
    this.#node = node;
    this.#care = care;
  }

  static create(options: MeshCacheStoreOptions, environment?: Partial<Environment>): Promise<MeshCacheStore>;
  static create(storage: StorageConfig, environment?: Partial<Environment>): Promise<MeshCacheStore>;
  /**
   * Starts a node and joins the cluster. If no discovery master answers yet, the node works alone, logs that, and joins
   * when a master appears. Over RDMA, `create` also waits until the system has provided the pool's memory; with
   * `wait_for_directory`, until the other nodes have announced their pages to this one, for half a minute at most.
   * Throws `ConfigError`, also if a discovery master refuses the node because of settings that must be equal on all
   * nodes, and `DiskError` if the disk tier cannot be opened.
   */
  static async create(
    options: MeshCacheStoreOptions | StorageConfig,
    environment: Partial<Environment> = {},
  ): Promise<MeshCacheStore> {
    const storage = storageConfigOf(options);
    return namedAsGiven(storage, async () => new MeshCacheStore(CREATED, await openNode(storage, environment)));
  }

  /**
   * The metrics of this node. They include the event loop from the first use of this property, or while the metrics
   * server runs.
   */
  get metrics(): Metrics {
    this.#node.metrics.observe();
    return this.#node.metrics;
  }

  /** Resolves when an operator has drained this node: it has left the cluster, and the program should close it. */
  get drained(): Promise<void> {
    return this.#node.leaving.drain.drained;
  }

  /** `host:port` of this node's metrics server; empty without one. */
  get metricsEndpoint(): string {
    const { endpoint } = this.#node.reporting;
    return endpoint === undefined ? '' : formatEndpoint(endpoint);
  }

  /**
   * Returns another namespace of this node. Missing parts have the same defaults as in a configuration: a store created
   * with these settings shares its pages. Throws `ArgumentError` for an invalid namespace.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * const weights = store.namespace({ modelName: 'llama-3-8b', tag: 'weights-2' });
   * await weights.set('layer-0', new Float32Array(4096));
   */
  namespace(namespace: Partial<KeyNamespace>): NodeNamespace {
    const { pages, keyEncoders, metrics, turns } = this.#node;
    const stored = new StoredPages(pages, keyEncoders.of(wholeNamespace(namespace)), this.#care);
    return new NodeNamespace(stored, turns, (asked, found) => metrics.recordLookup(asked, found));
  }

  /** Path of the socket to which processes of this host attach; empty without one. */
  get clientSocket(): string {
    return this.#node.doors.clients?.path ?? '';
  }

  /** Where Redis clients reach this node: `host:port`, or the path of a Unix socket; empty without either. */
  get respEndpoint(): string {
    return this.#node.doors.resp?.endpoint || this.#node.doors.resp?.path || '';
  }

  /** The attached processes. */
  clients(): ClientInfo[] {
    return this.#node.doors.clients?.clients() ?? [];
  }

  /**
   * @internal All pages that this node has now, in its pool or on its disk, as announced to the directory. For
   * simulations.
   */
  *holdings(): Generator<readonly [objectKey: string, location: DataLocation], void> {
    const { statements } = this.#node.pages;
    for (const keys of statements.keysInSlices()) {
      const locations = statements.locationsOf(keys);
      for (let i = 0; i < keys.length; i++) {
        const location = locations[i] ?? null;
        if (location !== null) yield [keys[i] as string, location];
      }
    }
  }

  /** @internal Where this node has each of the pages; null: it has not. For simulations. */
  tiersOf(keys: readonly string[]): (DataLocation['tier'] | null)[] {
    const locations = this.#node.pages.statements.locationsOf(this.keyEncoder.encodeKeys(keys));
    return locations.map((location) => location?.tier ?? null);
  }

  /**
   * Streams the changes of this node's pages: first a list of all pages, or the changes after the position `after`,
   * then each change. Routers use it to keep a list of pages; the metrics server streams the same at `/api/events`.
   * Ends when the signal is aborted or the store closes.
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
    checkBasicOptions('pageEvents', options, FOLLOW_OPTIONS);
    return this.#node.events.follow(options);
  }

  /** Current sizes, and counters since the store was created. */
  stats(): StoreStats {
    return statsOf(this.#node);
  }

  /**
   * Drops all pages of this node, in all namespaces: in its pool, on its disk and in the directory, and the copies that
   * other nodes have made of them unless another node has set the page. Pages that other nodes have set stay.
   */
  override async clear(options: WaitOptions = NO_OPTIONS): Promise<void> {
    return this.#node.turns.run(() => {
      checkOptions('clear', options);
      return this.#node.pages.clear(undefined, options);
    });
  }

  /**
   * Leaves the cluster, writes the pages that wait for the disk, and frees everything. Takes a few seconds at most.
   * Calls in progress end as misses. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= closeNode(this.#node);
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

  /** Closes the store; enables `await using store = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * @internal Throws `InvariantError` unless all of this node's structures are consistent. Read-only; takes time in
   * proportion to their size. For tests and simulations.
   */
  verify(): void {
    const { runtime, pages, events, disk, promoter, leaving, hotReads, pins, pinning, prefetching, sessions, doors } =
      this.#node;
    const { clients, resp } = doors;
    const ofPages = [pages, events, disk, promoter, leaving, hotReads, pins, pinning, prefetching, sessions];
    for (const part of [runtime, ...ofPages, clients, resp]) part?.verify();
  }
}
