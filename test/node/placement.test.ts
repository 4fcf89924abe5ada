import type { ExecutionContext } from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { hostPages } from '../../src/store/namespace/host-pages.js';
import type { NodeNamespace } from '../../src/store/namespace/node-namespace.js';
import { drain } from '../_support/node/drain-node.js';
import { type SimStore, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 64 * 1024;
const ENGINE = { global_segment_size: '1mb', reuse_quarantine_ms: 0, write_policy: 'storage' };
const STORAGE = { global_segment_size: '16mb', reuse_quarantine_ms: 0, role: 'storage' };

/** Starts two storage nodes and `engines` engines with small pools that place their pages there. */
async function startPlacing(
  world: TestWorld,
  { engines = 1, engine = {}, storage = {} } = {},
): Promise<{ readonly storage: readonly SimStore[]; readonly engines: readonly SimStore[] }> {
  const stores: SimStore[] = [];
  for (let i = 0; i < 2; i++) stores.push(await startStore(world, { config: { ...STORAGE, ...storage } }));
  for (let i = 0; i < engines; i++) stores.push(await startStore(world, { config: { ...ENGINE, ...engine } }));
  await world.until(() => stores.every((store) => store.stats().members === stores.length));
  return { storage: stores.slice(0, 2), engines: stores.slice(2) };
}

/** Sets pages, each when storage nodes have those before it, and waits until they have all. */
async function setPlaced(world: TestWorld, store: SimStore, keys: readonly string[]): Promise<void> {
  for (const key of keys) {
    if (!(await store.set(key, content(seedOf(key), PAGE)))) throw new Error(key);
    await world.until(() => store.stats().placement?.unplacedPages === 0);
  }
}

/** Expects that the store reads this page. */
async function expectPage(t: ExecutionContext, store: NodeNamespace, key: string, bytes: Uint8Array): Promise<void> {
  const page = await store.get(key);
  t.true(page !== null && Buffer.compare(page, bytes) === 0, `${key}: ${page === null ? 'a miss' : 'other bytes'}`);
}

function seedOf(key: string): number {
  return Number(key.split(' ')[1]);
}

function keysOf(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `page ${i}`);
}

simulated(
  'placement: pages of a small pool are found on storage nodes, also when their node is dead',
  async (t, world) => {
    const { engines, storage } = await startPlacing(world, { engines: 2 });
    const [writer, reader] = engines as [SimStore, SimStore];
    const keys = keysOf(60);
    await setPlaced(world, writer, keys);
    t.true(
      storage.every((store) => store.stats().poolEntries > 10),
      'both storage nodes have a share',
    );
    for (const key of keys) await expectPage(t, writer, key, content(seedOf(key), PAGE));
    writer.process.kill();
    await world.until(() => reader.stats().members === 3);
    for (const key of keys) await expectPage(t, reader, key, content(seedOf(key), PAGE));
  },
);

simulated('placement: a storage node that sets a page that it has taken keeps it', async (t, world) => {
  const { engines, storage } = await startPlacing(world, { engines: 2, engine: { write_policy: 'both' } });
  const [writer, reader] = engines as [SimStore, SimStore];
  const keys = keysOf(8);
  const region = HostRegion.wrap(Buffer.concat(keys.map((key) => content(seedOf(key), PAGE))));
  const setAll = async (store: SimStore): Promise<void> => {
    await store.registerMemPoolHost(hostPages({ region, pageBytes: PAGE }));
    const indices = keys.map((_, i) => i);
    t.false((await store.batchSetV1(keys, indices)).includes(false));
  };
  await setAll(writer);
  await world.until(() => writer.stats().placement?.unplacedPages === 0);
  for (const store of storage) await setAll(store);
  await world.sleep(1_000);
  writer.process.kill();
  await world.until(() => reader.stats().members === 3);
  for (const key of keys) await expectPage(t, reader, key, content(seedOf(key), PAGE));
  region.free();
});

simulated(
  'placement: what is cleared is gone on storage nodes before the call returns, evicted pages included',
  async (t, world) => {
    const { engines, storage } = await startPlacing(world, { engines: 2 });
    const [writer, other] = engines as [SimStore, SimStore];
    const keys = keysOf(40);
    await setPlaced(world, writer, keys);
    await setPlaced(world, other, ['other 77']);
    t.true(writer.stats().poolEntries < keys.length);
    await writer.clear();
    for (const key of keys) for (const store of [writer, other, ...storage]) t.is(await store.get(key), null, key);
    await expectPage(t, writer, 'other 77', content(77, PAGE));
    t.is(
      storage.reduce((sum, store) => sum + store.stats().poolEntries, 0),
      1,
    );
    await setPlaced(world, writer, keys.slice(0, 3));
    await expectPage(t, other, 'page 0', content(0, PAGE));
  },
);

simulated('placement: what is cleared while a storage node is cut off is gone when it is back', async (t, world) => {
  const { engines, storage } = await startPlacing(world);
  const [writer] = engines as [SimStore];
  const keys = keysOf(40);
  await setPlaced(world, writer, keys);
  const [lost] = storage as [SimStore];
  world.isolate(lost.process.host.address);
  await world.until(() => writer.stats().members === 2);
  await writer.clear();
  world.heal();
  await world.until(() => [writer, ...storage].every((store) => store.stats().members === 3));
  await world.until(() => lost.stats().poolEntries === 0);
  for (const key of keys) for (const store of [writer, ...storage]) t.is(await store.get(key), null, key);
});

simulated('placement: clearing a namespace leaves what was placed of others', async (t, world) => {
  const { engines, storage } = await startPlacing(world);
  const [writer] = engines as [SimStore];
  const weights = writer.namespace({ modelName: 'test', tag: 'weights' });
  t.true(await weights.set('page 1', content(1, PAGE)));
  await setPlaced(world, writer, ['page 2']);
  await weights.clear();
  t.is(await weights.get('page 1'), null);
  t.is(
    storage.reduce((sum, store) => sum + store.stats().poolEntries, 0),
    1,
  );
  await expectPage(t, writer, 'page 2', content(2, PAGE));
});

simulated(
  'placement: an overwritten or deleted page is gone on storage nodes before the call returns',
  async (t, world) => {
    const { engines, storage } = await startPlacing(world, { engines: 2 });
    const [writer, other] = engines as [SimStore, SimStore];
    await setPlaced(world, writer, ['page 1', 'page 2', 'page 3']);
    t.true(await other.set('page 1', content(9, PAGE)));
    for (const store of [writer, other, ...storage]) await expectPage(t, store, 'page 1', content(9, PAGE));
    t.deepEqual(await writer.delete(['page 2']), [true]);
    for (const store of [writer, other, ...storage]) t.is(await store.get('page 2'), null);
    await world.until(() => other.stats().placement?.unplacedPages === 0);
    // The same bytes again are the newest: the storage node takes the version over, and reads nothing.
    const copied = await Promise.all(
      storage.map((store) => store.metric('meshcache_copied_pages_total', { reason: 'placement' })),
    );
    await setPlaced(world, writer, ['page 3']);
    await setPlaced(world, writer, keysOf(60).slice(20));
    await expectPage(t, writer, 'page 3', content(3, PAGE));
    const later = await Promise.all(
      storage.map((store) => store.metric('meshcache_copied_pages_total', { reason: 'placement' })),
    );
    t.is(later.reduce((sum, count) => sum + count, 0) - copied.reduce((sum, count) => sum + count, 0), 40);
  },
);

simulated(
  'placement: while a storage node is frozen, the other one takes the pages, and sets do not wait',
  async (t, world) => {
    const { engines, storage } = await startPlacing(world);
    const [writer] = engines as [SimStore];
    const [frozen, left] = storage as [SimStore, SimStore];
    frozen.process.stop();
    const startMs = world.nowMs;
    for (const key of keysOf(10)) t.true(await writer.set(key, content(seedOf(key), PAGE)));
    t.true(world.nowMs - startMs < 5_000, `${world.nowMs - startMs} ms`);
    await world.until(() => writer.stats().placement?.unplacedPages === 0);
    await setPlaced(world, writer, keysOf(40));
    t.is(left.stats().poolEntries, 40);
    frozen.process.continue();
    await world.until(() => [writer, ...storage].every((store) => store.stats().members === 3));
    await setPlaced(
      world,
      writer,
      Array.from({ length: 40 }, (_, i) => `page ${100 + i}`),
    );
    t.true(frozen.stats().poolEntries > 5, 'it takes pages again');
    for (const key of keysOf(40)) await expectPage(t, writer, key, content(seedOf(key), PAGE));
  },
);

simulated(
  'placement: pages that were placed on a node that died are placed anew, as far as they are left',
  async (t, world) => {
    const { engines, storage } = await startPlacing(world, { engine: { write_policy: 'both' } });
    const [writer] = engines as [SimStore];
    const [dead, left] = storage as [SimStore, SimStore];
    const keys = keysOf(10);
    await setPlaced(world, writer, keys);
    dead.process.kill();
    await world.until(() => writer.stats().members === 2);
    await world.until(() => left.stats().poolEntries === keys.length);
    for (const key of keys) await expectPage(t, left, key, content(seedOf(key), PAGE));
  },
);

simulated(
  'placement: without storage nodes sets go on, and a storage node that comes takes what is left',
  async (t, world) => {
    const writer = await startStore(world, { config: ENGINE });
    for (const key of keysOf(8)) t.true(await writer.set(key, content(seedOf(key), PAGE)));
    t.is(await writer.metric('meshcache_placement_failures_total', { reason: 'no_node' }), 8);
    const storage = await startStore(world, { config: STORAGE });
    await world.until(() => storage.stats().poolEntries === 8);
    await world.until(() => writer.stats().placement?.poolPlacedPages === 8);
  },
);

simulated('placement: a full storage node evicts, and takes no page that is larger than its pool', async (t, world) => {
  const { engines, storage } = await startPlacing(world, { storage: { global_segment_size: '640kb' } });
  const [writer] = engines as [SimStore];
  await setPlaced(world, writer, keysOf(60));
  t.true(storage.every((store) => store.stats().evictions > 10));
  t.true(await writer.set('large 1', content(1, 10 * PAGE + 1)));
  await world.until(() => writer.stats().placement?.unplacedPages === 0);
  t.is(await writer.metric('meshcache_placement_failures_total', { reason: 'too_large' }), 1);
  await expectPage(t, writer, 'large 1', content(1, 10 * PAGE + 1));
});

for (const policy of ['storage', 'both']) {
  simulated(
    `placement: with the policy ${policy}, pages that are placed are evicted ${policy === 'both' ? 'in their turn' : 'before others'}`,
    async (t, world) => {
      const engine = { write_policy: policy, namespace_write_policies: { own: 'local' } };
      const { engines } = await startPlacing(world, { engine });
      const [writer] = engines as [SimStore];
      const own = writer.namespace({ modelName: 'test', tag: 'own' });
      const first = keysOf(6);
      for (const key of first) t.true(await own.set(key, content(seedOf(key), PAGE)));
      await setPlaced(world, writer, keysOf(6));
      t.is(writer.stats().placement?.poolPlacedPages, 6);
      for (const key of keysOf(12).slice(6)) t.true(await own.set(key, content(seedOf(key), PAGE)));
      t.true(writer.stats().evictions > 0);
      t.is(await own.batchExists(first), policy === 'both' ? 0 : first.length);
      for (const key of keysOf(6)) await expectPage(t, writer, key, content(seedOf(key), PAGE));
    },
  );
}

simulated('placement: write policies of single namespaces go before that of the node', async (t, world) => {
  const engine = { write_policy: 'local', namespace_write_policies: { weights: 'both' } };
  const { engines, storage } = await startPlacing(world, { engine });
  const [writer] = engines as [SimStore];
  const weights = writer.namespace({ modelName: 'test', tag: 'weights' });
  t.true(await weights.set('page 1', content(1, PAGE)));
  t.true(await writer.set('page 2', content(2, PAGE)));
  await world.until(() => writer.stats().placement?.unplacedPages === 0);
  t.is(
    storage.reduce((sum, store) => sum + store.stats().poolEntries, 0),
    1,
  );
  t.is(writer.stats().placement?.placedPages, 1);
});

simulated('placement: a node that is drained hands its pages over to storage nodes', async (t, world) => {
  const { engines, storage } = await startPlacing(world, { engines: 3, engine: { write_policy: 'local' } });
  const [leaving, reader, bystander] = engines as [SimStore, SimStore, SimStore];
  for (const key of keysOf(10)) t.true(await leaving.set(key, content(seedOf(key), PAGE)));
  for (const key of keysOf(10)) await expectPage(t, reader, key, content(seedOf(key), PAGE));
  await drain(world, leaving);
  await leaving.drained;
  t.is(
    storage.reduce((sum, store) => sum + store.stats().poolEntries, 0),
    10,
  );
  t.is(bystander.stats().poolEntries, 0);
});

simulated(
  'placement: a storage node writes what it takes to its disk, and finds it after a restart',
  async (t, world) => {
    const disk = {
      disk_enabled: true,
      disk_path: '/disk',
      disk_size: '64mb',
      global_segment_size: '640kb',
      node_id: 'storage',
    };
    const setup = { host: '10.0.0.9', config: { ...STORAGE, ...disk } };
    const writer = await startStore(world, { config: ENGINE });
    const reader = await startStore(world, { config: { ...ENGINE, write_policy: 'local' } });
    const storage = await startStore(world, setup);
    await world.until(() => writer.stats().members === 3);
    const keys = keysOf(40);
    await setPlaced(world, writer, keys);
    for (const key of keys) await expectPage(t, reader, key, content(seedOf(key), PAGE));
    await storage.close();
    storage.process.kill();
    const again = await startStore(world, setup);
    await world.until(() => writer.stats().members === 3);
    // It reads none of them before others have told it which are void.
    await world.until(async () => (await reader.get('page 0')) !== null);
    for (const key of keys.slice(0, 30)) await expectPage(t, reader, key, content(seedOf(key), PAGE));
    await writer.clear();
    for (const key of keys) for (const store of [writer, reader, again]) t.is(await store.get(key), null, key);
    t.is(again.stats().disk?.entries, 0);
  },
);

simulated(
  'placement: what is cleared while it is on its way to a storage node does not come back',
  async (t, world) => {
    const { engines, storage } = await startPlacing(world, { engines: 2, engine: { global_segment_size: '4mb' } });
    const [writer, reader] = engines as [SimStore, SimStore];
    for (let round = 0; round < 16; round++) {
      const keys = keysOf(20).map((key) => `${key} ${round}`);
      for (const key of keys) t.true(await writer.set(key, content(seedOf(key), PAGE)));
      await world.sleep(round / 2);
      await writer.clear();
      for (const store of [...storage, reader]) t.is(await store.batchExists([keys[19] as string]), 0);
      for (const key of keys)
        for (const store of [...storage, reader]) t.is(await store.get(key), null, `${key} ${round}`);
    }
    await world.sleep(10_000);
    t.is(
      storage.reduce((sum, store) => sum + store.stats().poolEntries, 0),
      0,
    );
  },
);

simulated(
  'placement: a storage node that is killed finds what it has taken in its pool, but nothing that was cleared meanwhile',
  async (t, world) => {
    const setup = { host: '10.0.0.9', config: { ...STORAGE, pool_path: '/pool', node_id: 'storage' } };
    const writer = await startStore(world, { config: ENGINE });
    const reader = await startStore(world, { config: { ...ENGINE, write_policy: 'local' } });
    const storage = await startStore(world, setup);
    await world.until(() => writer.stats().members === 3);
    const keys = keysOf(40);
    await setPlaced(world, writer, keys);
    const restarted = async (whileDown: () => Promise<unknown>): Promise<SimStore> => {
      await whileDown();
      const again = await startStore(world, setup);
      await world.until(() => writer.stats().members === 3);
      return again;
    };
    storage.process.kill();
    const again = await restarted(async () => {});
    for (const key of keys) await world.until(async () => (await reader.get(key)) !== null);
    for (const key of keys) await expectPage(t, reader, key, content(seedOf(key), PAGE));
    again.process.kill();
    const emptied = await restarted(() => writer.clear());
    for (let look = 0; look < 10; look++) {
      for (const key of keys) for (const store of [writer, reader, emptied]) t.is(await store.get(key), null, key);
      await world.sleep(500);
    }
    t.is(emptied.stats().poolEntries, 0);
  },
);

simulated(
  'placement: a computed page that is set again with a later expiry keeps it on its storage node, too',
  async (t, world) => {
    const { engines } = await startPlacing(world, { engines: 2 });
    const [writer, reader] = engines as [SimStore, SimStore];
    const region = HostRegion.wrap(new SharedArrayBuffer(3 * PAGE));
    region.bytes().set(content(1, 3 * PAGE));
    await writer.registerMemPoolHost(hostPages({ region, pageBytes: PAGE }));
    const isPlaced = () => world.until(() => writer.stats().placement?.unplacedPages === 0);
    await writer.batchSetV1(['once', 'later', 'ever'], [0, 1, 2], { expiresInMs: 20_000 });
    await isPlaced();
    await writer.batchSetV1(['later'], [1], { expiresInMs: 60_000 });
    await writer.batchSetV1(['ever'], [2]);
    await isPlaced();
    writer.process.kill();
    await world.sleep(30_000);
    t.deepEqual(await Promise.all(['once', 'later', 'ever'].map((key) => reader.exists(key))), [false, true, true]);
    await expectPage(t, reader, 'later', region.bytes(PAGE, PAGE));
    await expectPage(t, reader, 'ever', region.bytes(2 * PAGE, PAGE));
    await world.sleep(60_000);
    t.deepEqual(await Promise.all(['later', 'ever'].map((key) => reader.exists(key))), [false, true]);
  },
);

simulated('placement: a page that no storage node could read is placed later', async (t, world) => {
  const { engines, storage } = await startPlacing(world);
  const [writer] = engines as [SimStore];
  const [lost, left] = storage as [SimStore, SimStore];
  lost.process.kill();
  await world.until(() => writer.stats().members === 2);
  await setPlaced(world, writer, ['page 0']);
  t.true(await writer.set('page 1', content(1, PAGE)));
  writer.process.stop();
  await world.sleep(3500);
  writer.process.continue();
  await world.until(() => writer.stats().placement?.unplacedPages === 0);
  t.is(await writer.metric('meshcache_placement_failures_total', { reason: 'unread' }), 1);
  t.is(left.stats().poolEntries, 1);
  await world.until(() => left.stats().poolEntries === 2);
  t.is(writer.stats().placement?.poolPlacedPages, 2);
});
