import type { Environment } from '../base/environment/environment.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { Signal } from '../base/signal.js';
import type { MeshCacheConfig } from '../config.js';
import { digestOfStart } from '../directory/shard/node-starts.js';
import type { DiskStore } from '../disk/disk-store.js';
import type { HostRegion } from '../memory/host-region.js';
import type { Metrics } from '../metrics/metrics.js';
import { DISTANCES } from '../net/distance.js';
import { type CopyThreads, copyThreadsOf } from '../pool/copy-threads.js';
import { PublishedPool } from '../pool/published-pool.js';
import type { NamespaceTenants } from '../pool/tenants/namespace-tenants.js';
import { PageLimits } from '../pool/tenants/page-limits.js';
import { reportTenants } from '../pool/tenants/tenant-metrics.js';
import { PageEvents } from '../store/events/page-events.js';
import { HeldPages } from '../store/holding/held-pages.js';
import { HotReads } from '../store/holding/hot-reads.js';
import type { KeyPolicies } from '../store/holding/key-policies.js';
import { Pinning } from '../store/holding/pinning.js';
import type { Promoter } from '../store/holding/promoter.js';
import { WantedPages } from '../store/holding/wanted-pages.js';
import { type ObjectStoreParts, PageStore, type PageStoreParts } from '../store/page-store.js';
import { PagePins } from '../store/pins/page-pins.js';
import type { AuditLog } from './audit/audit-log.js';
import { diskTierOf, promoterOf } from './disk-wiring.js';
import { closeDoors, type Doors } from './doors.js';
import { type PlacingNode, placingOf, type StorePlacing } from './holding/store-placing.js';
import { type LeavingNode, leavingOf, type StoreLeaving } from './leaving/store-leaving.js';
import { objectPartsOf } from './object-wiring.js';
import type { ReportedRead } from './remote-pages/read-reports.js';
import type { NodeReporting } from './reporting/node-reporting.js';
import type { NodeRuntime, StorePart } from './runtime/node-runtime.js';
import type { KeptPool } from './warm/kept-pool.js';
import { Settling } from './warm/settling.js';

/** The ingredients of a store's parts. The runtime is open, and not a member of the cluster yet. */
export interface StoreGround {
  readonly config: MeshCacheConfig;
  readonly env: Environment;
  readonly metrics: Metrics;
  readonly runtime: NodeRuntime;
  /** The memory of the pool. */
  readonly region: HostRegion;
  readonly disk: DiskStore | null;
  /** The memory of the pool with the pages of before, if it outlives the process. */
  readonly kept: KeptPool | undefined;
  readonly objectStore: ObjectStoreParts['store'] | undefined;
  readonly tenants: NamespaceTenants;
  readonly policies: KeyPolicies;
  /** The keys of pages that the disk, the disk tier or the pool has dropped by itself. */
  readonly evicted: Signal<[keys: readonly string[]]>;
}

/** A node's runtime, memory and disk, and the parts of its store that are made from them. */
export interface StoreParts extends Pick<StoreGround, 'runtime' | 'region' | 'disk' | 'kept'> {
  readonly pool: PublishedPool;
  readonly pages: PageStore;
  readonly events: PageEvents;
  readonly promoter: Promoter | null;
  readonly held: HeldPages;
  readonly leaving: StoreLeaving;
  readonly placing: StorePlacing;
  readonly hotReads: HotReads;
  readonly settling: Settling;
  readonly pins: PagePins;
  readonly pinning: Pinning;
}

/**
 * Makes the parts of a store, each from parts made before it. A signal carries what a part reports to a part that is
 * made later.
 */
export function assembleStore(ground: StoreGround): StoreParts {
  const { config, env, metrics, runtime, region, disk, kept, policies, evicted } = ground;
  const set = new Signal<[keys: readonly string[]]>();
  const gone = new Signal<[keys: readonly string[]]>();
  const changed = new Signal<[keys: readonly string[]]>();
  const remoteHits = new Signal<[keys: readonly string[]]>();
  const stated = new Signal<[keys: readonly string[]]>();
  const copyThreads = copyThreadsOf(env.threads);
  const pool = publishedPoolOf(ground, copyThreads);
  const newestInPool = kept?.newestVersion ?? 0;
  kept?.restore(pool);
  const pins = pagePinsOf(ground, pool);
  const isPinned = (key: string) => pins.has(key);
  const wanted = new WantedPages();
  const settling = settlingOf(ground, { pool, newestInPool });
  runtime.onAway(() => settling.wasAway());
  runtime.onMet((nodeIds, isEarlier) => settling.met(nodeIds, isEarlier));
  const storeParts = pageStoreParts(ground, { pool, settling, remoteHits });
  const onTouched = (keys: readonly string[]) => wanted.read(keys);
  const placingNode = placingNodeOf(ground);
  const pages = new PageStore({
    ...storeParts,
    objectStore: ground.objectStore && objectPartsOf(ground.objectStore, { config, copyThreads, settling }),
    onTouched,
    isPinned,
    onSet: set.tell,
    ...(policies.placesAny ? { onStated: stated.tell } : {}),
    onCleared: (voidBelow, prefixes) => runtime.clears.clear(voidBelow, prefixes),
    onGone: gone.tell,
    onChanged: changed.tell,
  });
  runtime.onBegunAgain(() => pages.statements.dropAhead());
  const events = new PageEvents(pages.statements, env);
  changed.listen((keys) => events.note(keys));
  evicted.listen((keys) => pages.forget(keys));
  const promoter = disk === null ? null : promoterOf(disk, { pool, statements: pages.statements, pins }, env);
  const { nodeId } = runtime;
  const held = new HeldPages({ ...storeParts, nodeId, role: config.role, pages, pins, promoter, wanted, copyThreads });
  set.listen((keys) => held.set(keys));
  gone.listen((keys) => held.gone(keys));
  const { statements } = pages;
  const placing = placingOf({ node: placingNode, pool, policies, statements, hasDisk: disk !== null, env });
  stated.listen((keys) => placing.placements?.set(keys));
  gone.listen((keys) => placing.placements?.gone(keys));
  const leaving = leavingOf({ node: leavingNodeOf(ground), pages, held, wanted, disk, placing, env });
  const hotReads = new HotReads(held, env.clock);
  if (config.promoteHotReads) remoteHits.listen((keys) => hotReads.read(keys));
  const pinning = new Pinning({ pins, held, maxMs: config.pinMaxS * 1000, clock: env.clock });
  metrics.setGaugeProvider('meshcache_members', () => runtime.members().size);
  const made = { runtime, region, disk, kept, pool, pages, events, promoter, held };
  return { ...made, leaving, placing, hotReads, settling, pins, pinning };
}

function settlingOf(
  { config, env, runtime, disk, kept, objectStore }: StoreGround,
  { pool, newestInPool }: { readonly pool: PublishedPool; readonly newestInPool: number },
): Settling {
  const inPool = kept === undefined ? [] : [kept.startNote];
  const onDisk = disk === null ? [] : [disk.startNote];
  return new Settling({
    disk,
    pool,
    newestInPool,
    notes: [...inPool, ...onDisk],
    former: [...(pool.size > 0 ? inPool : []), ...((disk?.info().entries ?? 0) > 0 ? onDisk : [])],
    directory: runtime.directory,
    versions: runtime.versions,
    needsOthers: objectStore !== undefined,
    waitForDirectory: () => runtime.waitForDirectory(),
    membersCount: () => runtime.members().size,
    isAnnounced: () => runtime.drops.isAnnounced,
    current: () => digestOfStart(runtime.nodeId, runtime.incarnation),
    quietMs: 2 * 1000 * (config.heartbeatInterval + config.memberTtl),
    clock: env.clock,
  });
}

function leavingNodeOf({ config, runtime }: StoreGround): LeavingNode {
  return {
    nodeId: runtime.nodeId,
    heartbeatInterval: config.heartbeatInterval,
    holders: runtime.holders,
    memberIds: () => runtime.members().keys(),
    storageNodes: () => runtime.storageNodes(),
    leave: () => runtime.leave(),
  };
}

function placingNodeOf({ runtime }: StoreGround): PlacingNode {
  return {
    holders: runtime.holders,
    storageNodes: () => runtime.storageNodes(),
    onMembersChanged: (listener) => runtime.onMembersChanged(listener),
  };
}

function pagePinsOf({ config, env, region, tenants, metrics }: StoreGround, pool: PublishedPool): PagePins {
  const segmentBytes = Math.min(pool.capacity, region.segmentBytes);
  const { pinMaxShare: maxShare } = config;
  const quotas = tenants.of('pool', pool.capacity);
  return new PagePins({ pool, segmentBytes, maxShare, tenants: quotas, clock: env.clock, metrics });
}

/** Makes the pool in the region, which peers can read from now on. */
function publishedPoolOf(
  { config, env, runtime, region, disk, kept, tenants, evicted }: StoreGround,
  copyThreads: CopyThreads,
): PublishedPool {
  const { rkey } = runtime.transport.registerMr(region.addr, region.length);
  const pool = new PublishedPool(region.addr, region.length, rkey, {
    policy: config.evictionPolicy,
    tenants,
    quarantineMs: config.reuseQuarantineMs,
    neverReuseEarly: !config.verifyReads,
    // With a disk, the head of a request is there when the pool has its end.
    keepsHeads: disk === null,
    clock: env.clock,
    present: () => runtime.versions.now(),
    stamps: env.random,
    records: kept?.records,
    keepsCopies: config.role === 'storage',
    copyThreads,
    onEvict: evicted.tell,
  });
  reportTenants('pool', tenants.names, () => pool.tenantStats(), env.metrics);
  return pool;
}

/** The ingredients that the page store and the copies of other nodes' pages have in common. */
function pageStoreParts(
  { config, env, metrics, runtime, disk, tenants, evicted }: StoreGround,
  made: {
    readonly pool: PublishedPool;
    readonly settling: Settling;
    /** Tells of keys of pages that were read from other nodes. */
    readonly remoteHits: Signal<[keys: readonly string[]]>;
  },
): PageStoreParts {
  const { pool, settling, remoteHits } = made;
  const limits = new PageLimits(pool, tenants);
  const tier = disk === null ? undefined : diskTierOf({ disk, pool, limits, onWrittenLate: evicted.tell }, config, env);
  return {
    pool,
    limits,
    disk: tier,
    holders: runtime.holders,
    directory: runtime.directory,
    transport: runtime.transport,
    endpointOf: (node) => runtime.dataEndpointOf(node),
    // The directory names this node for the pages of its disk, also while that does not answer.
    unreachableNodes: () => [...runtime.unreachableNodes(), ...(tier?.isHung ? [runtime.nodeId] : [])],
    versions: runtime.versions,
    clears: runtime.clears.known,
    deleteEverywhere: (...call) => runtime.drops.deleteEverywhere(...call),
    isSettled: () => settling.isSettled,
    keepsDuplicates: config.keepDuplicates,
    onReadFrom(owner, pages, bytes) {
      const distances = runtime.distances();
      if (distances !== undefined) countReads(env.metrics, DISTANCES[distances(owner)], { pages, bytes });
    },
    onRemoteHits(owner, keys, hint) {
      runtime.notices.touched(owner, keys, hint);
      remoteHits.tell(keys);
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
    droppedMaxKeys: env.limits?.droppedMaxKeys,
    verifyReads: config.verifyReads,
    locationReuseMs: config.locationReuseMs,
    quarantineMs: config.reuseQuarantineMs,
    clock: env.clock,
    log: env.log,
    metrics,
  };
}

/** Counts pages that were read from another node, by how far it is. */
function countReads(
  metrics: MetricsSink,
  distance: string,
  { pages, bytes }: { readonly pages: number; readonly bytes: number },
): void {
  metrics.count('meshcache_remote_read_pages_total', pages, { distance });
  metrics.count('meshcache_remote_read_bytes_total', bytes, { distance });
}

/** The answers of a store to what other nodes ask. */
export function storePartOf(
  { pages, held, leaving }: StoreParts,
  reporting: Pick<NodeReporting, 'storePart' | 'storeHistory'>,
): StorePart {
  const { statements } = pages;
  const touch = (reads: readonly ReportedRead[]) => {
    for (const { keys, hint } of reads) pages.touch(keys, hint);
  };
  return {
    pages: statements,
    dropCleared: (clears) => pages.dropCleared(clears),
    notices: { touch, restate: (keys) => statements.restate(keys) },
    held,
    drain: leaving.start,
    report: () => reporting.storePart(),
    history: (stepS) => reporting.storeHistory(stepS),
  };
}

/**
 * Leaves the cluster, writes the pages that wait for the disk, and frees the memory when nothing uses it any more.
 * Calls in progress end as misses.
 */
export async function closeStore(
  { runtime, region, kept, pool, pages, events, promoter, leaving, settling, pinning }: StoreParts,
  {
    reporting,
    doors,
    audit,
  }: {
    readonly reporting: NodeReporting;
    readonly doors: Doors | undefined;
    readonly audit: AuditLog | undefined;
  },
): Promise<void> {
  reporting.closing();
  events.close();
  settling.stop();
  pinning.close();
  const leavingClosed = leaving.close();
  const pagesClosed = pages.close();
  const clientsClosed = closeDoors(doors);
  await runtime.stop();
  await promoter?.close();
  await leavingClosed;
  await pagesClosed;
  await clientsClosed;
  await reporting.stop();
  pool.free();
  region.free();
  await kept?.close();
  await audit?.close();
}
