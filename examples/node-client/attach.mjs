// Shares two pages with all processes of the cluster, straight from and into this process's own memory, without being a node itself.
import { HostRegion, MeshCacheClient } from 'meshcache';

const PAGE = 1 << 20;
const region = HostRegion.allocate(4 * PAGE, { shared: true });
const pool = region.bytes();
pool.fill('K'.charCodeAt(0), 0, PAGE).fill('V'.charCodeAt(0), PAGE, 2 * PAGE);

const client = await MeshCacheClient.connect({ required: true });
await client.registerMemPoolHost({
  region,
  pageSize: 1,
  getPageBufferMeta: (slots) => ({
    ptrs: Array.from(slots, (slot) => region.addr + BigInt(slot) * BigInt(PAGE)),
    sizes: Array.from(slots, () => PAGE),
  }),
});
console.log('set:', await client.batchSetV1(['page-0', 'page-1'], [0, 1]));
console.log('exist:', await client.batchExists(['page-0', 'page-1', 'page-2']));
console.log('get:', await client.batchGetV1(['page-0', 'page-2'], [2, 3]));
console.log('the same:', Buffer.compare(pool.subarray(0, PAGE), pool.subarray(2 * PAGE, 3 * PAGE)) === 0);
await client.close();
region.free();
