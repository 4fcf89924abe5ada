import type { ExecutionContext } from 'ava';
import { EVICTION_POLICIES } from '../../src/config.js';
import type { PagePriority } from '../../src/core/index.js';
import type { StoreNamespace } from '../../src/store/namespace/store-namespace.js';
import { PAGE_BYTES, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const POOL_PAGES = 16;
const POOL = { global_segment_size: POOL_PAGES * PAGE_BYTES, reuse_quarantine_ms: 0 };

/** Sets pages `${name}0`, ..., one call each. */
async function setAll(
  t: ExecutionContext,
  store: Pick<StoreNamespace, 'set'>,
  name: string,
  count: number,
  priority?: PagePriority,
): Promise<void> {
  for (let i = 0; i < count; i++) {
    t.true(await store.set(`${name}${i}`, content(i, PAGE_BYTES), priority && { priority }), `${name}${i}`);
  }
}

/** Numbers of the pages that are there, by name; the bytes are read and compared where they are. */
async function readAll(t: ExecutionContext, store: StoreNamespace, name: string, count: number): Promise<number[]> {
  const found: number[] = [];
  for (let i = 0; i < count; i++) {
    if (!(await store.exists(`${name}${i}`))) continue;
    t.deepEqual(await store.get(`${name}${i}`), content(i, PAGE_BYTES));
    found.push(i);
  }
  return found;
}

for (const policy of EVICTION_POLICIES) {
  simulated(
    `priority: high pages survive a scan, low ones go first, half at most is high, ${policy}`,
    async (t, world) => {
      const [store, other] = (await startCluster(world, 2, { ...POOL, eviction_policy: policy })) as [
        SimStore,
        SimStore,
      ];
      await setAll(t, store, 'high', 4, 'high');
      await setAll(t, store, 'low', 3, 'low');
      await setAll(t, store, 'normal', POOL_PAGES - 4);
      t.deepEqual(await readAll(t, store, 'low', 3), []);
      await setAll(t, store, 'scan', 10 * POOL_PAGES);
      t.deepEqual(await readAll(t, store, 'high', 4), [0, 1, 2, 3]);
      t.deepEqual(await readAll(t, other, 'high', 4), [0, 1, 2, 3]);
      await setAll(t, store, 'low', 3, 'low');
      t.deepEqual(await readAll(t, store, 'low', 3), [2], 'in a full pool, low pages take the place of each other');
      // The least recently used of these twelve are normal now.
      await setAll(t, store, 'more', 8, 'high');
      await setAll(t, store, 'again', 10 * POOL_PAGES);
      t.deepEqual(await readAll(t, store, 'high', 4), []);
      t.deepEqual(await readAll(t, store, 'more', 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    },
  );
}

simulated('priority: the latest set says it, of a page that is there as well', async (t, world) => {
  const store = await startStore(world, { config: POOL });
  const host = new TestHostPool(4, PAGE_BYTES, 1);
  t.teardown(() => host.region.free());
  await store.registerMemPoolHost(host);
  for (let i = 0; i < 4; i++) host.component(i, 0).set(content(i, PAGE_BYTES));
  const keys = ['page0', 'page1', 'page2', 'page3'];
  const set = async (priority?: PagePriority) => {
    t.deepEqual(await store.batchSetV1(keys, [0, 1, 2, 3], priority && { priority }), [true, true, true, true]);
  };
  const scan = async (name: string): Promise<number> => {
    await setAll(t, store, name, 2 * POOL_PAGES);
    return (await readAll(t, store, 'page', 4)).length;
  };
  await set();
  await set('high');
  t.is(await scan('a'), 4);
  await set();
  t.is(await scan('b'), 0);
  await set('high');
  await set('low');
  await setAll(t, store, 'c', 4);
  t.is((await readAll(t, store, 'page', 4)).length, 0, 'four pages take the places of the four low ones');
  // Of a named page too, whose bytes are the same or others.
  await setAll(t, store, 'named', 2);
  await setAll(t, store, 'named', 2, 'high');
  t.true(await store.set('named1', content(9, PAGE_BYTES), { priority: 'high' }));
  await scan('d');
  t.deepEqual(await store.get('named0'), content(0, PAGE_BYTES));
  t.deepEqual(await store.get('named1'), content(9, PAGE_BYTES));
});

simulated('priority: every call that sets takes one', async (t, world) => {
  const store = await startStore(world, { config: POOL });
  const host = new TestHostPool(8, PAGE_BYTES, 1);
  t.teardown(() => host.region.free());
  await store.registerMemPoolHost(host);
  await store.registerMemHostPoolV2(host, 'mamba');
  const { addr } = host.region;
  const high = { priority: 'high' } as const;
  t.true(await store.set('one', content(1, PAGE_BYTES), high));
  t.true(await store.set('two', addr, PAGE_BYTES, high));
  t.deepEqual(await store.batchSet(['three'], [addr], [PAGE_BYTES], high), [true]);
  t.deepEqual(await store.batchSetV1(['four'], [1], high), [true]);
  t.deepEqual(await store.batchSetV2([{ name: 'mamba', keys: ['five'], hostIndices: [2] }], high), { mamba: [true] });
  t.true((await store.setDetailed('six', content(6, PAGE_BYTES), high)).isSet);
  await setAll(t, store, 'scan', 4 * POOL_PAGES);
  for (const key of ['one', 'two', 'three', 'four', 'six']) t.true(await store.exists(key), key);
  t.deepEqual(await store.batchGetV2([{ name: 'mamba', keys: ['five'], hostIndices: [3] }]), { mamba: [true] });
});

simulated('priority: half of the maximum of a namespace is the most that its high pages take', async (t, world) => {
  const config = { ...POOL, namespace_quotas: { mine: { max: 0.5 }, yours: { max: 0.5 } } };
  const store = await startStore(world, { config });
  const [mine, yours] = [store.namespace({ tag: 'mine' }), store.namespace({ tag: 'yours' })];
  await setAll(t, mine, 'high', 6, 'high');
  await setAll(t, yours, 'low', 8, 'low');
  await setAll(t, mine, 'scan', POOL_PAGES);
  t.deepEqual(await readAll(t, mine, 'high', 6), [2, 3, 4, 5]);
  t.deepEqual(await readAll(t, yours, 'low', 8), [0, 1, 2, 3, 4, 5, 6, 7], 'each pays for its own pages');
});

simulated('priority: a pinned page takes its priority when it is unpinned', async (t, world) => {
  const store = await startStore(world, { config: { ...POOL, pin_max_share: 0.5 } });
  await setAll(t, store, 'page', 3);
  t.deepEqual(await store.pin(['page0', 'page1', 'page2'], { forMs: 60_000 }), [true, true, true]);
  const set = (i: number, priority: PagePriority) => store.set(`page${i}`, content(i, PAGE_BYTES), { priority });
  t.true(await set(0, 'high'));
  t.true(await set(1, 'low'));
  t.true(await set(2, 'high'));
  t.true(await set(2, 'normal'));
  await setAll(t, store, 'scan', 2 * POOL_PAGES);
  t.deepEqual(await readAll(t, store, 'page', 3), [0, 1, 2]);
  await store.unpin(['page0', 'page1', 'page2']);
  await setAll(t, store, 'one', 1);
  t.deepEqual(await readAll(t, store, 'page', 3), [0, 2]);
  await setAll(t, store, 'scan', 2 * POOL_PAGES);
  t.deepEqual(await readAll(t, store, 'page', 3), [0]);
});

simulated('priority: pages that come back from the disk are normal', async (t, world) => {
  const disk = { disk_enabled: true, disk_path: '/disk', disk_size: '16mb' };
  const store = await startStore(world, { config: { ...POOL, ...disk } });
  await setAll(t, store, 'low', 2, 'low');
  await world.until(() => (store.stats().disk?.queueBytes ?? 0) === 0);
  await setAll(t, store, 'scan', POOL_PAGES);
  await setAll(t, store, 'high', 2, 'high');
  t.deepEqual(await readAll(t, store, 'low', 2), [0, 1]);
  // Read often enough, they are in the pool again, and outlive low ones.
  for (let i = 0; i < 5; i++) await readAll(t, store, 'low', 2);
  await world.until(() => store.stats().poolEntries === POOL_PAGES);
  t.deepEqual(await readAll(t, store, 'high', 2), [0, 1]);
});

simulated('priority: other words are refused', async (t, world) => {
  const store = await startStore(world);
  for (const priority of ['urgent', 'High', 1, null, {}] as unknown as PagePriority[]) {
    await t.throwsAsync(store.set('page', content(1, PAGE_BYTES), { priority }), {
      code: 'ERR_ARGUMENT',
      message: /^set: priority must be "low", "normal" or "high", got /,
    });
  }
  t.is(store.stats().poolEntries, 0);
});
