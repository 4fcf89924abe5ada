// Regression: two nodes that set different contents under one key each went on reading their own, for ever; with
// different lengths a third node found neither.

import { digestOf } from '../../src/directory/shard/removals.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { type SimStore, startCluster, startHolder, startStore } from '../_support/node/simulated-stores.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 4096;
const KEYS = Array.from({ length: 200 }, (_, i) => `key ${i}`);

type Three = [SimStore, SimStore, SimStore];

const DISK = { disk_enabled: true, disk_path: '/cache', disk_size: '64mb' };

async function cluster(world: TestWorld, config: Record<string, unknown> = {}): Promise<Three> {
  return (await startCluster(world, 3, config)) as Three;
}

async function setAll(store: MeshCacheStore, bytesOf: (i: number) => Uint8Array): Promise<void> {
  const isSet = await Promise.all(KEYS.map((key, i) => store.set(key, bytesOf(i))));
  if (!isSet.every(Boolean)) throw new Error('not all keys were set');
}

/** Of all keys those that a store does not read as these bytes. */
async function wrongKeys(store: MeshCacheStore, bytesOf: (i: number) => Uint8Array | null): Promise<string[]> {
  const got = await Promise.all(KEYS.map((key) => store.get(key)));
  return KEYS.filter((_, i) => {
    const [bytes, wanted] = [got[i] ?? null, bytesOf(i)];
    return bytes === null || wanted === null ? bytes !== wanted : Buffer.compare(bytes, wanted) !== 0;
  });
}

for (const [what, first, second] of [
  ['the same length', PAGE, PAGE],
  ['another length', PAGE, 3000],
  ['very short contents', 3, 5],
] as const) {
  simulated(`one content: ${what}: whoever set last is read everywhere, at once`, async (t, world) => {
    const stores = await cluster(world);
    const [a, b] = stores;
    const old = (i: number) => content(i, first);
    const young = (i: number) => content(1000 + i, second);
    await setAll(a, old);
    for (const store of stores) t.deepEqual(await wrongKeys(store, old), []);
    await setAll(b, young);
    for (const store of stores) t.deepEqual(await wrongKeys(store, young), []);
    t.is(a.stats().poolEntries, 0, 'the holder of the older content has dropped it');
    // Setting what was there before makes it the newest again.
    await setAll(a, old);
    for (const store of stores) t.deepEqual(await wrongKeys(store, old), []);
    t.is(b.stats().poolEntries, 0);
    await setAll(b, young);
    await setAll(b, young);
    await setAll(a, young);
    for (const store of stores) t.deepEqual(await wrongKeys(store, young), []);
  });
}

simulated(
  'one content: a newer content that goes within the call that has set it takes the older one with it',
  async (t, world) => {
    const [a, b, c] = await cluster(world, { eviction_policy: 's3fifo', global_segment_size: '1mb' });
    const shared = KEYS.slice(90, 100);
    for (const key of shared) t.true(await a.set(key, content(1, PAGE)));
    const old = Array.from({ length: 150 }, (_, i) => `old ${i}`);
    const region = HostRegion.allocate(KEYS.length * PAGE);
    t.teardown(() => region.free());
    const batchOf = (keys: string[]): [string[], bigint[], number[]] => [
      keys,
      keys.map((_, i) => region.addr + BigInt(i * PAGE)),
      keys.map(() => PAGE),
    ];
    t.false((await b.batchSet(...batchOf(old))).includes(false));
    for (let i = 0; i < 4; i++) t.false((await b.batchGet(...batchOf(old))).includes(false));
    region.bytes(0, region.length).fill(2);
    t.deepEqual(new Set(await b.batchSet(...batchOf(KEYS), { priority: 'low' })), new Set([true]));
    const left = await Promise.all(shared.map((key) => c.get(key)));
    t.true(left.includes(null), 'some have gone at once, or this shows nothing');
    for (const bytes of left) if (bytes !== null) t.deepEqual(bytes, new Uint8Array(PAGE).fill(2));
    const hasOld = await Promise.all(old.map((key) => b.exists(key)));
    t.true(hasOld.includes(true), 'not for want of room');
    t.deepEqual(
      await Promise.all(shared.map((key) => c.exists(key))),
      left.map((bytes) => bytes !== null),
    );
  },
);

/**
 * A node that has set all keys and has them on its disk, and has left; `start` starts it again. Beside it `b`, which
 * stays.
 */
async function diskOfBefore(world: TestWorld, bytesOf: (i: number) => Uint8Array) {
  const b = await startStore(world);
  const host = '10.0.0.2';
  const setup = { host, config: { ...DISK, node_id: 'a' } };
  const a = await startStore(world, setup);
  await world.until(() => b.stats().members === 2);
  await setAll(a, bytesOf);
  await world.until(() => (a.stats().disk?.entries ?? 0) === KEYS.length);
  await a.close();
  await world.until(() => b.stats().members === 1);
  const start = (setBackMs = 0): Promise<MeshCacheStore> => {
    world.hosts.get(host)?.time.jump(-setBackMs);
    return startStore(world, setup);
  };
  return { b, start };
}

// Cause: the length was asked for, and had changed when the page was read: a copy of the wrong length was a miss.
simulated('one content: a get without a size finds a page whose length changes all the time', async (t, world) => {
  const [a, b, c] = await cluster(world);
  const lengths = [PAGE, 3000, 2000];
  const keys = KEYS.slice(0, 4);
  for (const key of keys) t.true(await a.set(key, content(0, PAGE)));
  let isOver = false;
  const writing = Promise.all(
    [a, b].map(async (store, s) => {
      for (let i = 0; !isOver; i++) await store.set(keys[i % 4] as string, content(i, lengths[(i + s) % 3] as number));
    }),
  );
  let missed = 0;
  let reads = 0;
  for (; reads < 2_000; reads++) {
    const page = await c.get(keys[reads % 4] as string);
    if (page === null) missed++;
    else if (!lengths.includes(page.length)) t.fail(`a page of ${page.length} bytes`);
  }
  isOver = true;
  await writing;
  t.log(`${missed} of ${reads} missed`);
  t.true(missed < reads / 10, `${missed} of ${reads} missed`);
});

simulated(
  'one content: what was overwritten elsewhere is on no disk either, and does not come back with a restart',
  async (t, world) => {
    const setup = { host: '10.0.0.1', config: { ...DISK, global_segment_size: 40 * PAGE, node_id: 'a' } };
    let a = await startStore(world, setup);
    const b = await startStore(world);
    await world.until(() => a.stats().members === 2 && b.stats().members === 2);
    const old = (i: number) => content(i, PAGE);
    const young = (i: number) => content(1000 + i, PAGE);
    for (const [i, key] of KEYS.entries()) t.true(await a.set(key, old(i)));
    await world.until(() => (a.stats().disk?.entries ?? 0) === KEYS.length);
    t.deepEqual(await wrongKeys(b, old), []);
    await setAll(b, young);
    for (const store of [a, b]) t.deepEqual(await wrongKeys(store, young), []);
    t.is(a.stats().disk?.entries, 0);
    await b.clear();
    for (const store of [a, b]) t.deepEqual(await wrongKeys(store, () => null), []);
    await a.close();
    a = await startStore(world, setup);
    await world.until(() => a.stats().members === 2 && b.stats().members === 2);
    for (const store of [a, b]) t.deepEqual(await wrongKeys(store, () => null), []);
  },
);

simulated(
  'one content: what a disk has kept from an earlier start does not win over what was set meanwhile',
  async (t, world) => {
    const { b, start } = await diskOfBefore(world, (i) => content(i, PAGE));
    const young = (i: number) => content(1000 + i, 2 * PAGE);
    await setAll(b, young);
    const a = await start();
    await world.until(() => a.stats().members === 2 && b.stats().members === 2);
    t.deepEqual(await wrongKeys(b, young), []);
    // It learns that they are outdated when it announces them.
    await world.until(async () => (await wrongKeys(a, young)).length === 0);
    t.deepEqual(await wrongKeys(b, young), []);
  },
);

// Cause: what lay on the disk was read before the node had announced it and learned that it is outdated; and, with the
// date set back, was taken for what this start had set.
for (const [date, setBackMs] of [
  ['goes on', 0],
  ['is set back by an hour', 3_600_000],
] as const) {
  simulated(
    `one content: a disk of an earlier start is not read before its pages are known to be good; the date ${date}`,
    async (t, world) => {
      const old = (i: number) => content(i, PAGE);
      const young = (i: number) => content(1000 + i, PAGE);
      const { b, start } = await diskOfBefore(world, old);
      // Every second key: the others are as good as before.
      const isNew = (i: number) => i % 2 === 0;
      for (const [i, key] of KEYS.entries()) if (isNew(i)) t.true(await b.set(key, young(i)));
      const a = await start(setBackMs);
      const into = KEYS.map(() => new Uint8Array(PAGE));
      const isRead = await Promise.all(KEYS.map((key, i) => a.get(key, into[i] as Uint8Array)));
      const stale = KEYS.filter(
        (_, i) => isRead[i] && isNew(i) && Buffer.compare(into[i] as Uint8Array, young(i)) !== 0,
      );
      t.deepEqual(stale, []);
      const wanted = (i: number) => (isNew(i) ? young(i) : old(i));
      for (const store of [a, b]) await world.until(async () => (await wrongKeys(store, wanted)).length === 0);
      // What is set now is newer than what lay there, whatever the date.
      await setAll(a, (i) => content(2000 + i, PAGE));
      for (const store of [a, b]) t.deepEqual(await wrongKeys(store, (i) => content(2000 + i, PAGE)), []);
    },
  );
}

simulated('one content: computed pages of two nodes are kept once, and each is whole', async (t, world) => {
  const stores = await cluster(world);
  const [a, b, c] = stores;
  const count = 1000;
  const keys = Array.from({ length: count }, (_, i) => `page ${i}`);
  const pools = stores.map((_, n) => {
    const pool = new TestHostPool(count, 512, 2);
    pool.region.bytes().set(content(n, pool.region.length));
    t.teardown(() => pool.region.free());
    return pool;
  }) as [TestHostPool, TestHostPool, TestHostPool];
  for (const [n, store] of stores.entries()) await store.registerMemPoolHost(pools[n] as TestHostPool);
  const indices = pools[0].indices(0, count);
  const pageOf = (pool: TestHostPool, i: number) => Buffer.concat([pool.component(i, 0), pool.component(i, 1)]);
  const [ours, theirs] = [pools[0], pools[1]].map((pool) => keys.map((_, i) => pageOf(pool, i))) as [
    Buffer[],
    Buffer[],
  ];
  const [byA, byB] = await Promise.all([a.batchSetV1(keys, indices), b.batchSetV1(keys, indices)]);
  t.true([...byA, ...byB].every(Boolean));
  t.is(a.stats().poolEntries + b.stats().poolEntries, count, 'none is lost, none is kept twice');
  for (const [n, store] of stores.entries()) {
    t.true((await store.batchGetV1(keys, indices)).every(Boolean));
    const wrong = keys.filter((_, i) => {
      const page = pageOf(pools[n] as TestHostPool, i);
      return !page.equals(ours[i] as Buffer) && !page.equals(theirs[i] as Buffer);
    });
    t.deepEqual(wrong, []);
  }
  // Once more, one after the other: a page that a live node holds is not kept again.
  t.true((await c.batchSetV1(keys, indices)).every(Boolean));
  t.is(c.stats().poolEntries, 0);
  t.is(await c.batchExists(keys), count);
});

simulated('one content: computed pages are kept twice when that is asked for', async (t, world) => {
  const [a, b] = await cluster(world, { keep_duplicates: true });
  const pools = [a, b].map(() => {
    const pool = new TestHostPool(64, PAGE, 1);
    t.teardown(() => pool.region.free());
    return pool;
  });
  const keys = KEYS.slice(0, 64);
  for (const [n, store] of [a, b].entries()) {
    await store.registerMemPoolHost(pools[n] as TestHostPool);
    t.true((await store.batchSetV1(keys, (pools[n] as TestHostPool).indices(0, 64))).every(Boolean));
    t.is(store.stats().poolEntries, 64);
  }
});

simulated(
  'one content: a computed page of another length takes the place of the older one, and is counted',
  async (t, world) => {
    const stores = await cluster(world);
    const [a, b, c] = stores;
    const keys = KEYS.slice(0, 64);
    const lengths = [PAGE, 2 * PAGE];
    for (const [n, store] of [a, b].entries()) {
      const pool = new TestHostPool(64, lengths[n] as number, 1);
      pool.region.bytes().set(content(n, pool.region.length));
      t.teardown(() => pool.region.free());
      await store.registerMemPoolHost(pool);
      t.true((await store.batchSetV1(keys, pool.indices(0, 64))).every(Boolean));
    }
    for (const key of keys) t.is((await c.get(key))?.length, 2 * PAGE);
    t.is(a.stats().poolEntries, 0);
    let conflicts = 0;
    for (const store of stores) conflicts += await store.metric('meshcache_directory_length_conflicts_total');
    t.true(conflicts > 0);
  },
);

// Cause: what the disk had was taken back from the directory when it was off the disk, and with it what had been set
// since: it was in the pool, and no other node found it, nor was it told of newer contents.
simulated(
  'one content: what is set while clear is under way is found by all, and overwritten by others',
  async (t, world) => {
    const a = await startStore(world, { config: DISK });
    const b = await startStore(world);
    await world.until(() => a.stats().members === 2 && b.stats().members === 2);
    await setAll(a, (i) => content(i, PAGE));
    await world.until(() => (a.stats().disk?.entries ?? 0) === KEYS.length);
    const clearing = a.clear();
    await setAll(a, (i) => content(1000 + i, PAGE));
    await clearing;
    t.deepEqual(await wrongKeys(b, (i) => content(1000 + i, PAGE)), []);
    await setAll(b, (i) => content(2000 + i, PAGE));
    t.deepEqual(await wrongKeys(a, (i) => content(2000 + i, PAGE)), []);
  },
);

simulated(
  'one content: delete takes entries away from every pool, disk and shard, whoever calls it',
  async (t, world) => {
    const a = await startStore(world, { config: { ...DISK, global_segment_size: 40 * PAGE } });
    const b = await startStore(world);
    const c = await startStore(world);
    const stores = [a, b, c];
    await world.until(() => stores.every((store) => store.stats().members === 3));
    for (const [i, key] of KEYS.entries()) t.true(await a.set(key, content(i, PAGE)));
    await b.set('stays', content(1, PAGE));
    t.true((await c.delete([...KEYS, 'nobody has it'])).every(Boolean));
    for (const store of stores) t.deepEqual(await wrongKeys(store, () => null), []);
    for (const store of stores) t.is(await store.batchExists(KEYS), 0);
    t.is(a.stats().poolEntries + (a.stats().disk?.entries ?? 0), 0);
    t.deepEqual(await a.get('stays'), content(1, PAGE));
    // What is set afterwards is there.
    await setAll(b, (i) => content(i, 100));
    for (const store of stores) t.deepEqual(await wrongKeys(store, (i) => content(i, 100)), []);
    t.deepEqual(await a.delete([]), []);
  },
);

simulated(
  'one content: a node that pauses is told of deletions and overwriting as soon as it is back',
  async (t, world) => {
    const config = { member_ttl: 30, heartbeat_interval: 0.5 };
    const [a, b] = [await startStore(world, { config }), await startStore(world, { config })];
    const holder = await startHolder(world, { config, keys: KEYS });
    await world.until(() => a.stats().members === 3 && b.stats().members === 3);
    t.deepEqual(await wrongKeys(a, (i) => content(i, PAGE)), []);
    const [deleted, overwritten] = [KEYS.slice(0, 100), KEYS.slice(100)];
    holder.process.stop();
    t.false((await a.delete(deleted)).some(Boolean), 'a node that does not answer may still have them');
    const isSet = await Promise.all(overwritten.map((key, i) => a.set(key, content(5000 + i, PAGE))));
    holder.process.continue();
    t.true(isSet.every(Boolean));
    const expected = (i: number) => (i < 100 ? null : content(5000 + i - 100, PAGE));
    await world.until(async () => (await wrongKeys(b, expected)).length === 0);
    await world.until(async () => (await a.delete(deleted)).every(Boolean));
    t.deepEqual(await wrongKeys(a, expected), []);
    t.deepEqual(await wrongKeys(b, expected), []);
  },
);

// Regression: a node whose set had lost to one of the same version took the winner's page for void, and had it dropped.
simulated('one content: of sets with the same version one wins, and its page is read everywhere', async (t, world) => {
  // Versions of nodes are the same when they are given out at the same time, and the nodes have the same number.
  const ids: string[] = [];
  for (let i = 0; ids.length < 3; i++) if (digestOf(`tied-${i}`) % 1024 === 7) ids.push(`tied-${i}`);
  const stores: SimStore[] = [];
  for (const id of ids) stores.push(await startStore(world, { config: { node_id: id } }));
  await world.until(() => stores.every((store) => store.stats().members === 3));
  let lost = 0;
  for (let round = 0; round < 12; round++) {
    const writers = [stores[round % 3], stores[(round + 1) % 3]] as const;
    const keys = Array.from({ length: 25 }, (_, i) => `tied ${round} ${i}`);
    const isSet = await Promise.all(
      keys.map((key) => Promise.all(writers.map((store, n) => store?.set(key, content(n, PAGE))))),
    );
    for (let look = 0; look < 2; look++) {
      for (const store of stores) {
        const read = await Promise.all(keys.map((key) => store.get(key)));
        read.forEach((bytes, i) => {
          const isRight = writers.some(
            (_, n) => isSet[i]?.[n] === true && bytes !== null && Buffer.compare(bytes, content(n, PAGE)) === 0,
          );
          t.true(isRight, `${keys[i]}: set ${isSet[i]}, read ${bytes?.[0]}`);
        });
      }
    }
    lost += isSet.filter((both) => both.includes(false)).length;
  }
  t.true(lost > 0, 'some sets lost to another one');
});
