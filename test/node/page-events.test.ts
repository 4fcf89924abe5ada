import { seededRandom } from '../../src/base/environment/random.js';
import { EVENTS_KEPT_MS, EXPIRY_SWEEP_INTERVAL_MS } from '../../src/base/limits.js';
import { FollowedPages, linesOf } from '../../src/sim/check/followed-pages.js';
import { below as randomBelow } from '../../src/sim/world/kernel/seeds.js';
import { PAGE_BYTES, type SimStore, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

/** The pages that a store has, as its events should tell of them. */
function holdingsOf(store: SimStore): string[] {
  return linesOf(Array.from(store.holdings(), ([key, { tier }]) => [key, tier] as const));
}

/** Waits until the list that was kept from events is that of the store. */
async function agree(world: TestWorld, followed: FollowedPages, store: SimStore): Promise<void> {
  await world.until(() => linesOf(followed.pages).join() === holdingsOf(store).join());
}

simulated('page events: pages that come, are overwritten, deleted, cleared and evicted', async (t, world) => {
  const store = await startStore(world, { config: { global_segment_size: 16 * PAGE_BYTES } });
  t.true(await store.set('before', content(0, PAGE_BYTES)));
  const followed = new FollowedPages();
  followed.follow(store);
  await world.until(() => followed.isComplete);
  t.deepEqual(linesOf(followed.pages), holdingsOf(store));
  for (let i = 0; i < 40; i++) t.true(await store.set(`key ${i}`, content(i, PAGE_BYTES - 64)));
  await agree(world, followed, store);
  t.true(followed.pages.size < 20, 'evicted pages are gone');
  t.deepEqual(await store.delete(['key 39']), [true]);
  await agree(world, followed, store);
  t.true(await store.set('key 38', content(100, 100)));
  await agree(world, followed, store);
  await store.clear();
  await agree(world, followed, store);
  t.is(followed.pages.size, 0);
  t.is(followed.resets, 1);
  await followed.end();
});

simulated('page events: a page that moves to the disk tier and back is told with its place', async (t, world) => {
  const config = { global_segment_size: 16 * PAGE_BYTES, disk_enabled: true, disk_path: '/disk', disk_size: '16mb' };
  const store = await startStore(world, { config });
  const followed = new FollowedPages();
  followed.follow(store);
  const keys = Array.from({ length: 60 }, (_, i) => `key ${i}`);
  for (const [i, key] of keys.entries()) t.true(await store.set(key, content(i, PAGE_BYTES - 64)));
  await agree(world, followed, store);
  t.is(followed.pages.size, keys.length);
  t.deepEqual([...new Set(followed.pages.values())].toSorted(), ['disk', 'memory']);
  for (const [i, key] of keys.entries()) t.deepEqual(await store.get(key), content(i, PAGE_BYTES - 64));
  await agree(world, followed, store);
  await followed.end();
});

simulated('page events: an expired page on disk whose successor finds no room is told to be gone', async (t, world) => {
  const poolBytes = 4 * PAGE_BYTES;
  const config = { global_segment_size: poolBytes, disk_enabled: true, disk_path: '/disk', disk_size: '16mb' };
  const store = await startStore(world, { config });
  const followed = new FollowedPages();
  followed.follow(store);
  t.true(await store.set('key', content(0, PAGE_BYTES), { expiresInMs: 2_000 }));
  const expiresMs = world.nowMs + 2_000;
  for (let i = 0; i < 8; i++) t.true(await store.set(`other ${i}`, content(i, PAGE_BYTES - 64)));
  await agree(world, followed, store);
  t.is([...followed.pages].find(([key]) => key.endsWith('/key'))?.[1], 'disk');
  await world.sleep(expiresMs + 1 - world.nowMs);
  t.false(await store.set('key', content(1, poolBytes + 1)));
  await world.sleep(EXPIRY_SWEEP_INTERVAL_MS + 100);
  await agree(world, followed, store);
  await followed.end();
});

simulated('page events: whoever comes back in time gets what has been missed, and no new list', async (t, world) => {
  const store = await startStore(world);
  const followed = new FollowedPages();
  followed.follow(store);
  for (let i = 0; i < 30; i++) t.true(await store.set(`key ${i}`, content(i, 100)));
  await agree(world, followed, store);
  await followed.end();
  t.deepEqual(await store.delete(['key 1', 'key 2']), [true, true]);
  t.true(await store.set('missed', content(1, 100)));
  await world.sleep(EVENTS_KEPT_MS / 2);
  followed.follow(store);
  await agree(world, followed, store);
  t.is(followed.resets, 1);
  await followed.end();
});

simulated(
  'page events: whoever comes back too late, or to another start, knows that the list is new',
  async (t, world) => {
    const store = await startStore(world, { host: '10.0.0.1' });
    const followed = new FollowedPages();
    followed.follow(store);
    t.true(await store.set('first', content(1, 100)));
    await agree(world, followed, store);
    await followed.end();
    await world.sleep(EVENTS_KEPT_MS + 1000);
    t.true(await store.set('second', content(2, 100)));
    followed.follow(store);
    await agree(world, followed, store);
    t.is(followed.resets, 2);
    const { position } = followed;
    await store.close();
    await followed.end();
    const again = await startStore(world, { host: '10.0.0.1' });
    t.true(await again.set('third', content(3, 100)));
    followed.position = position;
    followed.follow(again);
    await agree(world, followed, again);
    t.is(followed.resets, 3);
    t.is(followed.pages.size, 1);
    await followed.end();
  },
);

simulated('page events: positions that are none begin with a list', async (t, world) => {
  const store = await startStore(world);
  for (const position of ['', '-', 'x-1', `${'9'.repeat(400)}-1`, 'ffffffff-99999999999999999999', '0-']) {
    const followed = new FollowedPages();
    followed.position = position;
    followed.follow(store);
    await world.until(() => followed.isComplete);
    t.is(followed.resets, 1, position);
    await followed.end();
  }
});

simulated('page events: closing the store ends all streams', async (t, world) => {
  const store = await startStore(world);
  const followed = [new FollowedPages(), new FollowedPages()];
  for (const pages of followed) pages.follow(store);
  await world.until(() => followed.every(({ isComplete }) => isComplete));
  await store.close();
  for (const pages of followed) await pages.end();
  const { done } = await store.pageEvents().next();
  t.true(done);
});

simulated(
  'page events: random calls on three nodes, with cuts between them: the lists are what the nodes have',
  async (t, world) => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    const below = (count: number) => randomBelow(random, count);
    const config = { global_segment_size: 32 * PAGE_BYTES, promote_hot_reads: true };
    const stores: SimStore[] = [];
    for (let i = 0; i < 3; i++) {
      const disk = i === 0 ? { disk_enabled: true, disk_path: '/disk', disk_size: '16mb' } : {};
      stores.push(await startStore(world, { host: `10.0.0.${i + 1}`, config: { ...config, ...disk } }));
    }
    await world.until(() => stores.every((store) => store.stats().members === 3));
    const followed = stores.map(() => new FollowedPages());
    for (const [i, pages] of followed.entries()) pages.follow(stores[i] as SimStore);
    for (let step = 0; step < 600; step++) {
      const at = below(3);
      const store = stores[at] as SimStore;
      const key = `key ${below(60)}`;
      const dice = below(100);
      if (dice < 50) await store.set(key, content(step, 1 + below(PAGE_BYTES)));
      else if (dice < 85) await store.get(key);
      else if (dice < 95) await store.delete([key]);
      else if (dice < 97) await store.clear();
      else if (dice < 99) {
        await followed[at]?.end();
        followed[at]?.follow(store);
      } else await world.sleep(below(2000));
    }
    for (const [i, pages] of followed.entries()) await agree(world, pages, stores[i] as SimStore);
    // The directory knows where each page of the lists is.
    const [asker] = stores as [SimStore];
    const keys = followed.flatMap(({ pages }) => [...pages.keys()]).map((key) => key.slice(key.indexOf('/') + 1));
    for (const key of keys) t.true(await asker.exists(key), key);
    for (const pages of followed) await pages.end();
  },
);
