import test, { type ExecutionContext } from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const PAGES = 6_000;
const PAGE = 1_000;
const KEYS = Array.from({ length: PAGES }, (_, i) => `page ${i}`);

async function newNode(t: ExecutionContext, options: Record<string, unknown>): Promise<MeshCacheStore> {
  const store = await createStore(await freePort(), {
    global_segment_size: '32mb',
    reuse_quarantine_ms: 0,
    ...options,
  });
  t.teardown(() => store.close());
  return store;
}

async function setAll(store: MeshCacheStore): Promise<void> {
  for (let start = 0; start < PAGES; start += 500) {
    const some = KEYS.slice(start, start + 500);
    await Promise.all(some.map((key, i) => store.set(key, content(start + i, PAGE))));
  }
}

async function readable(store: MeshCacheStore): Promise<string[]> {
  const found = await Promise.all(KEYS.map((key) => store.get(key)));
  return KEYS.filter((_, i) => found[i] !== null);
}

for (const [tiers, poolSize] of [
  ['in the pool', '32mb'],
  ['on the disk, and few of them in the pool', '1mb'],
] as const) {
  test(`clear: of many pages ${tiers}, others have their turn, and what is set meanwhile stays`, async (t) => {
    // Cause: all pages were removed at once, which held everybody for half a second and more.
    const path = temporaryFolder(t);
    const onDisk = { disk_enabled: true, disk_path: path, disk_size: '256mb', global_segment_size: poolSize };
    const store = await newNode(t, onDisk);
    await setAll(store);
    await until(() => store.stats().disk?.queueBytes === 0);
    let turns = 0;
    let isCleared = false;
    const count = (): void => {
      turns++;
      if (!isCleared) setImmediate(count);
    };
    count();
    const clearing = store.clear();
    const set = ['page 3', 'page 5999', 'new'].map((key) => store.set(key, content(77, PAGE)));
    t.deepEqual(await Promise.all(set), [true, true, true]);
    await clearing;
    isCleared = true;
    t.true(turns > PAGES / 1_000, `others had ${turns} turns`);
    t.deepEqual(await readable(store), ['page 3', 'page 5999']);
    for (const key of ['page 3', 'page 5999', 'new']) t.deepEqual(await store.get(key), content(77, PAGE));
    store.verify();
    await store.close();
    const again = await newNode(t, onDisk);
    t.deepEqual(await readable(again), ['page 3', 'page 5999'], 'nor does anything come back');
  });
}

test('clear: of pages that move between pool and disk all the time, none is left', async (t) => {
  const onDisk = { disk_enabled: true, disk_path: temporaryFolder(t), disk_size: '256mb', global_segment_size: '1mb' };
  const store = await newNode(t, onDisk);
  await setAll(store);
  let isCleared = false;
  // Reading a page brings it into the pool, and others out of it.
  const reading = async (first: number): Promise<void> => {
    for (let i = first; !isCleared; i = (i + 997) % PAGES) await store.get(KEYS[i] as string);
  };
  const readers = [1, 1_000, 2_000, 3_000].map((first) => reading(first));
  await store.clear();
  isCleared = true;
  await Promise.all(readers);
  t.deepEqual(await readable(store), []);
  t.deepEqual([store.stats().poolEntries, store.stats().disk?.entries], [0, 0]);
});

test('clear: when the store is closed before all pages are gone, it is an error, and not said to be done', async (t) => {
  // Cause: it resolved, and what was left on the disk was read after a restart.
  const onDisk = { disk_enabled: true, disk_path: temporaryFolder(t), disk_size: '256mb', global_segment_size: '1mb' };
  const store = await newNode(t, onDisk);
  await setAll(store);
  const clearing = store.clear();
  await Promise.all([t.throwsAsync(clearing, { code: 'ERR_CLOSED' }), store.close()]);
});
