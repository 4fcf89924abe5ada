import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { EVICTION_POLICIES } from '../../src/config.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const PAGE = 16 * 2 ** 10;
const POOL_PAGES = 8;

interface NodeOptions extends Record<string, unknown> {
  readonly port?: number;
}

/** A node that writes pages to a real folder when its pool of POOL_PAGES evicts them. */
async function evictingNode(t: ExecutionContext, { port, ...extra }: NodeOptions = {}): Promise<MeshCacheStore> {
  const store = await createStore(port ?? (await freePort()), {
    global_segment_size: POOL_PAGES * PAGE,
    disk_enabled: true,
    disk_path: extra.disk_path ?? temporaryFolder(t),
    disk_size: '64mb',
    disk_write: 'evicted',
    reuse_quarantine_ms: 0,
    ...extra,
  });
  t.teardown(() => store.close());
  return store;
}

const written = (store: MeshCacheStore): Promise<void> => until(() => store.stats().disk?.queueBytes === 0);

/** Sets pages `from` to `to` - 1 one after the other, and waits until the disk has those that were evicted. */
async function setAll(t: ExecutionContext, store: MeshCacheStore, from: number, to: number): Promise<void> {
  for (let i = from; i < to; i++) {
    t.true(await store.set(`k${i}`, content(i, PAGE)));
    await written(store);
  }
}

/** The numbers of the pages from `from` to `to` - 1 that are found; wrong bytes throw. */
async function found(store: MeshCacheStore, from: number, to: number): Promise<number[]> {
  const numbers: number[] = [];
  for (let i = from; i < to; i++) {
    const bytes = await store.get(`k${i}`);
    if (bytes === null) continue;
    if (Buffer.compare(bytes, content(i, PAGE)) !== 0) throw new Error(`k${i}: wrong bytes`);
    numbers.push(i);
  }
  return numbers;
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
const keysOf = (numbers: readonly number[]): string[] => numbers.map((i) => `k${i}`);
const onDisk = (store: MeshCacheStore): number => store.stats().disk?.entries ?? -1;

for (const eviction_policy of EVICTION_POLICIES) {
  test(`disk evicted: pages are written when they leave the pool, not before, ${eviction_policy}`, async (t) => {
    const store = await evictingNode(t, { eviction_policy });
    await setAll(t, store, 0, POOL_PAGES / 2);
    t.is(onDisk(store), 0);
    await setAll(t, store, POOL_PAGES / 2, 40);
    t.deepEqual(await found(store, 0, 40), range(0, 40));
    t.is(onDisk(store), store.stats().evictions);
    t.is(store.stats().disk?.skippedPages, 0);
  });
}

test('disk evicted: pages of a session that has ended are not written', async (t) => {
  const store = await evictingNode(t);
  await setAll(t, store, 0, 6);
  await store.tell('agent', { keys: keysOf(range(0, 4)) });
  await store.tell('agent', { ended: true });
  // A page that is asked for again is worth a write whatever was told.
  t.deepEqual(await found(store, 1, 2), [1]);
  await setAll(t, store, 6, 20);
  t.deepEqual(await found(store, 0, 20), [1, ...range(4, 20)]);
});

test('disk evicted: pages that a session has left behind are not written', async (t) => {
  const store = await evictingNode(t);
  await setAll(t, store, 0, 6);
  await store.tell('agent', { keys: keysOf(range(0, 4)) });
  await store.tell('agent', { keys: keysOf([0, 1, 5]), branched: true });
  await setAll(t, store, 6, 20);
  t.deepEqual(await found(store, 0, 20), [0, 1, ...range(4, 20)]);
});

test('disk evicted: a page told to be over is written when it is set again', async (t) => {
  const store = await evictingNode(t);
  await setAll(t, store, 0, 2);
  await store.tell('agent', { keys: keysOf([0, 1]) });
  await store.tell('agent', { ended: true });
  await setAll(t, store, 1, 2);
  await setAll(t, store, 2, 20);
  t.deepEqual(await found(store, 0, 20), range(1, 20));
});

test('disk evicted: another node reads pages from the disk by way of the pool', async (t) => {
  const port = await freePort();
  const owner = await evictingNode(t, { port });
  const reader = await createStore(port);
  t.teardown(() => reader.close());
  await until(() => owner.stats().members === 2 && reader.stats().members === 2);
  await setAll(t, owner, 0, 40);
  // On a busy machine a page that has come back to the pool may have gone again before it is read.
  const numbers = new Set<number>();
  await until(async () => {
    for (const i of await found(reader, 0, 40)) numbers.add(i);
    return numbers.size === 40;
  });
  // What comes back to the pool is not written a second time.
  await written(owner);
  t.true((owner.stats().disk?.writtenPages ?? 99) <= 40);
});

test('disk evicted: a node that is closed writes what its pool has, and finds all of it at its next start', async (t) => {
  const disk_path = temporaryFolder(t);
  const first = await evictingNode(t, { disk_path });
  await setAll(t, first, 0, 20);
  t.true(onDisk(first) < 20);
  await first.close();
  const second = await evictingNode(t, { disk_path });
  t.is(onDisk(second), 20);
  t.deepEqual(await found(second, 0, 20), range(0, 20));
});

test('disk evicted: what is deleted or overwritten does not come back, from the disk or after a restart', async (t) => {
  const disk_path = temporaryFolder(t);
  const first = await evictingNode(t, { disk_path });
  await setAll(t, first, 0, 20);
  // Pages 0 to 2 are on disk, pages 17 to 19 in the pool.
  t.deepEqual(await first.delete(keysOf([0, 17])), [true, true]);
  t.true(await first.set('k1', content(101, PAGE)));
  t.true(await first.set('k18', content(118, PAGE)));
  await setAll(t, first, 20, 40);
  const check = async (store: MeshCacheStore): Promise<void> => {
    t.is(await store.get('k0'), null);
    t.is(await store.get('k17'), null);
    t.deepEqual(await store.get('k1'), content(101, PAGE));
    t.deepEqual(await store.get('k18'), content(118, PAGE));
  };
  await check(first);
  await first.close();
  const second = await evictingNode(t, { disk_path });
  await check(second);
  t.deepEqual(await found(second, 20, 40), range(20, 40));
});

test('disk evicted: a clear takes all pages, those on their way to the disk, too', async (t) => {
  const disk_path = temporaryFolder(t);
  const first = await evictingNode(t, { disk_path });
  const setting = range(0, 200).map((i) => first.set(`k${i}`, content(i, PAGE)));
  await Promise.all(setting);
  await first.clear();
  t.deepEqual(await found(first, 0, 200), []);
  await first.close();
  const second = await evictingNode(t, { disk_path });
  t.deepEqual(await found(second, 0, 200), []);
});

test('disk evicted: a burst does not wait; what the queue has no room for is missed and counted', async (t) => {
  const store = await evictingNode(t);
  const results = await Promise.all(range(0, 200).map((i) => store.set(`k${i}`, content(i, PAGE))));
  t.false(results.includes(false));
  await written(store);
  const missed = 200 - (await found(store, 0, 200)).length;
  t.true(missed > 0);
  t.is(store.stats().disk?.skippedPages, missed);
});

test('disk evicted: random sets, deletes, tells and clears: a read finds the latest bytes or nothing', async (t) => {
  t.timeout(120_000);
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() % 2 ** 32);
  t.log(`seed ${seed}`);
  const source = seededRandom(seed);
  const random = (below: number): number => source.u32() % below;
  const disk_path = temporaryFolder(t);
  const KEYS = 40;
  let store = await evictingNode(t, { disk_path });
  const latest = new Map<number, number>();
  let hits = 0;
  for (let step = 0; step < 1500; step++) {
    const key = random(KEYS);
    const dice = random(100);
    if (dice < 45) {
      // Several sets of one key at once: the last one counts.
      const contents = range(0, 1 + random(3)).map((i) => 1000 + 3 * step + i);
      const ends = await Promise.all(contents.map((each) => store.set(`k${key}`, content(each, PAGE))));
      if (ends.at(-1) === true) latest.set(key, contents.at(-1) as number);
      else latest.delete(key);
    } else if (dice < 90) {
      const bytes = await store.get(`k${key}`);
      const wanted = latest.get(key);
      if (bytes !== null) {
        hits++;
        const isRight = wanted !== undefined && Buffer.compare(bytes, content(wanted, PAGE)) === 0;
        if (!isRight) t.fail(`seed ${seed}, step ${step}: k${key} has other bytes`);
      }
    } else if (dice < 94) {
      await store.delete([`k${key}`]);
      latest.delete(key);
    } else if (dice < 98) {
      await store.tell('agent', { keys: keysOf([key, random(KEYS)]) });
      await store.tell('agent', { ended: true });
    } else if (dice < 99) {
      await store.clear();
      latest.clear();
    } else {
      await store.close();
      store = await evictingNode(t, { disk_path });
    }
  }
  t.true(hits > 100, `${hits} hits`);
});
