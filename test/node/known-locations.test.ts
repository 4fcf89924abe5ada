import type { ExecutionContext } from 'ava';
import { type SimStore, startCluster } from '../_support/node/simulated-stores.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const COUNT = 16;
const PAGE = 4096;
const KEYS = Array.from({ length: COUNT }, (_, i) => `page ${i}`);

/** An owner that has set the pages, and a reader whose host pool is empty. */
async function cluster(t: ExecutionContext, world: TestWorld, config: Readonly<Record<string, unknown>> = {}) {
  // One replica: some keys are looked up at the owner, others at the reader.
  const [owner, reader] = (await startCluster(world, 2, { directory_replicas: 1, ...config })) as [SimStore, SimStore];
  const pools = [owner, reader].map(() => new TestHostPool(COUNT, PAGE, 1)) as [TestHostPool, TestHostPool];
  for (const [i, store] of [owner, reader].entries()) {
    const pool = pools[i] as TestHostPool;
    t.teardown(() => pool.region.free());
    await store.registerMemPoolHost(pool);
  }
  const indices = pools[0].indices(0, COUNT);
  const set = async (version: number): Promise<void> => {
    pools[0].region.bytes().set(content(version, COUNT * PAGE));
    t.true((await owner.batchSetV1(KEYS, indices)).every(Boolean));
  };
  const read = async (): Promise<boolean[]> => {
    pools[1].region.bytes().fill(0);
    return reader.batchGetV1(KEYS, indices);
  };
  const isContent = (version: number) => Buffer.compare(pools[1].region.bytes(), content(version, COUNT * PAGE)) === 0;
  const lookups = () => reader.metric('meshcache_directory_lookups_total', { result: 'found' });
  await set(1);
  return { owner, reader, set, read, isContent, lookups };
}

const all = (isRead: boolean): boolean[] => KEYS.map(() => isRead);

simulated('known locations: a page that is read again is not looked up again, for a second', async (t, world) => {
  const { read, isContent, lookups } = await cluster(t, world);
  t.deepEqual(await read(), all(true));
  t.is(await lookups(), COUNT);
  t.deepEqual(await read(), all(true));
  t.true(isContent(1));
  t.is(await lookups(), COUNT);
  await world.sleep(1_001);
  t.deepEqual(await read(), all(true));
  t.is(await lookups(), 2 * COUNT);
});

simulated('known locations: none with location_reuse_ms 0', async (t, world) => {
  const { read, lookups } = await cluster(t, world, { location_reuse_ms: 0 });
  for (let round = 1; round <= 3; round++) {
    await read();
    t.is(await lookups(), round * COUNT);
  }
});

simulated('known locations: reads that are not verified are looked up each time', async (t, world) => {
  const { read, lookups } = await cluster(t, world, { verify_reads: false });
  for (let round = 1; round <= 3; round++) {
    await read();
    t.is(await lookups(), round * COUNT);
  }
});

simulated('known locations: what is deleted or cleared is not read, and what is set anew is', async (t, world) => {
  const { owner, reader, set, read, isContent } = await cluster(t, world);
  await read();
  t.true((await reader.delete(KEYS)).every(Boolean));
  t.deepEqual(await read(), all(false));
  await set(2);
  t.deepEqual(await read(), all(true));
  t.true(isContent(2));
  await owner.clear();
  t.deepEqual(await read(), all(false));
  await set(3);
  t.deepEqual(await read(), all(true));
  t.true(isContent(3));
});

simulated('known locations: a page that has moved is found within the same call', async (t, world) => {
  const { owner, set, read, isContent, lookups } = await cluster(t, world);
  await read();
  await owner.clear();
  // In other places, for the former ones wait for their reuse.
  await set(4);
  t.deepEqual(await read(), all(true));
  t.true(isContent(4));
  t.is(await lookups(), 2 * COUNT);
});

simulated('known locations: named entries are looked up each time', async (t, world) => {
  const { owner, reader, lookups } = await cluster(t, world);
  t.true(await owner.set('named', content(1, PAGE)));
  for (let round = 1; round <= 3; round++) {
    const before = await lookups();
    t.true(await reader.get('named', new Uint8Array(PAGE)));
    t.is(await lookups(), before + 1);
  }
});

simulated('known locations: many reads of pages of unknown length at once are a few messages', async (t, world) => {
  const { owner, reader } = await cluster(t, world);
  const keys = Array.from({ length: 500 }, (_, i) => `named ${i}`);
  for (const [i, key] of keys.entries()) t.true(await owner.set(key, content(i, 64)));
  const calls = () => reader.metric('meshcache_rpc_calls_total', { result: 'ok' });
  const before = await calls();
  const pages = await Promise.all(keys.map((key) => reader.get(key)));
  for (const [i, page] of pages.entries()) t.deepEqual(page, content(i, 64));
  // Heartbeats and reports are among them.
  t.true((await calls()) - before <= 10, `${(await calls()) - before} calls`);
});
