import type { ExecutionContext } from 'ava';
import { ArgumentError, ClosedError } from '../../src/base/errors.js';
import { COPIES_POOL_FRACTION, PIN_NAMES_MAX_COUNT } from '../../src/base/limits.js';
import { drain } from '../_support/node/drain-node.js';
import { PAGE_BYTES, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

/** A pool of four pages. */
const TINY = { global_segment_size: 4 * PAGE_BYTES, pin_max_share: 0.5 };

async function set(t: ExecutionContext, store: SimStore, key: string, seed: number): Promise<void> {
  t.true(await store.set(key, content(seed, PAGE_BYTES)), key);
}

/** Sets more pages than the pool has room for. */
async function flood(t: ExecutionContext, store: SimStore, count = 40): Promise<void> {
  for (let i = 0; i < count; i++) await set(t, store, `flood-${i}`, 1_000 + i);
}

async function isRead(store: SimStore, key: string, seed: number): Promise<boolean> {
  const page = await store.get(key);
  return page !== null && Buffer.compare(page, content(seed, PAGE_BYTES)) === 0;
}

/** Gives all stores one host page, which the first one sets under `prompt` as computed. */
async function compute(t: ExecutionContext, stores: readonly [SimStore, ...SimStore[]]): Promise<void> {
  const host = new TestHostPool(1, PAGE_BYTES, 1);
  t.teardown(() => host.region.free());
  for (const store of stores) await store.registerMemPoolHost(host);
  host.component(0, 0).set(content(1, PAGE_BYTES));
  t.deepEqual(await stores[0].batchSetV1(['prompt'], [0]), [true]);
}

async function pair(world: TestWorld, config: Record<string, unknown> = TINY): Promise<[SimStore, SimStore]> {
  return (await startCluster(world, 2, config)) as [SimStore, SimStore];
}

simulated(
  'pins: a pinned page of a pool of four stays while others come and go, and all can read it',
  async (t, world) => {
    const [a, b] = await pair(world);
    await set(t, a, 'prompt', 1);
    t.deepEqual(await a.pin(['prompt', 'absent'], { forMs: 60_000 }), [true, false]);
    t.like(a.stats(), { pinnedEntries: 1, pinnedBytes: PAGE_BYTES });
    t.is(await a.metric('meshcache_pool_pinned_bytes'), PAGE_BYTES);
    await flood(t, a);
    t.true(await isRead(a, 'prompt', 1));
    t.true(await isRead(b, 'prompt', 1));
    t.deepEqual(await a.unpin(['prompt', 'absent']), [true, false]);
    t.like(a.stats(), { pinnedEntries: 0, pinnedBytes: 0 });
    await flood(t, a);
    t.false(await isRead(a, 'prompt', 1));
  },
);

simulated('pins: a pin ends with its time on the monotonic clock, however the wall clock jumps', async (t, world) => {
  const [a] = await pair(world);
  await set(t, a, 'prompt', 1);
  t.deepEqual(await a.pin(['prompt'], { forMs: 30_000 }), [true]);
  a.process.host.time.jump(3_600_000);
  await world.sleep(29_000);
  t.is(a.stats().pinnedEntries, 1);
  await world.sleep(1_500);
  t.is(a.stats().pinnedEntries, 0);
});

simulated('pins: a page of another node is copied into the own pool and pinned there', async (t, world) => {
  const [a, b] = await pair(world);
  await set(t, a, 'prompt', 1);
  t.deepEqual(await b.pin(['prompt'], { forMs: 60_000 }), [true]);
  t.is(await b.metric('meshcache_copied_pages_total', { reason: 'pin' }), 1);
  await flood(t, a);
  await flood(t, b);
  t.true(await isRead(a, 'prompt', 1), 'from the copy');
  t.true(await isRead(b, 'prompt', 1));
});

simulated('pins: a page on the own disk is brought into the pool and pinned there', async (t, world) => {
  const disk = { disk_enabled: true, disk_path: '/disk', disk_size: '4mb' };
  const store = await startStore(world, { config: { ...TINY, ...disk } });
  await set(t, store, 'prompt', 1);
  await flood(t, store);
  await world.until(() => store.stats().disk?.queueBytes === 0);
  t.is(store.stats().hits.disk, 0);
  t.deepEqual(await store.pin(['prompt', 'absent'], { forMs: 60_000 }), [true, false]);
  await flood(t, store);
  t.true(await isRead(store, 'prompt', 1));
  t.is(store.stats().hits.disk, 0, 'it was read in the pool');
});

simulated('pins: a pin with a name lasts until it is ended by its name', async (t, world) => {
  const [a] = await pair(world, { ...TINY, global_segment_size: 16 * PAGE_BYTES });
  for (const [i, key] of ['system-0', 'system-1'].entries()) await set(t, a, key, i);
  t.deepEqual(await a.pin(['system-0', 'absent'], { name: 'system' }), [true, false]);
  t.deepEqual(await a.pin(['system-1'], { name: 'system' }), [true], 'pages are added to a name');
  t.deepEqual(await a.unpin(['system-0']), [false], 'it is nobody’s own');
  await world.sleep(500_000);
  await flood(t, a);
  for (const [i, key] of ['system-0', 'system-1'].entries()) t.true(await isRead(a, key, i), key);
  t.is(await a.namespace({ tag: 'other' }).endPins('system'), 0, 'the name of another namespace');
  t.is(await a.endPins('system'), 2);
  t.is(await a.endPins('system'), 0);
  await flood(t, a);
  t.false(await isRead(a, 'system-0', 0));
  await t.throwsAsync(a.pin(['a'], { name: 'n', forMs: 1 }), {
    instanceOf: ArgumentError,
    message: /either forMs or a name/,
  });
  await t.throwsAsync(a.pin(['a'], { name: '' }), { instanceOf: ArgumentError, message: /1 to 256 bytes/ });
  await t.throwsAsync(a.endPins(7 as unknown as string), {
    instanceOf: ArgumentError,
    message: /endPins: name must be/,
  });
});

simulated('pins: names take a share of the pool, and leave others theirs', async (t, world) => {
  const [a] = await pair(world, { ...TINY, global_segment_size: 16 * PAGE_BYTES });
  const keys = Array.from({ length: 8 }, (_, i) => `page-${i}`);
  for (const [i, key] of keys.entries()) await set(t, a, key, i);
  let pinned = 0;
  for (const key of keys) pinned += Number((await a.pin([key], { name: key }))[0]);
  t.is(pinned, 4, 'half of what may be pinned, whatever the names');
  t.deepEqual(await a.pin(keys.slice(6), { forMs: 60_000 }), [true, true]);
});

simulated('pins: names that are in use are limited', async (t, world) => {
  const [a] = await pair(world, { pin_max_share: 0.5 });
  await set(t, a, 'page', 1);
  for (let i = 0; i < PIN_NAMES_MAX_COUNT / 2; i++)
    t.deepEqual(await a.pin(['page'], { name: `n${i}` }), [true], `${i}`);
  await t.throwsAsync(a.pin(['page'], { name: 'one more' }), {
    message: /1024 names of pins of this namespace are in use/,
  });
  t.deepEqual(await a.pin(['absent'], { name: 'n0' }), [false], 'a name that is known');
  t.is(await a.endPins('n0'), 1);
  t.deepEqual(await a.pin(['absent'], { name: 'unused' }), [false]);
  t.deepEqual(await a.pin(['page'], { name: 'one more' }), [true], 'a name without pages is not in use');
  t.deepEqual(await a.delete(['page']), [true]);
  t.deepEqual(a.stats().pinnedEntries, 0);
  await set(t, a, 'page', 2);
  t.deepEqual(await a.pin(['page'], { name: 'after all' }), [true], 'names whose pages were deleted are not in use');
  t.is(await a.endPins('one more'), 0);
});

simulated('pins: pinned copies are not replaced by other copies', async (t, world) => {
  const pages = 32;
  const config = { global_segment_size: pages * PAGE_BYTES, pin_max_share: 0.5, promote_hot_reads: true };
  const [a, b] = await pair(world, config);
  const keys = Array.from({ length: 16 }, (_, i) => `page-${i}`);
  for (const [i, key] of keys.entries()) await set(t, a, key, i);
  t.deepEqual(await b.pin(keys.slice(0, 4), { forMs: 60_000 }), [true, true, true, true]);
  for (const [i, key] of keys.entries()) for (let times = 0; times < 4; times++) t.true(await isRead(b, key, i));
  await world.sleep(1_000);
  t.true((await b.metric('meshcache_copied_pages_total', { reason: 'hot' })) > pages * COPIES_POOL_FRACTION - 4);
  t.is(b.stats().pinnedEntries, 4);
});

simulated('pins: of more pages of another node than can be pinned, the first ones are', async (t, world) => {
  const [a, b] = await pair(world, { global_segment_size: 16 * PAGE_BYTES, pin_max_share: 0.5 });
  const keys = Array.from({ length: 8 }, (_, i) => `page-${i}`);
  for (const [i, key] of keys.entries()) await set(t, a, key, i);
  const pinned = await b.pin(keys, { forMs: 60_000 });
  t.deepEqual(pinned, [true, true, true, true, false, false, false, false], 'the head of a prefix is worth more');
  t.is(await b.metric('meshcache_copied_pages_total', { reason: 'pin' }), 4, 'none is copied in vain');
});

simulated('pins: a tenant that has pinned what it may can set pages still', async (t, world) => {
  const quotas = { small: { max: 0.25 }, large: { min: 0.5 } };
  const config = { global_segment_size: 16 * PAGE_BYTES, pin_max_share: 0.5, namespace_quotas: quotas };
  const store = await startStore(world, { config });
  const keys = Array.from({ length: 16 }, (_, i) => `page-${i}`);
  const pinnedOf = async (tag: string): Promise<number> => {
    const pages = store.namespace({ tag });
    for (const [i, key] of keys.entries()) t.true(await pages.set(key, content(i, PAGE_BYTES)));
    const count = (await pages.pin(keys, { forMs: 60_000 })).filter((isPinned) => isPinned).length;
    for (const [i, key] of keys.entries()) t.true(await pages.set(`later-${key}`, content(i, PAGE_BYTES)));
    return count;
  };
  t.is(await pinnedOf('small'), 2, 'half of its maximum');
  t.is(await pinnedOf('large'), 2, 'what is left of what the program may');
});

simulated('pins: a pinned page that expires is a miss at once, and its pin ends', async (t, world) => {
  const [a, b] = await pair(world);
  t.true(await a.set('prompt', content(1, PAGE_BYTES), { expiresInMs: 5_000 }));
  for (const store of [a, b]) t.deepEqual(await store.pin(['prompt'], { forMs: 60_000 }), [true]);
  await world.sleep(4_000);
  for (const store of [a, b]) t.true(await isRead(store, 'prompt', 1));
  await world.sleep(1_001);
  for (const store of [a, b]) {
    t.is(await store.get('prompt'), null);
    t.deepEqual(await store.pin(['prompt'], { forMs: 60_000 }), [false]);
  }
  await world.sleep(2_000);
  for (const store of [a, b]) t.like(store.stats(), { poolEntries: 0, pinnedEntries: 0, pinnedBytes: 0 });
  await set(t, a, 'prompt', 2);
  t.is(a.stats().pinnedEntries, 0, 'the pin was of the expired page');
  t.true(await isRead(b, 'prompt', 2));
});

simulated('pins: a pinned copy stays when its page is computed here as well, and others find it', async (t, world) => {
  const [a, b] = await pair(world);
  await compute(t, [a, b]);
  t.deepEqual(await b.pin(['prompt'], { forMs: 60_000 }), [true]);
  t.deepEqual(await b.batchSetV1(['prompt'], [0]), [true]);
  t.is(b.stats().pinnedEntries, 1);
  await a.clear();
  t.true(await isRead(a, 'prompt', 1), 'from the other node');
});

simulated('pins: a page that is pinned while it is set stays, although another node has it', async (t, world) => {
  const [a, b] = await pair(world);
  await compute(t, [a, b]);
  const setting = b.batchSetV1(['prompt'], [0]);
  t.deepEqual(await b.pin(['prompt'], { forMs: 60_000 }), [true]);
  t.is(await b.metric('meshcache_copied_pages_total', { reason: 'pin' }), 0, 'it was there already');
  t.deepEqual(await setting, [true]);
  t.is(b.stats().pinnedEntries, 1);
  await a.clear();
  t.true(await isRead(a, 'prompt', 1), 'from the other node');
});

simulated('pins: deleting, overwriting and clearing end a pin, on this node and from another one', async (t, world) => {
  const [a, b] = await pair(world, { pin_max_share: 0.5 });
  const keys = ['deleted', 'deleted-there', 'overwritten', 'overwritten-there', 'cleared'];
  for (const key of keys) await set(t, a, key, 1);
  t.deepEqual(
    await a.pin(keys, { forMs: 60_000 }),
    keys.map(() => true),
  );
  t.deepEqual([await a.delete(['deleted']), await b.delete(['deleted-there'])], [[true], [true]]);
  t.is(a.stats().pinnedEntries, 3);
  await set(t, a, 'overwritten', 2);
  t.is(a.stats().pinnedEntries, 2);
  await set(t, b, 'overwritten-there', 2);
  await world.until(() => a.stats().pinnedEntries === 1);
  t.true(await isRead(a, 'overwritten-there', 2));
  for (const key of ['deleted', 'deleted-there']) t.is(await a.get(key), null);
  await a.clear();
  t.is(a.stats().pinnedEntries, 0);
});

simulated('pins: a node with pins drains, leaves and closes', async (t, world) => {
  const [a, b] = await pair(world, { pin_max_share: 0.5 });
  await set(t, a, 'prompt', 1);
  await set(t, b, 'there', 2);
  t.deepEqual(await a.pin(['prompt'], { forMs: 600_000 }), [true]);
  await drain(world, a);
  await a.drained;
  t.deepEqual(await a.pin(['there'], { forMs: 1_000 }), [false], 'nothing is brought into a pool that goes away');
  t.is(a.stats().pinnedEntries, 1);
  await a.close();
  t.is(a.stats().pinnedEntries, 0);
  await t.throwsAsync(a.pin(['prompt'], { forMs: 1 }), { instanceOf: ClosedError });
});

simulated('pins: namespaces and pools are apart, and share the bound of the program', async (t, world) => {
  const [a] = await pair(world, { global_segment_size: 16 * PAGE_BYTES, pin_max_share: 0.25 });
  const other = a.namespace({ tag: 'other' });
  for (const key of ['k0', 'k1', 'k2']) {
    await set(t, a, key, 1);
    t.true(await other.set(key, content(2, PAGE_BYTES)));
  }
  t.deepEqual(await a.pin(['k0'], { forMs: 60_000, pool: 'state' }), [false]);
  t.deepEqual(await a.pin(['k0'], { forMs: 60_000 }), [true]);
  t.deepEqual(await other.pin(['k0', 'k1'], { forMs: 60_000 }), [true, false]);
  t.deepEqual(await a.unpin(['k1']), [false]);
});

simulated('pins: wrong arguments are refused', async (t, world) => {
  const store = await startStore(world, { config: { pin_max_s: 10 } });
  const throws = (work: Promise<unknown>, message: RegExp) =>
    t.throwsAsync(work, { instanceOf: ArgumentError, message });
  await throws(store.pin(['k'], { forMs: 0 }), /pin: forMs must be a number of milliseconds above 0, got 0/);
  await throws(store.pin(['k'], {} as never), /pin: forMs must be a number of milliseconds above 0, got undefined/);
  await throws(store.pin(['k'], undefined as never), /pin: forMs must be/);
  await throws(store.pin(['k'], { forMs: 10_001 }), /pin: forMs must be above 0 and at most 10000 \(pin_max_s/);
  await throws(store.pin('k' as never, { forMs: 1 }), /pin: keys must be an array/);
  await throws(
    store.pin(['k'], { forMs: 1, ttl: 1 } as never),
    /pin: unknown option "ttl"; allowed are .*forMs, name, pool/,
  );
  await throws(store.unpin(['k'], { forMs: 1 } as never), /unpin: unknown option "forMs"/);
});

simulated('pins: a call that is ended early pins nothing more', async (t, world) => {
  const [a, b] = await pair(world);
  await set(t, a, 'prompt', 1);
  const ending = new AbortController();
  const pinned = b.pin(['prompt'], { forMs: 60_000, signal: ending.signal });
  ending.abort();
  t.deepEqual(await pinned, [false]);
  await world.sleep(2_000);
  t.is(b.stats().pinnedEntries, 0);
});
