import { PAGE_BYTES, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const AHEAD_MS = 60_000;
const HOST = '10.0.0.1';

/** Has the clock of the first node be ahead for a while, in which it sets a page, and be right again. */
async function stepped(world: TestWorld, stores: readonly SimStore[]): Promise<void> {
  const time = world.hosts.get(HOST)?.time;
  time?.jump(AHEAD_MS);
  await world.sleep(3_500);
  await stores[0]?.set('while it was ahead', content(1, PAGE_BYTES));
  await world.sleep(3_500);
  time?.jump(-AHEAD_MS);
  // As long as that the present is far from the latest version.
  await world.sleep(20_000);
}

simulated(
  'clock steps: after a clock was ahead and is right again, pages expire when they should, on all nodes',
  async (t, world) => {
    const stores = await startCluster(world, 3);
    await stepped(world, stores);
    const [first, second] = stores as [SimStore, SimStore];
    t.true(await first.set('short', content(2, PAGE_BYTES), { expiresInMs: 1_000 }));
    t.true(await second.set('longer', content(3, PAGE_BYTES), { expiresInMs: 30_000 }));
    const late = await startStore(world);
    const all = [...stores, late];
    await world.until(() => all.every((store) => store.stats().members === 4));
    await world.sleep(1_000);
    t.deepEqual(await Promise.all(all.map((store) => store.exists('short'))), [false, false, false, false]);
    t.deepEqual(await Promise.all(all.map((store) => store.exists('longer'))), [true, true, true, true]);
    t.true(await late.set('late', content(4, PAGE_BYTES), { expiresInMs: 5_000 }));
    for (const store of all) t.deepEqual(await store.get('late'), content(4, PAGE_BYTES));
  },
);

simulated(
  'clock steps: after a clock was ahead and is right again, what a node sets while it is cut off is the newest',
  async (t, world) => {
    const stores = await startCluster(world, 3, { directory_replicas: 1, max_masters: 3 });
    await stepped(world, stores);
    const [first, second, third] = stores as [SimStore, SimStore, SimStore];
    const keys = Array.from({ length: 20 }, (_, i) => `page ${i}`);
    world.isolate(third.process.host.address);
    await world.until(() => third.stats().members === 1 && first.stats().members === 2);
    for (const key of keys) t.true(await first.set(key, content(5, PAGE_BYTES)));
    await world.sleep(2_000);
    // Each side gives out versions of its own: only those that follow the time are in its order.
    for (const key of [...keys].reverse()) t.true(await third.set(key, content(6, PAGE_BYTES)));
    world.heal();
    await world.until(() => stores.every((store) => store.stats().members === 3));
    await world.sleep(10_000);
    for (const store of [first, second, third]) {
      for (const key of keys) t.deepEqual(await store.get(key), content(6, PAGE_BYTES), key);
    }
  },
);
