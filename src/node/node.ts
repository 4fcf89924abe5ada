import { join } from 'node:path';
import { FairTurns } from '../base/concurrency/fair-turns.js';
import type { Environment } from '../base/environment/environment.js';
import type { Host } from '../base/environment/host.js';
import { ConfigError } from '../base/errors.js';
import { DISK_QUEUE_MAX_BYTES, DISK_QUEUE_POOL_FRACTION } from '../base/limits.js';
import { formatSize } from '../base/sizes.js';
import { MeshCacheConfig, type StorageConfig } from '../config.js';
import type { KeyNamespace } from '../core/index.js';
import { reportDisk } from '../disk/disk-report.js';
import { DiskStore } from '../disk/disk-store.js';
import { HostRegion } from '../memory/host-region.js';
import type { PageEventSource } from '../metrics/event-stream.js';
import { Metrics } from '../metrics/metrics.js';
import type { PageAdvice } from '../metrics/page-advice.js';
import { spinningClock } from '../native/spinning-clock.js';
import { Users } from '../net/users.js';
import { readUsersFile } from '../net/users-file.js';
import { openObjectStore, reportObjectStore } from '../objects/object-store.js';
import { type CopyThreads, copyThreadsOf } from '../pool/copy-threads.js';
import { PublishedPool } from '../pool/published-pool.js';
import { NamespaceTenants } from '../pool/tenants/namespace-tenants.js';
import { PageLimits } from '../pool/tenants/page-limits.js';
import { reportTenants } from '../pool/tenants/tenant-metrics.js';
import { PageFeed, type PageFollower } from '../store/call/page-feed.js';
import { DiskTier } from '../store/disk/disk-tier.js';
import { PageEvents } from '../store/events/page-events.js';
import type { PageStatements } from '../store/ground/page-statements.js';
import { Settling } from '../store/ground/settling.js';
import type { StoreGround } from '../store/ground/store-ground.js';
import { HeldPages } from '../store/holding/held-pages.js';
import { HotReads } from '../store/holding/hot-reads.js';
import { KeyPolicies } from '../store/holding/key-policies.js';
import { Pinning } from '../store/holding/pinning.js';
import { reportPlacements } from '../store/holding/placement-lane.js';
import { Placements } from '../store/holding/placements.js';
import { Prefetching } from '../store/holding/prefetching.js';
import { Promoter } from '../store/holding/promoter.js';
import { WantedPages } from '../store/holding/wanted-pages.js';
import { PageStore } from '../store/page-store.js';
import { PagePins } from '../store/pins/page-pins.js';
import { HybridParts } from '../store/sessions/hybrid-parts.js';
import { SessionHints } from '../store/sessions/session-hints.js';
import { systemEnvironment } from '../system/system-environment.js';
import { AuditLog } from './audit/audit-log.js';
import { closeDoors, type Doors, openDoors } from './doors.js';
import { fingerprintOf } from './fingerprints.js';
import { KeyEncoders } from './key-encoders.js';
import { type ModelPart, modelPartOf, namespaceOf } from './key-namespace.js';
import { MapFeed } from './map/map-feed.js';
import { NodeReporting } from './reporting/node-reporting.js';
import { packageVersion } from './reporting/package-version.js';
import { RecentEvents } from './reporting/recent-events.js';
import { storeReporter } from './reporting/store-reporting.js';
import { type StoreStats, storeStats } from './reporting/store-stats.js';
import { NodeRuntime, type StorePart } from './runtime/node-runtime.js';
import { leavingOf } from './store-leaving.js';
import { KeptPool } from './warm/kept-pool.js';

/** The state of a node before it opens anything but the audit log: its configuration, its users, its environment. */
type Foundation = Awaited<ReturnType<typeof foundationOf>>;
/** The network, the memory and the disk of a node that is not a member of the cluster yet. */
type Tiers = Awaited<ReturnType<typeof openTiers>>;
/** The store of a node: the pages, and everything that follows their events. */
type Store = ReturnType<typeof makeStore>;

/**
 * A whole node. This file makes all of its parts, each from parts made before it, in four steps in reading order:
 * {@link foundationOf}, {@link openTiers}, {@link makeStore}, {@link openNode}. {@link closeNode} ends them.
 */
export type Node = Awaited<ReturnType<typeof openNode>>;

/** Makes a node and joins the cluster; see `MeshCacheStore.create`. If it throws, it closes what it has opened. */
export async function openNode(storage: StorageConfig, environment: Partial<Environment>) {
  const foundation = await foundationOf(storage, environment);
  const { config, env, reporting, keyEncoders } = foundation;
  const tiers = await openTiers(foundation);
  const store = await orEnd(
    async () => makeStore(foundation, tiers),
    () => tiers.end(),
  );
  const node = { ...foundation, ...tiers, ...store };
  const { runtime, pages, settling } = node;
  const doors = await orEnd(
    async () => {
      await runtime.join(answersOf(store, reporting));
      settling.start((keys) => pages.statements.confirm(keys));
      return openDoors({ ...node, stats: () => statsOf(node), turns: reporting.turns });
    },
    () => closeNode(node),
  );
  const events: PageEventSource = {
    nodeId: node.nodeId,
    follow: (options) => node.events.follow(options),
    describe: (namespace) => keyEncoders.describe(namespace),
  };
  const routers = node.prefetching.client({ one: 'routers', group: 'routers' });
  const advice: PageAdvice = {
    prefetch: (keys, inMs) => void routers.prefetch(keys, { inMs }).catch(() => {}),
    tell: (name, session) => void node.sessions.note(name, session),
  };
  reporting.running(runtime, storeReporter({ ...node, ...doors, events, advice }));
  if (config.waitForDirectory) {
    await orEnd(
      () => runtime.waitForDirectory(),
      () => closeNode({ ...node, doors }),
    );
  }
  return { ...node, doors, turns: new FairTurns(env.clock) };
}

/** Runs a step; if it fails, calls `end` to close what was open before. */
async function orEnd<T>(step: () => Promise<T>, end: () => Promise<void>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    await end();
    throw error;
  }
}

/** First step: opens nothing but the audit log. Throws `ConfigError`. */
async function foundationOf(storage: StorageConfig, environment: Partial<Environment>) {
  const config = MeshCacheConfig.fromExtraConfig(storage.extraConfig ?? {});
  const part = modelPartOf(storage);
  const machine = systemEnvironment({ ...environment, clock: environment.clock ?? spinningClock(config.spinUs) });
  checkMemory(config.globalSegmentSize, machine.host);
  const nodeId = config.nodeId ?? NodeRuntime.generateNodeId(machine.random);
  const metrics = new Metrics(nodeId, { version: packageVersion(), clock: machine.clock, host: machine.host });
  const recent = new RecentEvents(machine.log, machine.clock);
  const unaudited = { ...machine, metrics: environment.metrics ?? metrics, log: recent };
  const own = namespaceOf(storage, part, config);
  const space = keySpaceOf(own, config, unaudited);
  const users = usersOf(config, unaudited);
  const { audit, env } = await auditedEnvironment(config, nodeId, unaudited);
  const reporting = new NodeReporting({ config, metrics, events: recent, users, env });
  warnOfUncheckedReads(config, env);
  return { config, part, nodeId, env, metrics, ...space, users, audit, reporting, feed: new PageFeed() };
}

/**
 * Second step: opens what a store builds on. If it throws `ConfigError` or `DiskError`, it closes what it has opened.
 */
async function openTiers(foundation: Foundation) {
  const { config, nodeId, fingerprint, users, env, audit, reporting } = foundation;
  const endings: (() => Promise<void> | undefined)[] = [() => audit?.close(), () => reporting.stop()];
  const end = async () => {
    for (const each of endings.splice(0).reverse()) await each();
  };
  return orEnd(async () => {
    await reporting.start();
    const metricsEndpoint = reporting.endpoint;
    const runtime = new NodeRuntime(config, { nodeId, metricsEndpoint, fingerprint, users, env });
    const kept = await openKeptPool(foundation);
    const region = kept?.region ?? HostRegion.allocateFrom(env.host, config.globalSegmentSize);
    endings.push(async () => (kept === undefined ? region.free() : kept.close()));
    const disk = await openDisk(foundation, runtime);
    endings.push(() => disk?.close());
    const objectStore = openObjectStore(config, nodeId, env);
    endings.push(
      async () => objectStore?.store.close(),
      () => runtime.stop(),
    );
    await objectStore?.credentials.required();
    if (objectStore !== null) reportObjectStore(env.metrics);
    await runtime.open();
    if (disk !== null) await kept?.compareWith(disk);
    if (runtime.transport.protocol === 'rdma') await providePool(region, env);
    return { runtime, kept, region, disk, objectStore, end };
  }, end);
}

/** Third step: the pool, which peers can read from now on, and everything that works on its pages. */
function makeStore(foundation: Foundation, tiers: Tiers) {
  const { config, env, metrics, tenants, feed, keyEncoders } = foundation;
  const { runtime, disk, objectStore } = tiers;
  const copyThreads = copyThreadsOf(env.threads);
  const pool = publishedPoolOf(foundation, tiers, copyThreads);
  const pins = pagePinsOf(foundation, tiers, pool);
  const settling = settlingOf(foundation, tiers, pool);
  const limits = new PageLimits(pool, tenants);
  const { clock, log } = env;
  const writes = config.diskWrite;
  const ground: StoreGround = {
    cluster: runtime,
    directory: runtime.directory,
    transport: runtime.transport,
    versions: runtime.versions,
    disk: disk === null ? undefined : new DiskTier({ disk, pool, limits, writes, feed, clock, metrics: env.metrics }),
    ...{ pool, limits, pins, settling, feed, config, clock, log, metrics },
    droppedMaxKeys: env.simulated?.droppedMaxKeys,
  };
  const pages = new PageStore(
    ground,
    objectStore === null
      ? undefined
      : { store: objectStore.store, bytesPerS: config.objectStoreWriteRate, copyThreads },
  );
  const { statements, objects } = pages;
  const events = new PageEvents(statements, env);
  const mapFeed = new MapFeed(statements, clock);
  const promoter = disk === null ? null : promoterOf({ disk, pool, pages, pins }, env);
  const wanted = new WantedPages();
  const held = new HeldPages(ground, { statements, promoter, objects, wanted, role: config.role, copyThreads });
  const placements = placementsOf(foundation, runtime, { ground, statements });
  const leaving = leavingOf({ runtime, pages, held, wanted, disk, placements, env });
  const hotReads = new HotReads(held, clock);
  const pinning = new Pinning({ pins, held, maxMs: config.pinMaxS * 1000, clock });
  const prefetching = new Prefetching(ground, { held, isBusy: () => pages.isBusy });
  const sessions = new SessionHints(ground, (...told) => runtime.notices.expected(...told));
  const wishes = { pinning, prefetching, sessions };
  const store = {
    pool,
    pages,
    events,
    mapFeed,
    promoter,
    held,
    leaving,
    placements,
    hotReads,
    settling,
    pins,
    ...wishes,
  };
  const hybridParts = new HybridParts(ground, (key) => keyEncoders.furtherPartsOf(key));
  followPages(foundation, tiers, { ...store, wanted, hybridParts, disk: ground.disk });
  runtime.away.listen(() => settling.wasAway());
  runtime.met.listen((nodeIds, isEarlier) => settling.met(nodeIds, isEarlier));
  runtime.begunAgain.listen(() => statements.dropAhead());
  metrics.setGaugeProvider('meshcache_members', () => runtime.members().size);
  return store;
}

/**
 * The one place that defines which parts follow the events of pages, and in which order. Only the last part may rely on
 * the order: it tells the directory what the others have left.
 */
function followPages(
  { config, feed, env }: Foundation,
  { runtime }: Tiers,
  made: Store & { wanted: WantedPages; hybridParts: HybridParts; disk: DiskTier | undefined },
): void {
  const { pages, events, mapFeed, hotReads, held, placements, prefetching, wanted, hybridParts, disk } = made;
  const independent: readonly (PageFollower | null | undefined)[] = [
    disk,
    pages.objects,
    { touched: (keys) => wanted.read(keys) },
    held,
    prefetching,
    hybridParts,
    placements && { stated: (keys) => placements.set(keys), gone: (keys) => placements.gone(keys) },
    { changed: (keys) => events.note(keys) },
    { changed: (keys) => mapFeed.note(keys) },
    { readRemotely: (nodeId, keys, hint) => runtime.notices.touched(nodeId, keys, hint) },
    config.promoteHotReads ? { readRemotely: (_, keys) => hotReads.read(keys) } : null,
  ];
  feed.follow(...(env.simulated?.shuffled?.(independent) ?? independent), pages.statements);
}

/** Current statistics of a store. */
export function statsOf({
  runtime,
  pages,
  pool,
  disk,
  pins,
  placements,
  prefetching,
}: Pick<Tiers, 'runtime' | 'disk'> & Store): StoreStats {
  return storeStats({ pages, pool, disk, pins, placements, prefetching, members: runtime.members().size });
}

/**
 * Leaves the cluster, writes the pages that wait for the disk, and frees the memory when nothing uses it any more.
 * Calls in progress end as misses.
 */
export async function closeNode(node: Foundation & Tiers & Store & { readonly doors?: Doors }): Promise<void> {
  const { runtime, region, kept, pool, pages, events, mapFeed, promoter, leaving, settling } = node;
  node.reporting.closing();
  events.close();
  mapFeed.close();
  settling.stop();
  node.pinning.close();
  node.prefetching.close();
  const leavingClosed = leaving.close();
  const pagesClosed = pages.close();
  const clientsClosed = closeDoors(node.doors);
  await runtime.stop();
  await promoter?.close();
  await leavingClosed;
  await pagesClosed;
  await clientsClosed;
  await node.reporting.stop();
  pool.free();
  region.free();
  await kept?.close();
  await node.audit?.close();
}

/** The store's answers to requests of other nodes. */
function answersOf({ pages, mapFeed, held, leaving, sessions }: Store, reporting: NodeReporting): StorePart {
  const { statements } = pages;
  return {
    pages: statements,
    ownPages: statements,
    mapFeed,
    dropCleared: (clears) => pages.dropCleared(clears),
    notices: {
      touch(reads) {
        for (const { keys, hint } of reads) pages.touch(keys, hint);
      },
      expect(expected) {
        for (const each of expected) sessions.expectHere(each);
      },
      restate: (keys) => statements.restate(keys),
    },
    held,
    drain: leaving.start,
    report: () => reporting.storePart(),
    history: (stepS) => reporting.storeHistory(stepS),
  };
}

/** The pool of a node, with the pages that have outlived its last process. */
function publishedPoolOf(
  { config, env, tenants, feed }: Foundation,
  { runtime, region, disk, kept }: Tiers,
  copyThreads: CopyThreads,
): PublishedPool {
  const { rkey } = runtime.transport.registerMr(region.addr, region.length);
  const pool = new PublishedPool(region.addr, region.length, rkey, {
    policy: config.evictionPolicy,
    tenants,
    quarantineMs: config.reuseQuarantineMs,
    neverReuseEarly: !config.verifyReads,
    // With a disk, the head of a request is still available when the pool has only its end.
    keepsHeads: disk === null,
    clock: env.clock,
    present: () => runtime.versions.now(),
    stamps: env.random,
    records: kept?.records,
    keepsCopies: config.role === 'storage',
    copyThreads,
    onEvict: (keys) => feed.evicted(keys),
    onLeaving: disk === null || config.diskWrite !== 'evicted' ? undefined : (page) => feed.leaving(page),
  });
  reportTenants('pool', tenants.names, () => pool.tenantStats(), env.metrics);
  return pool;
}

function pagePinsOf({ config, env, tenants, metrics }: Foundation, { region }: Tiers, pool: PublishedPool): PagePins {
  const segmentBytes = Math.min(pool.capacity, region.segmentBytes);
  const { pinMaxShare: maxShare } = config;
  const quotas = tenants.of('pool', pool.capacity);
  return new PagePins({ pool, segmentBytes, maxShare, tenants: quotas, clock: env.clock, metrics });
}

/** Restores the pool's pages from before this start, and tracks them until they are settled. */
function settlingOf({ config, env }: Foundation, tiers: Tiers, pool: PublishedPool): Settling {
  const { runtime: cluster, disk, kept, objectStore } = tiers;
  const newestInPool = kept?.newestVersion ?? 0;
  kept?.restore(pool);
  return new Settling({
    ...{ cluster, disk, pool, newestInPool },
    poolNote: kept?.startNote,
    needsOthers: objectStore !== null,
    quietMs: 2 * 1000 * (config.heartbeatInterval + config.memberTtl),
    clock: env.clock,
  });
}

/** Brings pages from the disk into the pool for other nodes. */
function promoterOf(
  { disk, pool, pages, pins }: { disk: DiskStore; pool: PublishedPool; pages: PageStore; pins: PagePins },
  { clock, metrics }: Environment,
): Promoter {
  const { statements } = pages;
  return new Promoter({
    disk,
    pool,
    confirm: (keys) => statements.confirm(keys),
    announce: (keys) => statements.announcePromoted(keys),
    locationsOf: (keys) => statements.poolLocationsOf(keys),
    pinnedBytes: () => pins.bytes,
    clock,
    metrics,
  });
}

/** Places the node's pages on storage nodes; null if its policies keep all of them in its pool. */
function placementsOf(
  { policies, env }: Foundation,
  runtime: NodeRuntime,
  { ground, statements }: { ground: StoreGround; statements: PageStatements },
): Placements | null {
  const placements = policies.placesAny
    ? new Placements({
        pool: ground.pool,
        policyOf: policies.of,
        hasDisk: ground.disk !== undefined,
        storageNodes: () => runtime.storageNodes(),
        statements,
        holders: runtime.holders,
        env,
      })
    : null;
  reportPlacements(placements === null ? undefined : () => placements.stats(), env.metrics);
  if (placements !== null) runtime.changed.listen(() => placements.membersChanged());
  return placements;
}

/**
 * What a node knows of namespaces: the quota that their pages count for, where the pages are kept, and how their keys
 * are encoded.
 */
function keySpaceOf(own: KeyNamespace, config: MeshCacheConfig, env: Environment) {
  const { namespaceQuotas: quotas, namespaceWritePolicies } = config;
  const tenants = new NamespaceTenants({ quotas, otherTags: Object.keys(namespaceWritePolicies), env });
  const policies = new KeyPolicies(config, (key) => tenants.tagOf(key));
  const keyEncoders = new KeyEncoders(own, (prefix, { tag }) => tenants.use(prefix, tag));
  return { tenants, policies, keyEncoders, fingerprint: fingerprintOf(keyEncoders.own.namespace) };
}

/** The users of the node. Throws `ConfigError` for an unusable file. */
function usersOf({ usersFile }: MeshCacheConfig, { files }: Environment): Users {
  return usersFile === undefined ? new Users() : new Users(readUsersFile(usersFile, files));
}

/** The environment of a node with its audit log, if one is configured. Throws `ConfigError` for an unusable file. */
async function auditedEnvironment({ auditLogPath: path }: MeshCacheConfig, nodeId: string, env: Environment) {
  env.metrics.setGaugeProvider('meshcache_audit_failing', () => 0);
  const audit = path === undefined ? undefined : await AuditLog.open({ path, nodeId, env });
  return { audit, env: { ...env, audit: env.audit ?? audit } };
}

function warnOfUncheckedReads({ verifyReads }: MeshCacheConfig, { log }: Environment): void {
  if (verifyReads) return;
  log.log(
    'warn',
    'verify_reads is off: a page that is overwritten while it is read is not noticed; only the quarantine protects it',
  );
}

/** Opens the folder of `pool_path`, if there is one. Throws `ConfigError`. */
async function openKeptPool({ config, part, nodeId, tenants, env }: Foundation): Promise<KeptPool | undefined> {
  if (config.poolPath === undefined) return undefined;
  const { globalSegmentSize: capacityBytes, verifyReads } = config;
  return KeptPool.open({ path: folderOf(config.poolPath, part), capacityBytes, verifyReads, nodeId, tenants, env });
}

/** Opens the disk tier, if one is configured. Throws `DiskError`. */
async function openDisk(foundation: Foundation, runtime: NodeRuntime): Promise<DiskStore | null> {
  const { config, part, nodeId, tenants, feed, env } = foundation;
  if (!config.diskEnabled) return null;
  const { versions } = runtime;
  const disk = await DiskStore.open(folderOf(config.diskPath as string, part), config.diskSize, {
    nodeId,
    env,
    present: () => versions.now(),
    isAhead: (version, expires) => versions.isAhead(version, expires),
    policy: config.evictionPolicy,
    tenants,
    queueMaxBytes: Math.min(DISK_QUEUE_MAX_BYTES, Math.floor(config.globalSegmentSize * DISK_QUEUE_POOL_FRACTION)),
    ...(config.diskIndexSize === undefined ? {} : { indexBytes: config.diskIndexSize }),
    onEvict: (keys) => feed.evicted(keys),
    onHung: (isHung) => runtime.setDiskHung(isHung),
  });
  reportDisk(disk, env.metrics);
  reportTenants('disk', tenants.names, () => disk.tenantStats(), env.metrics);
  return disk;
}

/** The folder of a tier; each rank of a model has one of its own. */
function folderOf(path: string, { tpRank, tpSize, ppRank, ppSize }: ModelPart): string {
  return join(path, tpSize === 1 && ppSize === 1 ? '' : `tp${tpRank}-pp${ppRank}`);
}

/**
 * Pre-allocates the pool's memory on the addon's threads. An RDMA device locks the memory that is registered with it;
 * without this call, the system would allocate all of it on this thread at that moment.
 */
async function providePool(region: HostRegion, { log }: Environment): Promise<void> {
  await region.prefault().catch((error: Error) => {
    log.log('warn', 'cannot pre-allocate the pool', { error: error.message });
  });
}

/** Throws `ConfigError` if the pool is larger than the memory of this machine or container. */
function checkMemory(poolBytes: number, { memoryBytes }: Host): void {
  if (poolBytes <= memoryBytes) return;
  throw new ConfigError(
    `configuration key "global_segment_size": got ${formatSize(poolBytes)}, allowed is at most the memory of this machine or container, ${formatSize(memoryBytes)}`,
  );
}
