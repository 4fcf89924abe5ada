import { MAP_PAUSE_MIN_MS } from '../../src/base/limits.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { ClusterMap } from '../../src/node/map/cluster-map.js';
import type { RpcClient } from '../../src/rpc/client.js';
import { hostPages } from '../../src/store/namespace/host-pages.js';
import { nodeOf } from '../_support/discovery/masters.js';
import { PAGE_BYTES, type SimStore, startCluster } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const COUNT = 64;
const MAP = { cluster_map: '1mb', directory_replicas: 1 };
/** Time after which members that answer regularly are asked first. */
const STEADY_MS = 6_000;
const KEYS = Array.from({ length: COUNT }, (_, i) => `page-${i}`);
const INDICES = KEYS.map((_, i) => i);

async function poolOf(store: SimStore): Promise<Uint8Array> {
  const bytes = new Uint8Array(COUNT * PAGE_BYTES);
  await store.registerMemPoolHost(hostPages({ region: HostRegion.wrap(bytes), pageBytes: PAGE_BYTES }));
  return bytes;
}

/** Reads all pages in calls that are small enough for the pages to come with their locations. */
async function readAll(store: SimStore): Promise<boolean[]> {
  const found: boolean[] = [];
  for (let start = 0; start < COUNT; start += 8) {
    found.push(...(await store.batchGetV1(KEYS.slice(start, start + 8), INDICES.slice(start, start + 8))));
  }
  return found;
}

async function setAll(store: SimStore): Promise<boolean[]> {
  const bytes = await poolOf(store);
  for (const i of INDICES) bytes.set(content(i, PAGE_BYTES), i * PAGE_BYTES);
  return store.batchSetV1(KEYS, INDICES);
}

simulated('cluster map: each node knows the pages of the others, and forgets those that are gone', async (t, world) => {
  const [a, b, c] = (await startCluster(world, 3, MAP)) as [SimStore, SimStore, SimStore];
  t.false((await setAll(a)).includes(false));
  await world.sleep(1_000);
  t.is(await b.metric('meshcache_map_pages'), COUNT);
  t.is(await c.metric('meshcache_map_pages'), COUNT);
  t.is(await a.metric('meshcache_map_pages'), 0);
  t.true((await b.metric('meshcache_map_bytes')) > 0);
  await a.delete(KEYS.slice(0, 10));
  await world.sleep(1_000);
  t.is(await b.metric('meshcache_map_pages'), COUNT - 10);
  await a.close();
  await world.until(() => b.stats().members === 2);
  await world.sleep(1_000);
  t.is(await b.metric('meshcache_map_pages'), 0);
});

for (const cluster_map of ['1mb', 0]) {
  simulated(
    `cluster map: pages are found if the owner of their keys does not answer, with a map (${cluster_map})`,
    async (t, world) => {
      const [a, b, c] = (await startCluster(world, 3, { ...MAP, cluster_map })) as [SimStore, SimStore, SimStore];
      t.false((await setAll(a)).includes(false));
      await world.sleep(STEADY_MS);
      const bytes = await poolOf(c);
      b.process.stop();
      const startMs = world.nowMs;
      const found = await c.batchGetV1(KEYS, INDICES);
      const tookMs = world.nowMs - startMs;
      b.process.continue();
      t.is(tookMs > 200, cluster_map === 0, 'a silent owner costs a deadline');
      for (const i of INDICES.filter((i) => found[i])) {
        t.deepEqual(
          bytes.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES),
          new Uint8Array(content(i, PAGE_BYTES)),
          `${i}`,
        );
      }
    },
  );
}

simulated('cluster map: small pages come with their locations, and are whole', async (t, world) => {
  const [a, b] = (await startCluster(world, 2, MAP)) as [SimStore, SimStore];
  t.false((await setAll(a)).includes(false));
  await world.sleep(STEADY_MS);
  const bytes = await poolOf(b);
  t.false((await readAll(b)).includes(false));
  for (const i of INDICES) {
    t.deepEqual(bytes.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES), new Uint8Array(content(i, PAGE_BYTES)), `${i}`);
  }
  const readPages = await b.metric('meshcache_transport_read_pages_total');
  t.true(readPages > 0 && readPages < COUNT, `${readPages}: only those of which the own shard knows the location`);
});

simulated('cluster map: it says whether pages exist as of a moment ago, and nobody is asked', async (t, world) => {
  const config = { ...MAP, exists_max_age_ms: 2_000 };
  const [a, b] = (await startCluster(world, 2, config)) as [SimStore, SimStore];
  t.false((await setAll(a)).includes(false));
  await world.sleep(1_000);
  const calls = await b.metric('meshcache_rpc_calls_total');
  t.is(await b.batchExists([...KEYS, 'absent']), COUNT);
  t.is(await b.metric('meshcache_rpc_calls_total'), calls);
  a.process.stop();
  await world.sleep(3_000);
  t.is(await b.batchExists(KEYS), 0, 'the map is too old, and a page that no read could bring counts as absent');
  a.process.continue();
});

simulated('cluster map: a member that did not answer is not asked first until it was told', async (t, world) => {
  const [a, , c] = (await startCluster(world, 3, { ...MAP, location_reuse_ms: 0 })) as [SimStore, SimStore, SimStore];
  t.false((await setAll(a)).includes(false));
  await poolOf(c);
  /** Pages that were read at locations that owners have named, because their node was not asked first. */
  const readAtLocations = async (): Promise<number> => {
    const before = await c.metric('meshcache_transport_read_pages_total');
    t.false((await readAll(c)).includes(false));
    return (await c.metric('meshcache_transport_read_pages_total')) - before;
  };
  await world.sleep(STEADY_MS);
  const steady = await readAtLocations();
  a.process.stop();
  await world.sleep(2_000);
  a.process.continue();
  await world.sleep(2_000);
  t.true((await readAtLocations()) > steady);
  await world.sleep(STEADY_MS);
  t.is(await readAtLocations(), steady);
});

simulated('cluster map: members whose answers have no pages are asked with pauses between', async (t, world) => {
  const { environment } = world.operator;
  for (const answer of [{ lost: true }, { lost: true, position: '1' }, {}]) {
    let asked = 0;
    const call = async (): Promise<object> => {
      asked++;
      return { ...answer, marks: new Uint8Array() };
    };
    const rpc = { call } as unknown as RpcClient;
    const map = new ClusterMap({ nodeId: 'a', rpc, env: environment, distances: () => undefined, maxBytes: 2 ** 20 });
    map.membersChanged(new Map([['b', nodeOf('b')]]));
    await world.sleep(10_000);
    map.close();
    t.true(asked > 10 && asked <= 10_000 / MAP_PAUSE_MIN_MS + 1, `${JSON.stringify(answer)}: asked ${asked} times`);
  }
});
