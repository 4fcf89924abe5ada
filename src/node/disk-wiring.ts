import { join } from 'node:path';
import type { Environment } from '../base/environment.js';
import { DISK_QUEUE_MAX_BYTES, DISK_QUEUE_POOL_FRACTION } from '../base/limits.js';
import type { MeshCacheConfig, StorageConfig } from '../config.js';
import { type DiskInfo, DiskStore } from '../disk/disk-store.js';
import type { PublishedPool } from '../pool/published-pool.js';
import type { PageStore } from '../store/page-store.js';
import { Promoter } from '../store/promoter.js';

/** What a node with a disk tier counts. */
export const DISK_COUNTERS = [
  'meshcache_disk_skipped_pages_total',
  'meshcache_disk_corrupt_pages_total',
  'meshcache_disk_evictions_total',
  'meshcache_disk_write_errors_total',
  'meshcache_promoted_pages_total',
  'meshcache_promote_failures_total',
] as const;

/** Who is told of what the disk has dropped: the disk is there before they are. */
export interface DiskListeners {
  onEvict: (keys: string[]) => void;
}

/** The disk tier, if it is wanted; of several ranks each has a folder of its own below the path. Throws `DiskError`. */
export async function openDisk(
  { tpRank, tpSize, ppRank, ppSize }: StorageConfig,
  config: MeshCacheConfig,
  { nodeId, env, listeners }: { nodeId: string; env: Environment; listeners: DiskListeners },
): Promise<DiskStore | null> {
  if (!config.diskEnabled) return null;
  const isAlone = tpSize === 1 && ppSize === 1;
  const path = join(config.diskPath as string, isAlone ? '' : `tp${tpRank}-pp${ppRank}`);
  return DiskStore.open(path, config.diskSize, {
    nodeId,
    env,
    queueMaxBytes: Math.min(DISK_QUEUE_MAX_BYTES, Math.floor(config.globalSegmentSize * DISK_QUEUE_POOL_FRACTION)),
    ...(config.diskIndexSize === undefined ? {} : { indexBytes: config.diskIndexSize }),
    onEvict: (keys) => listeners.onEvict(keys),
  });
}

export function promoterOf(disk: DiskStore, pool: PublishedPool, pages: PageStore, env: Environment): Promoter {
  return new Promoter({
    disk,
    pool,
    announce: (keys) => pages.announcePromoted(keys),
    locationsOf: (keys) => pages.poolLocationsOf(keys),
    clock: env.clock,
    metrics: env.metrics,
  });
}

export function diskGauges(disk: DiskStore): Record<string, () => number> {
  return {
    meshcache_disk_bytes_used: () => disk.info().usedBytes,
    meshcache_disk_capacity_bytes: () => disk.info().capacityBytes,
    meshcache_disk_keys: () => disk.info().entries,
    meshcache_disk_queue_bytes: () => disk.info().queueBytes,
  };
}

/** The part of a node's status that is on its disk. */
export function diskStatus(info: DiskInfo): Record<string, unknown> {
  return {
    entries: info.entries,
    used_bytes: info.usedBytes,
    capacity_bytes: info.capacityBytes,
    queue_bytes: info.queueBytes,
    skipped_pages: info.skippedPages,
    corrupt_pages: info.corruptPages,
    evictions: info.evictions,
    write_errors: info.writeErrors,
    io_mode: info.ioMode,
  };
}
