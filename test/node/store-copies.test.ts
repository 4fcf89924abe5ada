import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { createCluster, createStore } from '../_support/node/store-fixture.js';
import { content, freePort } from '../_support/support.js';

const MIB = 2 ** 20;
/** Long enough that other threads copy them, where there are some. */
const LARGE = 3 * MIB;

function region(t: ExecutionContext, length: number): HostRegion {
  const made = HostRegion.allocate(length);
  t.teardown(() => made.free());
  return made;
}

test('store copies: an entry can be read as soon as it has been set, and not before it is whole', async (t) => {
  const store = await createStore(await freePort());
  t.teardown(() => store.close());
  const [from, to] = [region(t, LARGE), region(t, LARGE)];
  for (let version = 0; version < 10; version++) {
    from.bytes().set(content(version, LARGE));
    const setting = store.set('k', from.addr, LARGE);
    const early = await store.get('k', to.addr, LARGE);
    if (early) {
      const isOne = [version, version - 1].some((each) => Buffer.compare(to.bytes(), content(each, LARGE)) === 0);
      t.true(isOne, `version ${version}`);
    }
    t.true(await setting);
    t.true(await store.get('k', to.addr, LARGE));
    t.is(Buffer.compare(to.bytes(), content(version, LARGE)), 0);
  }
});

test('store copies: a caller may free its memory at once, and clear may come in between', async (t) => {
  const [a, b] = (await createCluster(2)) as [MeshCacheStore, MeshCacheStore];
  t.teardown(() => Promise.all([a.close(), b.close()]));
  const others: HostRegion[] = [];
  for (let round = 0; round < 12; round++) {
    const from = HostRegion.allocate(LARGE);
    from.bytes().set(content(round, LARGE));
    const setting = a.set('k', from.addr, LARGE);
    from.free();
    // What is allocated now must not be what is still being copied from.
    const other = region(t, LARGE);
    other.bytes().fill(0xee);
    others.push(other);
    if (round % 3 === 0) await Promise.all([a.clear(), setting]);
    else t.true(await setting);
    const got = await b.get('k');
    if (got !== null) t.is(Buffer.compare(got, content(round, LARGE)), 0, `round ${round}`);
    else t.is(round % 3, 0);
    const target = HostRegion.allocate(LARGE);
    const getting = a.get('k', target.addr, LARGE);
    target.free();
    const later = region(t, LARGE);
    later.bytes().fill(0xdd);
    others.push(later);
    await getting;
    t.is(Buffer.compare(later.bytes(), new Uint8Array(LARGE).fill(0xdd)), 0);
  }
});

test('store copies: close waits for them, and calls under way end as misses', async (t) => {
  for (let round = 0; round < 5; round++) {
    const store = await createStore(await freePort());
    const memory = region(t, 4 * LARGE);
    memory.bytes().set(content(1, memory.length));
    const at = (i: number) => memory.addr + BigInt(i * LARGE);
    t.true(await store.set('k', at(0), LARGE));
    const calls = [
      store.set('a', at(1), LARGE),
      store.get('k', at(2), LARGE),
      store.set('b', at(1), LARGE),
      store.get('k', at(3), LARGE),
    ];
    const closing = store.close();
    const results = await Promise.all(calls);
    t.true(results.every((result) => typeof result === 'boolean'));
    await closing;
    const before = memory.bytes().slice();
    await new Promise((resolve) => setImmediate(resolve));
    t.is(Buffer.compare(memory.bytes(), before), 0);
  }
});

test('store copies: many calls at once on few keys and little room leave every page with its own bytes', async (t) => {
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const upTo = (limit: number): number => random.u32() % limit;
  const stores = await createCluster(2, { global_segment_size: '8mb', reuse_quarantine_ms: upTo(2) * 20 });
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  const keys = 20;
  const lengthOf = (key: number) => (key % 4 === 0 ? 5_000 : MIB) + ((key * 99_991) % 500_000);
  const lanes = 6;
  const lengths = Array.from({ length: keys }, (_, key) => lengthOf(key));
  const slotBytes = Math.max(...lengths);
  const contents = lengths.map((length, key) => [0, 1].map((version) => content(key * 2 + version, length)));
  let hits = 0;
  /** One caller with memory of its own for a batch of three pages. */
  const lane = async (laneRandom: number): Promise<void> => {
    const memory = region(t, 3 * slotBytes);
    for (let step = 0; step < 40; step++) {
      const store = stores[upTo(2)] as MeshCacheStore;
      const batch = [...new Set([upTo(keys), upTo(keys), upTo(keys)])];
      const names = batch.map((key) => `k${key}`);
      const ptrs = batch.map((_, i) => memory.addr + BigInt(i * slotBytes));
      const sizes = batch.map((key) => lengths[key] as number);
      const views = batch.map((_, i) => memory.bytes(i * slotBytes, sizes[i] as number));
      const action = upTo(20);
      if (action < 9) {
        batch.forEach((key, i) => {
          views[i]?.set(contents[key]?.[upTo(2)] as Uint8Array);
        });
        await store.batchSet(names, ptrs, sizes);
      } else if (action < 19) {
        const results = await store.batchGet(names, ptrs, sizes);
        results.forEach((isHit, i) => {
          if (!isHit) return;
          hits++;
          const versions = contents[batch[i] as number] as Uint8Array[];
          const isOwn = versions.some((bytes) => Buffer.compare(bytes, views[i] as Uint8Array) === 0);
          if (!isOwn) t.fail(`lane ${laneRandom}, step ${step}: ${names[i]} has bytes that are not its own`);
        });
      } else {
        await store.clear();
      }
    }
  };
  await Promise.all(Array.from({ length: lanes }, (_, i) => lane(i)));
  t.true(hits > 20, `${hits} hits`);
});
