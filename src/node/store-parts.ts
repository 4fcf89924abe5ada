import type { Environment } from '../base/environment/environment.js';
import { Signal } from '../base/signal.js';
import type { MeshCacheConfig } from '../config.js';
import type { DiskStore } from '../disk/disk-store.js';
import type { HostRegion } from '../memory/host-region.js';
import type { Metrics } from '../metrics/metrics.js';
import { copyThreadsOf } from '../pool/copy-threads.js';
import { PublishedPool } from '../pool/published-pool.js';
import { HotReads } from '../store/hot-reads.js';
import { PageStore, type PageStoreParts } from '../store/page-store.js';
import type { Promoter } from '../store/promoter.js';
import { RemoteCopies } from '../store/remote-copies.js';
import { WantedPages } from '../store/wanted-pages.js';
import { diskTierOf, promoterOf } from './disk-wiring.js';
import { leavingOf, type StoreLeaving } from './leaving/store-leaving.js';
import type { ReportedRead } from './remote-pages/read-reports.js';
import type { NodeRuntime } from './runtime/node-runtime.js';
import { earlierPages } from './upkeep/earlier-pages.js';

/** What the parts of a store are made from. */
export interface StoreGround {
  readonly config: MeshCacheConfig;
  readonly env: Environment;
  readonly metrics: Metrics;
  readonly runtime: NodeRuntime;
  /** The pool's memory. */
  readonly region: HostRegion;
  readonly disk: DiskStore | null;
  /** Told of pages that the disk has dropped; the pool and the disk tier tell it of theirs. */
  readonly evicted: Signal<[keys: readonly string[]]>;
}

/** The parts of a store above its runtime. */
export interface StoreParts {
  readonly pool: PublishedPool;
  readonly pages: PageStore;
  readonly promoter: Promoter | null;
  readonly leaving: StoreLeaving;
  readonly hotReads: HotReads;
}

/** Makes the parts of a store, each from those before it. What a part tells of, and a later one listens to, goes through a signal. */
export function assembleStore({ config, env, metrics, runtime, region, disk, evicted }: StoreGround): StoreParts {
  const set = new Signal<[keys: readonly string[]]>();
  const gone = new Signal<[keys: readonly string[]]>();
  const remoteHits = new Signal<[keys: readonly string[]]>();
  const { rkey } = runtime.transport.registerMr(region.addr, region.length);
  const copyThreads = copyThreadsOf(env.threads);
  const pool = new PublishedPool(region.addr, region.length, rkey, {
    policy: config.evictionPolicy,
    quarantineMs: config.reuseQuarantineMs,
    neverReuseEarly: !config.verifyReads,
    clock: env.clock,
    stamps: env.random,
    copyThreads,
    onEvict: evicted.tell,
  });
  const wanted = new WantedPages();
  const storeParts: PageStoreParts = {
    pool,
    disk: disk === null ? undefined : diskTierOf({ disk, pool, onWrittenLate: evicted.tell }, config, env),
    promotions: runtime.promotions,
    directory: runtime.directory,
    transport: runtime.transport,
    endpointOf: (location) => runtime.dataEndpointOf(location),
    versions: runtime.versions,
    deleteEverywhere: (keys, version) => runtime.drops.deleteEverywhere(keys, version),
    isSettled: earlierPages(runtime, disk),
    keepsDuplicates: config.keepDuplicates,
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
    verifyReads: config.verifyReads,
    locationReuseMs: config.locationReuseMs,
    quarantineMs: config.reuseQuarantineMs,
    clock: env.clock,
    log: env.log,
    metrics,
  };
  const pages = new PageStore({
    ...storeParts,
    onTouched: (keys) => wanted.read(keys),
    onSet: set.tell,
    onGone: gone.tell,
  });
  evicted.listen((keys) => pages.forget(keys));
  const { statements } = pages;
  const touch = (reads: readonly ReportedRead[]) => {
    for (const { keys, hint } of reads) pages.touch(keys, hint);
  };
  runtime.announceFrom(statements, { touch, restate: (keys) => statements.restate(keys) });
  const promoter = disk === null ? null : promoterOf(disk, { pool, statements }, env);
  if (promoter !== null) runtime.promoteFrom(promoter);
  metrics.setGaugeProvider('meshcache_members', () => runtime.members().size);
  const copies = new RemoteCopies({ ...storeParts, nodeId: runtime.nodeId, pages, copyThreads });
  set.listen((keys) => copies.set(keys));
  gone.listen((keys) => copies.gone(keys));
  const leaving = leavingOf({ runtime, pages, copies, wanted, disk, env });
  const hotReads = new HotReads({
    copy: (keys) => copies.copy(keys, 'hot'),
    mayCopy: () => !leaving.drain.isDraining,
    clock: env.clock,
  });
  if (config.promoteHotReads) remoteHits.listen((keys) => hotReads.read(keys));
  return { pool, pages, promoter, leaving, hotReads };
}
