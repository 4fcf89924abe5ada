import type { ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { COPIES_POOL_FRACTION, HOT_READS_MIN_COUNT } from '../../src/base/limits.js';
import type { Transport } from '../../src/transport/contract/transport.js';
import { type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 64 * 1024;
const HOT = { promote_hot_reads: true };

async function cluster(world: TestWorld, count: number, extra: Record<string, unknown> = HOT) {
  const stores = await startCluster(world, count, extra);
  return stores as [SimStore, SimStore, SimStore];
}

function servedPages(store: SimStore): number {
  return store.runtime.transport.stats().servedOps;
}

function hotCopies(store: SimStore): Promise<number> {
  return store.metric('meshcache_copied_pages_total', { reason: 'hot' });
}

function copiedBytes(store: SimStore): Promise<number> {
  return store.metric('meshcache_pool_copied_bytes');
}

async function read(t: ExecutionContext, store: SimStore, key: string, bytes: Uint8Array): Promise<void> {
  const page = await store.get(key);
  t.true(page !== null && Buffer.compare(page, bytes) === 0, key);
}

/** Reads until the page is here. */
async function copyHere(
  t: ExecutionContext,
  world: TestWorld,
  store: SimStore,
  key: string,
  bytes: Uint8Array,
): Promise<void> {
  const before = await hotCopies(store);
  for (let i = 0; i < HOT_READS_MIN_COUNT; i++) await read(t, store, key, bytes);
  await world.until(async () => (await hotCopies(store)) === before + 1);
}

simulated('hot reads: off by default, every read of a page costs its owner one', async (t, world) => {
  const [owner, reader] = await cluster(world, 2, {});
  const page = content(1, PAGE);
  t.true(await owner.set('page', page));
  for (let i = 0; i < 20; i++) await read(t, reader, 'page', page);
  t.is(servedPages(owner), 20);
  t.like(reader.stats(), { hits: { local: 0, remote: 20, disk: 0, object: 0 }, poolEntries: 0 });
  t.is(await hotCopies(reader), 0);
});

simulated('hot reads: the third read makes a copy; then the owner is not read any more', async (t, world) => {
  const [owner, reader] = await cluster(world, 2);
  const page = content(1, PAGE);
  t.true(await owner.set('page', page));
  await read(t, reader, 'page', page);
  await read(t, reader, 'page', page);
  t.is(reader.stats().poolEntries, 0);
  await read(t, reader, 'page', page);
  await world.until(async () => (await hotCopies(reader)) === 1);
  t.is(await copiedBytes(reader), PAGE);
  t.is(servedPages(owner), HOT_READS_MIN_COUNT + 1, 'the copy is one read more');
  for (let i = 0; i < 10; i++) await read(t, reader, 'page', page);
  t.is(servedPages(owner), HOT_READS_MIN_COUNT + 1);
  t.deepEqual(reader.stats().hits, { local: 10, remote: HOT_READS_MIN_COUNT, disk: 0, object: 0 });
});

simulated('hot reads: a copy is a location of its own, which its node’s clear drops', async (t, world) => {
  const [owner, reader, other] = await cluster(world, 3);
  const page = content(1, PAGE);
  t.true(await owner.set('page', page));
  await copyHere(t, world, reader, 'page', page);
  t.true((await reader.runtime.directory.exists([...reader.keyEncoder.encodeKeys(['page'], 'kv')]))[0]);
  await reader.clear();
  t.is(await copiedBytes(reader), 0);
  await read(t, other, 'page', page);
});

simulated('hot reads: a copy goes with its owner’s clear, and with other bytes under its key', async (t, world) => {
  const [owner, reader, other] = await cluster(world, 3);
  const page = content(1, PAGE);
  t.true(await owner.set('page', page));
  await copyHere(t, world, reader, 'page', page);
  await owner.clear();
  t.deepEqual([owner.stats().poolEntries, reader.stats().poolEntries], [0, 0]);
  for (const store of [owner, reader, other]) t.is(await store.get('page'), null);
  t.is(await copiedBytes(reader), 0);
  t.true(await owner.set('other', page));
  await copyHere(t, world, reader, 'other', page);
  const young = content(2, PAGE);
  t.true(await other.set('other', young));
  for (const store of [owner, reader, other]) await read(t, store, 'other', young);
  t.is(await copiedBytes(reader), 0);
});

simulated(
  'hot reads: a page stays that another node has set, too, when its owner clears; the copy goes',
  async (t, world) => {
    const [owner, reader, other] = await cluster(world, 3);
    const page = content(1, PAGE);
    t.true(await owner.set('page', page));
    await copyHere(t, world, reader, 'page', page);
    t.true(await other.set('page', page));
    await owner.clear();
    t.is(await copiedBytes(reader), 0);
    for (const store of [owner, reader, other]) await read(t, store, 'page', page);
  },
);

simulated('hot reads: a copy that the program sets is its own page from then on', async (t, world) => {
  const [owner, reader] = await cluster(world, 2);
  const page = content(1, PAGE);
  t.true(await owner.set('page', page));
  await copyHere(t, world, reader, 'page', page);
  t.true(await reader.set('page', page));
  t.is(await copiedBytes(reader), 0);
  t.is(reader.stats().poolEntries, 1);
});

simulated('hot reads: what the program sets while its copy is on the way stays', async (t, world) => {
  const [owner, reader] = await cluster(world, 2);
  const [theirs, own] = [content(1, PAGE), content(2, PAGE)];
  t.true(await owner.set('page', theirs));
  const transport = reader.runtime.transport as { batchRead: Transport['batchRead'] };
  const batchRead = transport.batchRead.bind(transport);
  let calls = 0;
  const copying = new Promise<void>((resolve, reject) => {
    transport.batchRead = async (ops) => {
      const isRead = await batchRead(ops);
      if (++calls !== HOT_READS_MIN_COUNT + 1) return isRead;
      if ((await reader.set('page', own)) && isRead[0] === true) resolve();
      else reject(new Error('not set, or not read'));
      return isRead;
    };
  });
  for (let i = 0; i < HOT_READS_MIN_COUNT; i++) await read(t, reader, 'page', theirs);
  await copying;
  // Requests have their turn one after the other: when another page has been copied, this one is through.
  t.true(await owner.set('next', theirs));
  while ((await hotCopies(reader)) === 0) {
    await read(t, reader, 'next', theirs);
    // A read of the own pool takes no time.
    await world.sleep(1);
  }
  await read(t, reader, 'page', own);
  t.is(await copiedBytes(reader), PAGE, 'the other page alone');
});

simulated('hot reads: a page that is set anew while it is copied is not read from the copy', async (t, world) => {
  // Cause: the copy could be read from when it was in the pool, and only the owners' answer said that it was outdated.
  const [owner, reader, other] = await cluster(world, 3, { directory_replicas: 1 });
  const [old, young] = [content(1, PAGE), content(2, PAGE)];
  t.true(await owner.set('page', old));
  const { directory } = reader.runtime;
  const state = directory.state.bind(directory);
  directory.state = async (...announced) => {
    directory.state = state;
    t.true(await other.set('page', young));
    await read(t, reader, 'page', young);
    return state(...announced);
  };
  t.deepEqual(await reader.pin(['page'], { forMs: 1000 }), [false]);
  t.is(directory.state, state, 'there was a copy');
  await read(t, reader, 'page', young);
});

simulated('hot reads: copies take their share of the pool, not more', async (t, world) => {
  const [owner, reader] = await cluster(world, 2);
  const shareBytes = reader.stats().poolCapacityBytes * COPIES_POOL_FRACTION;
  const share = shareBytes / PAGE;
  const keys = Array.from({ length: share + 20 }, (_, i) => `page ${i}`);
  const pages = keys.map((_, i) => content(i, PAGE));
  for (const [i, key] of keys.entries()) t.true(await owner.set(key, pages[i] as Uint8Array));
  t.true(await reader.set('own', content(1000, PAGE)));
  let most = 0;
  await world.until(async () => {
    await Promise.all(keys.map((key, i) => read(t, reader, key, pages[i] as Uint8Array)));
    const bytes = await copiedBytes(reader);
    most = Math.max(most, bytes);
    t.true(bytes <= shareBytes, `${bytes}`);
    t.true(reader.stats().poolUsedBytes <= shareBytes + PAGE);
    return (await hotCopies(reader)) > share;
  });
  // What could not be copied while the machine stood still is not asked for again so soon.
  t.true(most > shareBytes / 2, `${most}`);
  t.true(reader.stats().poolEntries <= share + 1);
  await read(t, reader, 'own', content(1000, PAGE));
});

simulated('hot reads: an evicted copy is forgotten, and none is written to the disk tier', async (t, world) => {
  const owner = await startStore(world);
  const small = { ...HOT, global_segment_size: '1mb', reuse_quarantine_ms: 0 };
  const reader = await startStore(world, {
    config: { ...small, disk_enabled: true, disk_path: '/cache', disk_size: '64mb' },
  });
  await world.until(() => owner.stats().members === 2 && reader.stats().members === 2);
  const page = content(1, PAGE);
  t.true(await owner.set('page', page));
  await copyHere(t, world, reader, 'page', page);
  t.is(await copiedBytes(reader), PAGE);
  const sets = 2 * (2 ** 20 / PAGE);
  for (let i = 0; i < sets; i++) t.true(await reader.set(`own ${i}`, content(100 + i, PAGE)));
  t.is(await copiedBytes(reader), 0);
  await world.until(() => reader.stats().disk?.entries === sets);
  await read(t, reader, 'page', page);
  t.is(reader.stats().hits.disk, 0, 'read from its owner');
});

simulated(
  'hot reads: what a node has on its own disk is found again when its copy in memory goes',
  async (t, world) => {
    const [holder, other] = await cluster(world, 2);
    const small = { global_segment_size: '1mb', reuse_quarantine_ms: 0 };
    const disk = { disk_enabled: true, disk_path: '/cache', disk_size: '64mb' };
    const owner = await startStore(world, { config: { ...HOT, ...small, ...disk } });
    await world.until(() => [holder, other].every((store) => store.stats().members === 3));
    const page = content(1, PAGE);
    t.true(await owner.set('page', page));
    await copyHere(t, world, holder, 'page', page);
    const sets = 2 ** 20 / PAGE;
    for (let i = 0; i < sets; i++) t.true(await owner.set(`own ${i}`, content(100 + i, PAGE)));
    await world.until(() => owner.stats().disk?.entries === sets + 1);
    // From there into the memory of the node that has it on its disk.
    await copyHere(t, world, owner, 'page', page);
    t.is(await copiedBytes(owner), PAGE);
    for (let i = 0; i < sets; i++) t.true(await owner.set(`more ${i}`, content(200 + i, PAGE)));
    t.is(await copiedBytes(owner), 0);
    await holder.clear();
    t.is(await copiedBytes(holder), 0);
    await world.until(async () => (await other.get('page')) !== null);
    await read(t, other, 'page', page);
  },
);

simulated(
  'hot reads: every page read has bytes that were set under its key, while owners overwrite and evict',
  async (t, world) => {
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    const upTo = (limit: number): number => random.u32() % limit;
    const stores = await cluster(world, 3, { ...HOT, global_segment_size: '2mb', reuse_quarantine_ms: 10 });
    const keys = 24;
    const lengths = Array.from({ length: keys }, (_, key) => 30_000 + key * 5_000);
    const versions = lengths.map((length, key) => [0, 1, 2].map((version) => content(3 * key + version, length)));
    let hits = 0;
    const step = async (): Promise<void> => {
      const store = stores[upTo(3)] as SimStore;
      // Some keys are read more than others.
      const key = Math.min(upTo(keys), upTo(keys));
      const own = versions[key] as Uint8Array[];
      if (upTo(8) === 0) {
        await store.set(`page ${key}`, own[upTo(3)] as Uint8Array);
      } else if (upTo(100) === 0) {
        await store.clear();
      } else {
        const page = await store.get(`page ${key}`);
        if (page === null) return;
        hits++;
        if (!own.some((bytes) => Buffer.compare(bytes, page) === 0))
          t.fail(`page ${key} has bytes that are not its own`);
      }
    };
    const lane = async (): Promise<void> => {
      for (let i = 0; i < 200; i++) await step();
    };
    await Promise.all(Array.from({ length: 6 }, lane));
    let copies = 0;
    for (const store of stores) copies += await hotCopies(store);
    t.log(`${hits} hits, ${copies} copies`);
    t.true(hits > 200 && copies > 0, `${hits} hits, ${copies} copies`);
  },
);

simulated('hot reads: many readers of one page at once cost its owner one read each and no more', async (t, world) => {
  const [owner, ...readers] = await cluster(world, 3, {});
  for (const bytes of [1_000, PAGE, 3 * 2 ** 20]) {
    const key = `page of ${bytes}`;
    const page = content(bytes, bytes);
    t.true(await owner.set(key, page));
    const before = servedPages(owner);
    const reads = readers.flatMap((reader) => Array.from({ length: 20 }, () => read(t, reader, key, page)));
    await Promise.all(reads);
    t.is(servedPages(owner) - before, reads.length, key);
  }
  const readPages = readers.map(({ runtime }) => runtime.transport.stats().readOps);
  t.deepEqual(readPages, [60, 60]);
  t.is(owner.runtime.transport.stats().refusedOps, 0);
});
