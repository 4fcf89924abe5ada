// Regression: a computed page that owners took and then gave up, because another node had it first, made the content of
// a named set before void, and with it the computed page that was kept: all three sets were true, one node read a miss,
// and then all did.

import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { startCluster } from '../_support/node/simulated-stores.js';
import { createCluster, TestHostPool } from '../_support/node/store-fixture.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 1024;
const COUNT = 800;
const KEYS = Array.from({ length: COUNT }, (_, i) => `key ${i}`);
/** The content of all pages of a key that are computed. */
const COMPUTED = 0;

simulated('named and computed: sets of one key at the same time on three nodes leave one content', async (t, world) => {
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? 1);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const stores = await startCluster(world, 3, { global_segment_size: '16mb' });
  const contentOf = (i: number, what: number): Uint8Array => content(what * COUNT + i, PAGE);
  for (const store of stores) {
    const pool = new TestHostPool(COUNT, PAGE, 1);
    t.teardown(() => pool.region.free());
    for (let i = 0; i < COUNT; i++) pool.component(i, 0).set(contentOf(i, COMPUTED));
    await store.registerMemPoolHost(pool);
  }
  const sets = KEYS.map((key, i) =>
    stores.map(async (store, n) => {
      if (random.u32() % 4 > 0) await world.sleep((random.u32() % 100) / 20);
      const what = random.u32() % 3;
      const named = what !== 0 ? store.set(key, contentOf(i, 1 + n)) : true;
      const computed = what !== 1 ? store.batchSetV1([key], [i]) : [true];
      return (await named) && (await computed)[0];
    }),
  );
  const isSet = await Promise.all(sets.map((ofKey) => Promise.all(ofKey)));
  for (const waitMs of [0, 2_000]) {
    await world.sleep(waitMs);
    for (const [i, key] of KEYS.entries()) {
      const read = await Promise.all(stores.map((store) => store.get(key)));
      const found = read.map((bytes) => {
        const isOf = (what: number): boolean => bytes !== null && Buffer.compare(bytes, contentOf(i, what)) === 0;
        return [COMPUTED, 1, 2, 3].findIndex(isOf);
      });
      t.true(new Set(found).size === 1 && found[0] !== -1, `${key}: sets ${isSet[i]}, contents ${found}, -1: none`);
    }
  }
});

// Regression: a named set whose page had been replaced by a computed one of the same node before it was stated, stated
// the computed page, which owners keep beside older computed content: the set was true, and older content was read.
test('named and computed: a named set is newer than an older computed page, also if its node computes the key at once', async (t) => {
  const [older, store, reader] = (await createCluster(3)) as [MeshCacheStore, MeshCacheStore, MeshCacheStore];
  t.teardown(() => Promise.all([older, store, reader].map((each) => each.close())));
  const keys = Array.from({ length: 20 }, (_, i) => `key ${i}`);
  const contentOf = (i: number, what: number): Uint8Array => content(what * keys.length + i, PAGE);
  const register = async (of: MeshCacheStore, what: number): Promise<void> => {
    const pool = new TestHostPool(keys.length, PAGE, 1);
    t.teardown(() => pool.region.free());
    for (const i of keys.keys()) pool.component(i, 0).set(contentOf(i, what));
    await of.registerMemPoolHost(pool);
  };
  await register(older, 0);
  await register(store, 2);
  const indices = [...keys.keys()];
  t.deepEqual(
    await older.batchSetV1(keys, indices),
    keys.map(() => true),
  );
  for (const [i, key] of keys.entries()) {
    const named = store.set(key, contentOf(i, 1));
    const computed = store.batchSetV1([key], [i]);
    // The node is busy, so that the set is stated later than it was made.
    const untilMs = performance.now() + 15;
    while (performance.now() < untilMs);
    t.true(await named, key);
    t.deepEqual(await computed, [true], key);
    for (const each of [older, store, reader]) {
      const read = (await each.get(key)) as Uint8Array;
      t.is(Buffer.compare(read, contentOf(i, 2)), 0, `${key}: the newest content`);
    }
  }
});
