import type { Environment } from '../base/environment/environment.js';
import type { Host } from '../base/environment/host.js';
import { ConfigError } from '../base/errors.js';
import { formatSize } from '../base/sizes.js';
import type { HostRegion } from '../memory/host-region.js';

/**
 * Pre-allocates the pool's memory on the addon's threads. An RDMA device locks the memory that is registered with it; without this, the system
 * would provide all of it on this thread then.
 */
export async function providePool(region: HostRegion, { log }: Environment): Promise<void> {
  await region.prefault().catch((error: Error) => {
    log.log('warn', 'cannot pre-allocate the pool', { error: error.message });
  });
}

/** Throws `ConfigError` for a pool that is larger than the memory of this machine or container. */
export function checkMemory(poolBytes: number, { memoryBytes }: Host): void {
  if (poolBytes <= memoryBytes) return;
  throw new ConfigError(
    `configuration key "global_segment_size": got ${formatSize(poolBytes)}, allowed is at most the memory of this machine or container, ${formatSize(memoryBytes)}`,
  );
}
