import type { ExecutionContext } from 'ava';
import { EXPIRY_MAX_MS, EXPIRY_SWEEP_INTERVAL_MS, HOT_READS_MIN_COUNT } from '../../src/base/limits.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { hostPages } from '../../src/store/namespace/host-pages.js';
import { PAGE_BYTES, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = content(1, PAGE_BYTES);
const DAY_MS = 86_400_000;
/** A disk for a simulated host. */
const DISK = { disk_enabled: true, disk_path: '/disk', disk_size: '16mb' };

/** Which of the stores read the page, by every kind of call. */
async function readers(t: ExecutionContext, stores: readonly MeshCacheStore[], key = 'page'): Promise<boolean[]> {
  return Promise.all(
    stores.map(async (store) => {
      const [copy, isRead, [many]] = await Promise.all([
        store.get(key),
        store.get(key, new Uint8Array(PAGE_BYTES)),
        store.getMany([key]),
      ]);
      t.is(copy !== null, isRead);
      t.is(copy !== null, many !== null);
      return isRead;
    }),
  );
}

simulated('expiry: a page is read everywhere before its time is over, and nowhere from then on', async (t, world) => {
  const stores = await startCluster(world, 3);
  const [owner] = stores as [SimStore];
  t.true(await owner.set('page', PAGE, { expiresInMs: 5_000 }));
  const setMs = world.nowMs;
  await world.sleep(4_900 - (world.nowMs - setMs));
  t.deepEqual(await readers(t, stores), [true, true, true]);
  await world.sleep(5_001 - (world.nowMs - setMs));
  t.deepEqual(await readers(t, stores), [false, false, false]);
  t.deepEqual(await Promise.all(stores.map((store) => store.exists('page'))), [false, false, false]);
  // Its space, and its place in the directory, are free soon.
  await world.sleep(EXPIRY_SWEEP_INTERVAL_MS + 100);
  t.is(owner.stats().poolEntries, 0);
  t.deepEqual(await Promise.all(stores.map((store) => store.metric('meshcache_directory_entries'))), [0, 0, 0]);
  t.is(await owner.metric('meshcache_expired_pages_total'), 1);
});

simulated('expiry: what is older does not come back when the newest content has expired', async (t, world) => {
  const stores = await startCluster(world, 3);
  const [first, second] = stores as [SimStore, SimStore];
  const older = content(2, PAGE_BYTES);
  t.true(await first.set('page', older));
  t.true(await first.set('same', PAGE));
  t.true(await second.set('page', PAGE, { expiresInMs: 1_000 }));
  t.true(await second.set('same', PAGE, { expiresInMs: 1_000 }));
  await world.sleep(1_001);
  for (let i = 0; i < 5; i++) {
    t.deepEqual(await readers(t, stores, 'page'), [false, false, false]);
    t.deepEqual(
      await readers(t, stores, 'same'),
      [false, false, false],
      'the same bytes, set before without an expiry',
    );
    await world.sleep(700);
  }
  t.is(first.stats().poolEntries + second.stats().poolEntries, 0);
});

simulated('expiry: a named page that is set anew has the expiry of the new call', async (t, world) => {
  const stores = await startCluster(world, 2);
  const [a, b] = stores as [SimStore, SimStore];
  t.true(await a.set('longer', PAGE, { expiresInMs: 1_000 }));
  t.true(await a.set('longer', PAGE, { expiresInMs: 10_000 }));
  t.true(await a.set('never', PAGE, { expiresInMs: 1_000 }));
  t.true(await b.set('never', PAGE));
  t.true(await a.set('shorter', PAGE, { expiresInMs: 10_000 }));
  t.true(await b.set('shorter', PAGE, { expiresInMs: 1_000 }));
  await world.sleep(2_500);
  t.deepEqual(await readers(t, stores, 'longer'), [true, true]);
  t.deepEqual(await readers(t, stores, 'never'), [true, true]);
  t.deepEqual(await readers(t, stores, 'shorter'), [false, false]);
  await world.sleep(10_000);
  t.deepEqual(await readers(t, stores, 'longer'), [false, false]);
  t.deepEqual(await readers(t, stores, 'never'), [true, true]);
});

simulated('expiry: of a computed page the later expiry counts, on one node and on two', async (t, world) => {
  const stores = await startCluster(world, 2);
  const [a, b] = stores as [SimStore, SimStore];
  const set = async (store: SimStore, key: string, expiresInMs?: number): Promise<void> => {
    const region = HostRegion.wrap(Uint8Array.from(PAGE));
    await store.registerMemPoolHost(hostPages({ region, pageBytes: PAGE_BYTES }));
    t.deepEqual(await store.batchSetV1([key], [0], expiresInMs === undefined ? {} : { expiresInMs }), [true]);
    region.free();
  };
  await set(a, 'longer', 1_000);
  await set(a, 'longer', 10_000);
  await set(a, 'kept', 10_000);
  await set(a, 'kept', 1_000);
  await set(a, 'elsewhere', 1_000);
  await set(b, 'elsewhere', 10_000);
  await set(a, 'held', 10_000);
  await set(b, 'held', 1_000);
  await set(a, 'never', 1_000);
  await set(b, 'never');
  t.is(b.stats().poolEntries, 2, 'what does not expire earlier elsewhere is not stored again');
  await world.sleep(2_500);
  const keys = ['longer', 'kept', 'elsewhere', 'held', 'never'];
  for (const store of stores) t.is(await store.batchExists(keys), keys.length);
  for (const store of stores) for (const key of keys) t.truthy(await store.get(key), key);
  await world.sleep(8_000);
  for (const store of stores)
    t.deepEqual(await Promise.all(keys.map((key) => store.exists(key))), [false, false, false, false, true]);
});

simulated('expiry: copies on other nodes expire with their page', async (t, world) => {
  const stores = await startCluster(world, 3, { promote_hot_reads: true });
  const [owner, reader] = stores as [SimStore, SimStore];
  t.true(await owner.set('page', PAGE, { expiresInMs: 3_000 }));
  for (let i = 0; i < HOT_READS_MIN_COUNT; i++) t.truthy(await reader.get('page'));
  await world.until(async () => (await reader.metric('meshcache_copied_pages_total', { reason: 'hot' })) === 1);
  t.is(reader.stats().poolEntries, 1);
  await world.sleep(3_000);
  t.deepEqual(await readers(t, stores), [false, false, false]);
  await world.sleep(EXPIRY_SWEEP_INTERVAL_MS + 100);
  t.deepEqual(
    stores.map((store) => store.stats().poolEntries),
    [0, 0, 0],
  );
  t.is(await reader.metric('meshcache_pool_copied_bytes'), 0);
});

simulated('expiry: pages on disk expire, also across a restart', async (t, world) => {
  const host = '10.0.0.1';
  const open = () => startStore(world, { host, config: DISK });
  const before = await open();
  t.true(await before.set('short', PAGE, { expiresInMs: 20_000 }));
  t.true(await before.set('long', content(2, PAGE_BYTES), { expiresInMs: 300_000 }));
  t.true(await before.set('never', content(3, PAGE_BYTES)));
  await world.until(() => before.stats().disk?.queueBytes === 0);
  await before.close();
  await world.sleep(10_000);
  const between = await open();
  t.deepEqual(await between.get('short'), PAGE, 'its time is not over yet');
  await between.close();
  await world.sleep(10_000);
  const after = await open();
  t.is(await after.get('short'), null);
  t.false(await after.exists('short'));
  t.deepEqual(await after.get('long'), content(2, PAGE_BYTES));
  t.deepEqual(await after.get('never'), content(3, PAGE_BYTES));
  await world.until(() => after.stats().disk?.entries === 2);
  await world.sleep(300_000);
  t.is(await after.get('long'), null);
  await world.until(() => after.stats().disk?.entries === 1);
});

simulated(
  'expiry: a date that is set back does not make expired pages come back, nor new ones last longer',
  async (t, world) => {
    const stores = await startCluster(world, 2);
    const [a, b] = stores as [SimStore, SimStore];
    t.true(await a.set('page', PAGE, { expiresInMs: 1_000 }));
    await world.sleep(1_001);
    for (const host of ['10.0.0.1', '10.0.0.2']) world.hosts.get(host)?.time.jump(-DAY_MS);
    t.deepEqual(await readers(t, stores), [false, false]);
    t.true(await b.set('page', PAGE, { expiresInMs: 1_000 }));
    await world.sleep(900);
    t.deepEqual(await readers(t, stores), [true, true]);
    await world.sleep(101);
    t.deepEqual(await readers(t, stores), [false, false]);
  },
);

simulated('expiry: page events tell expired pages as gone', async (t, world) => {
  const [store] = (await startCluster(world, 1)) as [SimStore];
  const gone: string[] = [];
  const ends = new AbortController();
  const following = (async () => {
    for await (const event of store.pageEvents({ signal: ends.signal })) {
      if (event.kind !== 'changed') continue;
      for (const { key, tier } of event.changes) if (tier === null) gone.push(key);
    }
  })();
  await store.set('page', PAGE, { expiresInMs: 500 });
  await world.until(() => gone.length > 0);
  ends.abort();
  await following;
  t.true(gone[0]?.endsWith('page'));
});

simulated(
  'expiry: many pages that expire at once are removed in turns, and others are served meanwhile',
  async (t, world) => {
    const [store] = (await startCluster(world, 1, { global_segment_size: '32mb' })) as [SimStore];
    const keys = Array.from({ length: 3_000 }, (_, i) => `page ${i}`);
    for (const key of keys) await store.set(key, content(1, 64), { expiresInMs: 2_000 });
    t.true(await store.set('stays', PAGE));
    await world.sleep(10_000);
    t.is(store.stats().poolEntries, 1);
    t.is(await store.metric('meshcache_expired_pages_total'), keys.length);
    t.deepEqual(await store.get('stays'), PAGE);
    store.verify();
  },
);

simulated('expiry: an expiry that cannot be is refused before anything is touched', async (t, world) => {
  const [store] = (await startCluster(world, 1)) as [SimStore];
  for (const expiresInMs of [0, -1, 1.5, Number.NaN, EXPIRY_MAX_MS + 1, '5' as unknown as number]) {
    await t.throwsAsync(store.set('page', PAGE, { expiresInMs }), {
      code: 'ERR_ARGUMENT',
      message: /^set: expiresInMs must be a whole number of milliseconds from 1 to 315576000000, got/,
    });
  }
  t.true(await store.set('page', PAGE, { expiresInMs: EXPIRY_MAX_MS }));
  t.deepEqual(await store.get('page'), PAGE);
});

simulated(
  'expiry: a page on the disk of another node is brought back before its time is over, and not after',
  async (t, world) => {
    const pages = 8;
    const owner = await startStore(world, { config: { ...DISK, global_segment_size: pages * PAGE_BYTES } });
    const reader = await startStore(world);
    await world.until(() => [owner, reader].every((store) => store.stats().members === 2));
    t.true(await owner.set('page', PAGE, { expiresInMs: 20_000 }));
    for (let i = 0; i < 3 * pages; i++) {
      await owner.set(`other ${i}`, content(i, PAGE_BYTES));
      await world.until(() => owner.stats().disk?.queueBytes === 0);
    }
    t.is(owner.stats().poolEntries, pages);
    t.deepEqual(await reader.get('page'), PAGE);
    t.is(await owner.metric('meshcache_promoted_pages_total'), 1);
    await world.sleep(20_000);
    t.deepEqual(await readers(t, [owner, reader]), [false, false]);
    await world.until(() => owner.stats().disk?.entries === 3 * pages);
  },
);

simulated(
  'expiry: pages of a node whose clock is minutes ahead last no longer on the others, nor do copies',
  async (t, world) => {
    const stores: SimStore[] = [];
    for (const [i, aheadMs] of [120_000, 0, -120_000].entries()) {
      const { host } = world.process(`10.0.0.${i + 1}`);
      host.time.jump(aheadMs);
      stores.push(await startStore(world, { host: host.address, config: { promote_hot_reads: true } }));
    }
    await world.until(() => stores.every((store) => store.stats().members === 3));
    const keys = Array.from({ length: 12 }, (_, i) => `page ${i}`);
    for (const key of keys) t.true(await (stores[0] as SimStore).set(key, PAGE, { expiresInMs: 8_000 }));
    for (let i = 0; i < HOT_READS_MIN_COUNT; i++) {
      for (const key of keys) t.truthy(await (stores[2] as SimStore).get(key));
    }
    await world.sleep(7_000);
    // The other one hears of these pages for the first time.
    for (const key of keys.slice(6)) t.deepEqual(await readers(t, stores, key), [true, true, true]);
    await world.sleep(1_001);
    for (const key of keys) t.deepEqual(await readers(t, stores, key), [false, false, false], key);
  },
);
