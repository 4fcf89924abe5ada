import { DROPS_MAX_KEYS } from '../../src/base/limits.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { PAGE_BYTES, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

/** A cluster whose hosts have their dates so far ahead. */
async function trio(world: TestWorld, aheadMs: readonly number[]): Promise<MeshCacheStore[]> {
  const stores: MeshCacheStore[] = [];
  for (const [i, ms] of aheadMs.entries()) {
    const { host } = world.process(`10.0.0.${i + 1}`);
    host.time.jump(ms);
    stores.push(await startStore(world, { host: host.address }));
  }
  await world.until(() => stores.every((store) => store.stats().members === aheadMs.length));
  return stores;
}

// Cause: pages older than the deleting node's own clock were dropped, and others left, for good; the answer was true
// all the same.
simulated(
  'delete: what a node with its clock ahead has set is gone when another one has deleted it',
  async (t, world) => {
    const stores = await trio(world, [5_000, 0, 0]);
    const [ahead, other] = stores as [MeshCacheStore, MeshCacheStore];
    const keys = Array.from({ length: 20 }, (_, i) => `key ${i}`);
    for (const [i, key] of keys.entries()) t.true(await ahead.set(key, content(i, PAGE_BYTES)));
    t.deepEqual(
      await other.delete(keys),
      keys.map(() => true),
    );
    for (const store of stores) t.deepEqual(await Promise.all(keys.map((key) => store.get(key))), Array(20).fill(null));
    t.is(ahead.stats().poolEntries, 0);
    for (const [i, key] of keys.entries()) t.true(await other.set(key, content(100 + i, PAGE_BYTES)));
    for (const store of stores) t.deepEqual(await store.get('key 7'), content(107, PAGE_BYTES));
  },
);

// Cause: a deletion that met a newer page was repeated with a later version, also when its caller had given it up and
// others had set the page since.
simulated('delete: one that is given up does not reach what is newer', async (t, world) => {
  const [setter, deleter] = (await trio(world, [0, 0, 0])) as [MeshCacheStore, MeshCacheStore];
  t.true(await setter.set('key', content(1, PAGE_BYTES)));
  const keys = setter.keyEncoder.encodeKeys(['key']);
  const { drops } = deleter.runtime;
  t.deepEqual(await drops.deleteEverywhere(keys, 1, () => true), [false]);
  for (const store of [setter, deleter]) t.deepEqual(await store.get('key'), content(1, PAGE_BYTES));
  t.deepEqual(await drops.deleteEverywhere(keys, 1, () => false), [true]);
  for (const store of [setter, deleter]) t.is(await store.get('key'), null);
});

simulated(
  'delete: of two nodes in turn, each of which sets what the other one deletes, none keeps a page',
  async (t, world) => {
    const stores = await trio(world, [0, 0, 0]);
    for (let i = 0; i < 300; i++) {
      const [setter, deleter] = [stores[i % 3], stores[(i + 1) % 3]] as [MeshCacheStore, MeshCacheStore];
      t.true(await setter.set(`key ${i}`, content(i, PAGE_BYTES)));
      t.deepEqual(await deleter.delete([`key ${i}`]), [true]);
    }
    t.deepEqual(
      stores.map((store) => store.stats().poolEntries),
      [0, 0, 0],
    );
  },
);

// Cause: members were told of as many keys as they may owe, the first were forgotten, and these counted as dropped.
simulated(
  'delete: more keys than a member may owe are all gone, and of those that are not none is true',
  async (t, world) => {
    const stores = await trio(world, [0, 0]);
    const [setter, deleter] = stores as [MeshCacheStore, MeshCacheStore];
    const keys = Array.from({ length: DROPS_MAX_KEYS + 100 }, (_, i) => `key ${i}`);
    const [first] = keys as [string];
    t.true(await setter.set(first, content(1, PAGE_BYTES)));
    const [deleted] = await deleter.delete(keys);
    t.is(deleted, true);
    t.is(await setter.get(first), null);
  },
);

simulated('delete: two calls with the same keys at the same time are both true', async (t, world) => {
  const stores = await trio(world, [0, 0]);
  const [setter, deleter] = stores as [MeshCacheStore, MeshCacheStore];
  t.true(await setter.set('key', content(1, PAGE_BYTES)));
  t.deepEqual(await Promise.all([deleter.delete(['key']), deleter.delete(['key', 'key'])]), [[true], [true, true]]);
  t.is(await setter.get('key'), null);
});

// Cause: all messages to a member had the time of one call together, and then all keys counted as not deleted.
simulated(
  'delete: many keys are gone although telling a member of them takes longer than one call',
  async (t, world) => {
    const stores = await trio(world, [0, 0]);
    const [deleter, setter] = stores as [MeshCacheStore, MeshCacheStore];
    const keys = Array.from({ length: 6_000 }, (_, i) => `${'x'.repeat(300)} ${i}`);
    for (let i = 0; i < keys.length; i += 500) {
      const set = await Promise.all(keys.slice(i, i + 500).map((key) => setter.set(key, content(i, 64))));
      t.true(set.every(Boolean));
    }
    world.narrow('10.0.0.1', '10.0.0.2', 600_000);
    t.true((await deleter.delete(keys)).every(Boolean));
    t.is(setter.stats().poolEntries, 0);
  },
);

for (const waitMs of [0, 50, 150])
  simulated(`delete: not true by a member that is dropped during the call, after ${waitMs} ms`, async (t, world) => {
    // Cause: who was no member any more when the call ended counted as one that had answered.
    const stores = await trio(world, [0, 0, 0]);
    const away = await startStore(world, { host: '10.0.0.9' });
    await world.until(() => [...stores, away].every((store) => store.stats().members === 4));
    await world.sleep(waitMs);
    const keys = Array.from({ length: 24 }, (_, i) => `key ${i}`);
    for (const [i, key] of keys.entries()) t.true(await away.set(key, content(i, PAGE_BYTES)));
    world.isolate('10.0.0.9');
    const isDeleted = await (stores[1] as MeshCacheStore).delete(keys);
    const read = await Promise.all(keys.map((key) => away.get(key)));
    t.is(read.filter((bytes, i) => isDeleted[i] && bytes !== null).length, 0);
  });
