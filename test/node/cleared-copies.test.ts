import { type SimStore, startCluster, TTL_S } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 64 * 1024;
const SMALL = { global_segment_size: '1mb', reuse_quarantine_ms: 0 };
const POOL_PAGES = 2 ** 20 / PAGE;

simulated('clear: the copy of an evicted page goes, also on a node that was cut off meanwhile', async (t, world) => {
  // Cause: the owners did not know the version of a page that had been evicted when it was cleared, and took its copy
  // again.
  const [owner, copier] = (await startCluster(world, 2, SMALL)) as [SimStore, SimStore];
  t.true(await owner.set('page', content(1, PAGE)));
  t.deepEqual(await copier.pin(['page'], { forMs: 1 }), [true]);
  t.is(copier.stats().poolEntries, 1);
  world.isolate(copier.process.host.address);
  await world.until(() => owner.stats().members === 1);
  for (let i = 0; i < 2 * POOL_PAGES; i++) t.true(await owner.set(`other ${i}`, content(100 + i, PAGE)));
  await owner.clear();
  world.heal();
  await world.until(() => [owner, copier].every((store) => store.stats().members === 2));
  await world.sleep(5 * TTL_S * 1000);
  for (const store of [owner, copier]) t.is(await store.get('page'), null);
});

simulated(
  'clear: a copy on a node that does not hear of it is a miss for all others, and goes when it does',
  async (t, world) => {
    const stores = (await startCluster(world, 4, { ...SMALL, global_segment_size: '4mb' })) as SimStore[];
    const [, owner, copier, reader] = stores as [SimStore, SimStore, SimStore, SimStore];
    const keys = Array.from({ length: 8 }, (_, i) => `page ${i}`);
    for (const [i, key] of keys.entries()) t.true(await owner.set(key, content(i, PAGE)));
    t.deepEqual(
      await copier.pin(keys, { forMs: 1 }),
      keys.map(() => true),
    );
    // What the clearing node says is passed on to those that have just joined.
    await world.sleep(5 * TTL_S * 1000);
    const [from, to] = [owner.process.host.address, copier.process.host.address];
    world.cutOneWay(from, to);
    world.cutOneWay(to, from);
    await owner.clear();
    t.is(copier.stats().poolEntries, keys.length, 'it has not heard of it');
    for (const key of keys) for (const store of [owner, reader]) t.is(await store.get(key), null, key);
    world.heal();
    await world.until(() => copier.stats().poolEntries === 0);
    for (const key of keys) for (const store of stores) t.is(await store.get(key), null, key);
  },
);

simulated('clear: the copy of a copy goes, though the node that it was made from has left', async (t, world) => {
  const stores = (await startCluster(world, 4, SMALL)) as SimStore[];
  const [, owner, first, second] = stores as [SimStore, SimStore, SimStore, SimStore];
  t.true(await owner.set('page', content(1, PAGE)));
  t.deepEqual(await first.pin(['page'], { forMs: 1 }), [true]);
  for (let i = 0; i < 2 * POOL_PAGES; i++) t.true(await owner.set(`other ${i}`, content(100 + i, PAGE)));
  t.deepEqual(await second.pin(['page'], { forMs: 1 }), [true]);
  first.process.kill();
  await world.until(() => owner.stats().members === 3);
  t.not(await owner.get('page'), null);
  await owner.clear();
  t.is(second.stats().poolEntries, 0);
  for (const store of [owner, second]) t.is(await store.get('page'), null);
});

simulated('clear: a node that was away hears of it from others when the clearing node has left', async (t, world) => {
  const stores = (await startCluster(world, 4, SMALL)) as SimStore[];
  const [, owner, copier, other] = stores as [SimStore, SimStore, SimStore, SimStore];
  t.true(await owner.set('page', content(1, PAGE)));
  t.deepEqual(await copier.pin(['page'], { forMs: 1 }), [true]);
  world.isolate(copier.process.host.address);
  await world.until(() => other.stats().members === 3);
  await owner.clear();
  await owner.close();
  world.heal();
  await world.until(() => [copier, other].every((store) => store.stats().members === 3));
  await world.until(() => copier.stats().poolEntries === 0);
  for (const store of [copier, other]) t.is(await store.get('page'), null);
});
