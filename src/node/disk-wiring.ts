import { join } from 'node:path';
import type { Environment } from '../base/environment/environment.js';
import { DISK_QUEUE_MAX_BYTES, DISK_QUEUE_POOL_FRACTION } from '../base/limits.js';
import type { MeshCacheConfig } from '../config.js';
import { reportDisk } from '../disk/disk-metrics.js';
import { DiskStore } from '../disk/disk-store.js';
import type { PublishedPool } from '../pool/published-pool.js';
import type { NamespaceTenants } from '../pool/tenants/namespace-tenants.js';
import type { PageLimits } from '../pool/tenants/page-limits.js';
import { reportTenants } from '../pool/tenants/tenant-metrics.js';
import { DiskTier } from '../store/disk/disk-tier.js';
import { Promoter } from '../store/holding/promoter.js';
import type { PageStatements } from '../store/page-statements.js';
import type { PagePins } from '../store/pins/page-pins.js';
import type { ModelPart } from './key-namespace.js';
import type { NodeRuntime } from './runtime/node-runtime.js';

export interface OpenDiskOptions {
  readonly nodeId: string;
  readonly tenants: NamespaceTenants;
  /** Called with the keys of pages that the disk has dropped for want of room. */
  readonly onEvict: (keys: string[]) => void;
  /** Has the cluster's hybrid clock, by which pages expire, and tells the cluster whether the disk answers. */
  readonly runtime: Pick<NodeRuntime, 'setDiskHung' | 'versions'>;
  readonly env: Environment;
}

/**
 * Opens the disk tier, if one is configured; of several ranks, each has a folder of its own below the path. Throws
 * `DiskError`.
 */
export async function openDisk(
  { tpRank, tpSize, ppRank, ppSize }: ModelPart,
  config: MeshCacheConfig,
  { nodeId, tenants, onEvict, runtime, env }: OpenDiskOptions,
): Promise<DiskStore | null> {
  if (!config.diskEnabled) return null;
  const { versions } = runtime;
  const isAlone = tpSize === 1 && ppSize === 1;
  const path = join(config.diskPath as string, isAlone ? '' : `tp${tpRank}-pp${ppRank}`);
  const disk = await DiskStore.open(path, config.diskSize, {
    nodeId,
    env,
    present: () => versions.now(),
    isAhead: (version, expires) => versions.isAhead(version, expires),
    policy: config.evictionPolicy,
    tenants,
    queueMaxBytes: Math.min(DISK_QUEUE_MAX_BYTES, Math.floor(config.globalSegmentSize * DISK_QUEUE_POOL_FRACTION)),
    ...(config.diskIndexSize === undefined ? {} : { indexBytes: config.diskIndexSize }),
    onEvict,
    onHung: (isHung) => runtime.setDiskHung(isHung),
  });
  reportDisk(disk, env.metrics);
  reportTenants('disk', tenants.names, () => disk.tenantStats(), env.metrics);
  return disk;
}

/** The disk behind a pool. For `onWrittenLate` see `DiskTierParts`. */
export function diskTierOf(
  parts: {
    readonly disk: DiskStore;
    readonly pool: PublishedPool;
    readonly limits: PageLimits;
    readonly onWrittenLate: (keys: readonly string[]) => void;
  },
  config: MeshCacheConfig,
  { clock, metrics }: Environment,
): DiskTier {
  return new DiskTier({ ...parts, whenBehind: config.diskWrite, clock, metrics });
}

/** Brings pages from the disk into the pool for other nodes. */
export function promoterOf(
  disk: DiskStore,
  parts: { readonly pool: PublishedPool; readonly statements: PageStatements; readonly pins: PagePins },
  { clock, metrics }: Environment,
): Promoter {
  const { pool, statements, pins } = parts;
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
