import { ConsistentHashRing, type Core, KeyEncoder, loadCore, MeshCacheError, PoolAllocator } from 'meshcache/core';

export async function simulate(url: string): Promise<readonly string[]> {
  const response = await fetch(url);
  const core: Core = await loadCore(response).catch(async (error: unknown) => {
    if (!(error instanceof MeshCacheError) || error.code !== 'ERR_CORE') throw error;
    return loadCore(await WebAssembly.compile(new Uint8Array(8)));
  });
  const ring = new ConsistentHashRing(160, { core });
  ring.setNodes(['a', 'b']);
  const pool = new PoolAllocator({ capacityBytes: 1 << 20, policy: 's3fifo', quarantineMs: 10, core });
  const placed = pool.publish('key', 4096, performance.now());
  const keys = new KeyEncoder({ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: true }, { core });
  return [...ring.getNodes('key', 2), ...(placed?.evicted ?? []), String(keys.encode(['key']))];
}
