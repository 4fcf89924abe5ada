import type { Environment } from '../base/environment/environment.js';
import type { Host } from '../base/environment/host.js';
import { ConfigError } from '../base/errors.js';
import { formatSize } from '../base/sizes.js';
import type { HostRegion } from '../memory/host-region.js';

/**
 * Makes the system provide the pool's memory on the addon's threads: registering it with an RDMA device, which locks
 * it, would else do so on this thread.
 */
export async function providePool(region: HostRegion, { log }: Environment): Promise<void> {
  await region.prefault().catch((error: Error) => {
    log.log('warn', 'the memory of the pool cannot be had in advance', { error: error.message });
  });
}

/** Throws `ConfigError` for a pool that this machine has no memory for. */
export function checkMemory(poolBytes: number, { memoryBytes }: Host): void {
  if (poolBytes <= memoryBytes) return;
  throw new ConfigError(
    `configuration key "global_segment_size": got ${formatSize(poolBytes)}, allowed is at most this machine's memory, ${formatSize(memoryBytes)}`,
  );
}
