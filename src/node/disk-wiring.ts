import { join } from 'node:path';
import type { Environment } from '../base/environment/environment.js';
import { DISK_QUEUE_MAX_BYTES, DISK_QUEUE_POOL_FRACTION } from '../base/limits.js';
import type { MeshCacheConfig } from '../config.js';
import { reportDisk } from '../disk/disk-metrics.js';
import { type DiskInfo, DiskStore } from '../disk/disk-store.js';
import type { NodeReport } from '../metrics/node-report.js';
import type { PublishedPool } from '../pool/published-pool.js';
import { DiskTier } from '../store/disk-tier.js';
import type { PageStore } from '../store/page-store.js';
import { Promoter } from '../store/promoter.js';
import type { ModelPart } from './key-namespace.js';

/** Who is told of what the disk has dropped: the disk is there before they are. */
export interface DiskListeners {
  onEvict: (keys: string[]) => void;
}

/** The disk tier, if it is wanted; of several ranks each has a folder of its own below the path. Throws `DiskError`. */
export async function openDisk(
  { tpRank, tpSize, ppRank, ppSize }: ModelPart,
  config: MeshCacheConfig,
  { nodeId, env, listeners }: { nodeId: string; env: Environment; listeners: DiskListeners },
): Promise<DiskStore | null> {
  if (!config.diskEnabled) return null;
  const isAlone = tpSize === 1 && ppSize === 1;
  const path = join(config.diskPath as string, isAlone ? '' : `tp${tpRank}-pp${ppRank}`);
  const disk = await DiskStore.open(path, config.diskSize, {
    nodeId,
    env,
    policy: config.evictionPolicy,
    queueMaxBytes: Math.min(DISK_QUEUE_MAX_BYTES, Math.floor(config.globalSegmentSize * DISK_QUEUE_POOL_FRACTION)),
    ...(config.diskIndexSize === undefined ? {} : { indexBytes: config.diskIndexSize }),
    onEvict: (keys) => listeners.onEvict(keys),
  });
  reportDisk(disk, env.metrics);
  return disk;
}

/** `onWrittenLate`: see `DiskTierParts`. */
export function diskTierOf(
  parts: {
    readonly disk: DiskStore;
    readonly pool: PublishedPool;
    readonly onWrittenLate: (keys: readonly string[]) => void;
  },
  config: MeshCacheConfig,
  { clock, metrics }: Environment,
): DiskTier {
  return new DiskTier({ ...parts, whenBehind: config.diskWrite, clock, metrics });
}

export function promoterOf(disk: DiskStore, pool: PublishedPool, pages: PageStore, env: Environment): Promoter {
  return new Promoter({
    disk,
    pool,
    confirm: (keys) => pages.statements.confirm(keys),
    announce: (keys) => pages.statements.announcePromoted(keys),
    locationsOf: (keys) => pages.statements.poolLocationsOf(keys),
    clock: env.clock,
    metrics: env.metrics,
  });
}

/** The part of a node's status that is on its disk. */
export function diskStatus(info: DiskInfo): NonNullable<NodeReport['disk']> {
  return {
    entries: info.entries,
    used_bytes: info.usedBytes,
    capacity_bytes: info.capacityBytes,
    queue_bytes: info.queueBytes,
    skipped_pages: info.skippedPages,
    corrupt_pages: info.corruptPages,
    evictions: info.evictions,
    write_errors: info.writeErrors,
  };
}
