import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { PORT, startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE_BYTES = 16 * 2 ** 10;
const PAGES_EACH = 60;

simulated(
  'rolling restart: three nodes with disks, one after the other; no page that was on disk is lost',
  async (t, world) => {
    const addr = [1, 2, 3].map((n) => `10.0.0.${n}:${PORT}`).join();
    const start = (n: number): Promise<MeshCacheStore> => {
      const disk = { disk_enabled: true, disk_path: '/cache', disk_size: '32mb' };
      // Less than its pages: some are only on disk.
      const pool = { global_segment_size: 32 * PAGE_BYTES, reuse_quarantine_ms: 0 };
      return startStore(world, { host: `10.0.0.${n}`, addr, config: { node_id: `node-${n}`, ...disk, ...pool } });
    };
    const stores = [await start(1), await start(2), await start(3)];
    const areAllIn = () => stores.every((store) => store.stats().members === 3);
    await world.until(areAllIn);
    const keys: string[] = [];
    for (const [n, store] of stores.entries()) {
      for (let i = 0; i < PAGES_EACH; i++) {
        const key = `page ${n} ${i}`;
        t.true(await store.set(key, content(keys.length, PAGE_BYTES)));
        await world.until(() => store.stats().disk?.queueBytes === 0);
        keys.push(key);
      }
    }
    const isAllFound = async (store: MeshCacheStore) => (await store.batchExists(keys)) === keys.length;
    for (let n = 0; n < stores.length; n++) {
      await stores[n]?.close();
      stores[n] = await start(n + 1);
      await world.until(areAllIn);
      for (const store of stores) await world.until(() => isAllFound(store));
    }
    for (const store of stores) {
      for (const [i, key] of keys.entries()) {
        const bytes = await store.get(key);
        t.true(bytes !== null && Buffer.compare(bytes, content(i, PAGE_BYTES)) === 0, key);
      }
    }
  },
);
