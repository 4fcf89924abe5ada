import type { ExecutionContext } from 'ava';
import { ArgumentError, ClosedError } from '../../src/base/errors.js';
import {
  PREFETCH_LEAD_MS,
  PREFETCH_POOL_FRACTION,
  PREFETCH_UNREAD_MS,
  PREFETCHES_LATER_MAX_COUNT,
} from '../../src/base/limits.js';
import { PAGE_BYTES, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const DISK = { disk_enabled: true, disk_path: '/disk', disk_size: '4mb' };

function keysOf(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}-${i}`);
}

async function setAll(t: ExecutionContext, store: SimStore, keys: readonly string[]): Promise<void> {
  for (const [i, key] of keys.entries()) t.true(await store.set(key, content(i, PAGE_BYTES)), key);
}

async function readAll(t: ExecutionContext, store: SimStore, keys: readonly string[]): Promise<void> {
  for (const [i, key] of keys.entries()) t.deepEqual(await store.get(key), content(i, PAGE_BYTES), key);
}

function prefetched(store: SimStore, result: string): Promise<number> {
  return store.metric('meshcache_prefetched_pages_total', { result });
}

simulated('prefetch: pages of another node are in the pool before they are read', async (t, world) => {
  const [a, b] = (await startCluster(world, 2)) as [SimStore, SimStore];
  const keys = keysOf('page', 8);
  await setAll(t, a, keys);
  t.deepEqual(await b.prefetch([...keys, 'absent']), [...keys.map(() => true), false]);
  await readAll(t, b, keys);
  t.like(b.stats().hits, { local: 8, remote: 0 });
  t.is(await prefetched(b, 'brought'), 8);
  t.is(await prefetched(b, 'absent'), 1);
  t.is(await prefetched(b, 'used'), 8);
  t.is(await b.metric('meshcache_prefetched_unread_bytes'), 0);
  t.deepEqual(b.stats().prefetched, { brought: 8, used: 8, wasted: 0 });
  t.deepEqual(
    await b.prefetch(keys),
    keys.map(() => true),
  );
  t.is(await prefetched(b, 'present'), 8);
  t.is(await prefetched(b, 'brought'), 8, 'nothing is brought twice');
});

simulated('prefetch: pages on the own disk are in the pool before they are read', async (t, world) => {
  const store = await startStore(world, { config: { global_segment_size: 16 * PAGE_BYTES, ...DISK } });
  const keys = keysOf('page', 2);
  await setAll(t, store, keys);
  await setAll(t, store, keysOf('flood', 40));
  await world.until(() => store.stats().disk?.queueBytes === 0);
  t.deepEqual(await store.prefetch(keys), [true, true]);
  await readAll(t, store, keys);
  t.like(store.stats().hits, { local: 2, disk: 0 });
});

simulated('prefetch: pages of a request that are here make no room for its others', async (t, world) => {
  const config = { global_segment_size: 16 * PAGE_BYTES, eviction_policy: 'lru', ...DISK };
  const store = await startStore(world, { config });
  const [keys, others] = [keysOf('page', 8), keysOf('other', 10)];
  await setAll(t, store, keys);
  await setAll(t, store, others);
  await world.until(() => store.stats().disk?.queueBytes === 0);
  // The pages that were used least recently are gone; the ones that are left would go next.
  const here = store.tiersOf(keys).filter((tier) => tier === 'memory').length;
  t.true(here > 0 && here < keys.length, `${here}`);
  t.deepEqual(
    await store.prefetch(keys),
    keys.map(() => true),
  );
  t.is(await prefetched(store, 'brought'), keys.length - here);
});

simulated('prefetch: it begins a short time before the pages are needed', async (t, world) => {
  const [a, b] = (await startCluster(world, 2)) as [SimStore, SimStore];
  await setAll(t, a, ['page-0']);
  const done = b.prefetch(['page-0'], { by: PREFETCH_LEAD_MS / 1000 + 20 });
  await world.sleep(18_000);
  t.is(await prefetched(b, 'brought'), 0);
  t.deepEqual(await done, [true]);
  t.is(await prefetched(b, 'brought'), 1);
});

simulated('prefetch: a call that is aborted brings nothing more', async (t, world) => {
  const [a, b] = (await startCluster(world, 2)) as [SimStore, SimStore];
  await setAll(t, a, ['page-0']);
  const ends = new AbortController();
  const waiting = b.prefetch(['page-0'], { by: 60, signal: ends.signal });
  await world.sleep(1_000);
  ends.abort();
  t.deepEqual(await waiting, [false]);
  await world.sleep(120_000);
  t.is(await prefetched(b, 'brought'), 0);
  const late = b.prefetch(['page-0'], { by: 60, timeoutMs: 1_000 });
  await world.sleep(1_500);
  t.deepEqual(await late, [false]);
});

simulated('prefetch: unread pages take a part of the pool at most, and count as wasted in time', async (t, world) => {
  const pages = 64;
  const config = { global_segment_size: pages * PAGE_BYTES, ...DISK, disk_size: '8mb' };
  const store = await startStore(world, { config });
  const keys = keysOf('page', 0.75 * pages);
  await setAll(t, store, keys);
  await setAll(t, store, keysOf('flood', 1.5 * pages));
  await world.until(() => store.stats().disk?.queueBytes === 0);
  const brought = (await store.prefetch(keys)).filter((isHere) => isHere).length;
  t.is(brought, (pages * PREFETCH_POOL_FRACTION) / 2, 'one client: half of what others have left');
  t.is(await store.metric('meshcache_prefetched_unread_bytes'), brought * PAGE_BYTES);
  t.deepEqual(await store.prefetch(keys.slice(-1)), [false], 'no room');
  await world.sleep(PREFETCH_UNREAD_MS - 2_000);
  t.deepEqual(await store.prefetch(keys.slice(-1)), [false], 'no room yet');
  await world.sleep(3_000);
  t.deepEqual(await store.prefetch(keys.slice(-1)), [true]);
  t.is(await prefetched(store, 'wasted'), brought);
});

simulated('prefetch: a few unread pages are wasted after a longer time', async (t, world) => {
  const [a, b] = (await startCluster(world, 2)) as [SimStore, SimStore];
  await setAll(t, a, keysOf('page', 2));
  t.deepEqual(await b.prefetch(['page-0']), [true]);
  await world.sleep(PREFETCH_UNREAD_MS - 1_000);
  await b.prefetch(['page-1']);
  t.is(await prefetched(b, 'wasted'), 0);
  await world.sleep(2_000);
  await b.prefetch(['absent']);
  t.is(await prefetched(b, 'wasted'), 1);
});

simulated(
  'prefetch: requests for much later keep none from being fetched now, however many there are',
  async (t, world) => {
    const [a, b] = (await startCluster(world, 2)) as [SimStore, SimStore];
    await setAll(t, a, ['page-0']);
    const giveUp = new AbortController();
    const later = Array.from({ length: PREFETCHES_LATER_MAX_COUNT / 2 + 1 }, () =>
      b.prefetch(['page-0'], { by: 3600, signal: giveUp.signal }),
    );
    t.deepEqual(await later.at(-1), [false], 'one too many');
    t.is(await prefetched(b, 'refused'), 1);
    t.deepEqual(await b.prefetch(['page-0']), [true]);
    giveUp.abort();
    await Promise.all(later);
    t.deepEqual(await b.prefetch([]), []);
  },
);

simulated('prefetch: a page that leaves the pool unread is wasted', async (t, world) => {
  const [a, b] = (await startCluster(world, 2, { global_segment_size: 16 * PAGE_BYTES })) as [SimStore, SimStore];
  await setAll(t, a, ['page-0']);
  t.deepEqual(await b.prefetch(['page-0']), [true]);
  await setAll(t, b, keysOf('flood', 40));
  t.is(await prefetched(b, 'wasted'), 1);
  t.is(await b.metric('meshcache_prefetched_unread_bytes'), 0);
});

simulated('prefetch: what was deleted or set meanwhile is not brought back', async (t, world) => {
  const [a, b] = (await startCluster(world, 2)) as [SimStore, SimStore];
  await setAll(t, a, ['page-0', 'page-1']);
  t.deepEqual(await b.prefetch(['page-0', 'page-1']), [true, true]);
  t.deepEqual(await a.delete(['page-0']), [true]);
  t.true(await a.set('page-1', content(7, PAGE_BYTES)));
  t.is(await b.get('page-0'), null);
  t.deepEqual(await b.get('page-1'), content(7, PAGE_BYTES));
});

simulated('prefetch: wrong arguments, and a store that is closed, are typed errors', async (t, world) => {
  const store = await startStore(world);
  const wrong: [unknown, unknown, RegExp][] = [
    ['page', {}, /keys/],
    [['page'], { by: -1 }, /prefetch: by must be a number of seconds from now, 0 to 604800, got -1/],
    [['page'], { by: Number.NaN }, /got NaN/],
    [['page'], { by: '5' }, /got "5"/],
    [['page'], { bye: 1 }, /unknown option "bye"; did you mean "by"/],
  ];
  for (const [keys, options, message] of wrong) {
    await t.throwsAsync(store.prefetch(keys as string[], options as object), { instanceOf: ArgumentError, message });
  }
  const waiting = store.prefetch(['page'], { by: 60 });
  await store.close();
  t.deepEqual(await waiting, [false]);
  await t.throwsAsync(store.prefetch(['page']), { instanceOf: ClosedError });
});
