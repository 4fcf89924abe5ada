import { join } from 'node:path';
import type { MeshCacheConfig } from '../config.js';
import type { ModelPart } from './key-namespace.js';
import { KeptPool, type KeptPoolOptions } from './warm/kept-pool.js';

/** Opens the folder of `pool_path`; of several ranks, each has a folder of its own below it. Throws `ConfigError`. */
export function openKeptPool(
  { tpRank, tpSize, ppRank, ppSize }: ModelPart,
  config: MeshCacheConfig,
  options: Pick<KeptPoolOptions, 'nodeId' | 'tenants' | 'env'>,
): Promise<KeptPool> {
  const isAlone = tpSize === 1 && ppSize === 1;
  const path = join(config.poolPath as string, isAlone ? '' : `tp${tpRank}-pp${ppRank}`);
  const { globalSegmentSize: capacityBytes, verifyReads } = config;
  return KeptPool.open({ path, capacityBytes, verifyReads, ...options });
}
