import type { ExecutionContext } from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { READ_REPORT_DELAY_MS } from '../../src/base/limits.js';
import { PAGE_BYTES, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGES = 32;
const YIELD = { global_segment_size: PAGES * PAGE_BYTES, eviction_policy: 'yield' };

function keysOf(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}-${i}`);
}

async function setAll(t: ExecutionContext, store: SimStore, keys: readonly string[], session?: string): Promise<void> {
  for (const [i, key] of keys.entries()) t.true(await store.set(key, content(i, PAGE_BYTES), { session }), key);
}

async function count(store: SimStore, keys: readonly string[]): Promise<number> {
  return (await Promise.all(keys.map((key) => store.exists(key)))).filter((isThere) => isThere).length;
}

simulated('sessions: pages of a session that has ended are evicted first', async (t, world) => {
  const store = await startStore(world, { config: YIELD });
  const [old, over] = [keysOf('old', 10), keysOf('over', 10)];
  await setAll(t, store, old, 'long');
  await setAll(t, store, over, 'short');
  await store.tell('short', { ended: true });
  await setAll(t, store, keysOf('new', 20));
  t.is(await count(store, old), 10, 'they are older');
  t.true((await count(store, over)) <= 2);
});

simulated('sessions: of sessions that wait, the one that comes back last goes first', async (t, world) => {
  const store = await startStore(world, { config: YIELD });
  const [soon, late] = [keysOf('soon', 10), keysOf('late', 10)];
  for (const key of [...keysOf('earlier', 100), ...soon, ...late]) {
    t.true(await store.set(key, content(1, PAGE_BYTES)));
    await world.sleep(1_000);
  }
  await store.tell('a', { keys: soon, waiting: 60 });
  await store.tell('b', { keys: late, waiting: 7_200 });
  await setAll(t, store, keysOf('new', 20));
  t.is(await count(store, soon), 10);
  t.true((await count(store, late)) <= 2);
});

simulated('sessions: a branch leaves the pages behind that it does not go on from', async (t, world) => {
  const store = await startStore(world, { config: YIELD });
  const keys = keysOf('turn', 20);
  await setAll(t, store, keys, 's');
  const buffer = new Uint8Array(PAGE_BYTES);
  for (const key of keys.slice(0, 10)) t.true(await store.get(key, buffer, { session: 's' }));
  await store.tell('s', { keys: keys.slice(0, 10), branched: true });
  await setAll(t, store, keysOf('new', 20));
  t.is(await count(store, keys.slice(0, 10)), 10);
  t.true((await count(store, keys.slice(10))) <= 2);
});

simulated('sessions: the node that holds the pages hears it', async (t, world) => {
  const [a, b] = (await startCluster(world, 2, YIELD)) as [SimStore, SimStore];
  const [old, over] = [keysOf('old', 10), keysOf('over', 10)];
  await setAll(t, a, old);
  await setAll(t, a, over);
  for (const key of over) t.not(await b.get(key, { session: 's' }), null);
  await b.tell('s', { ended: true });
  await world.sleep(2 * READ_REPORT_DELAY_MS);
  await setAll(t, a, keysOf('new', 20));
  t.is(await count(a, old), 10);
  t.true((await count(a, over)) <= 2);
});

simulated('sessions: namespaces do not share the names of sessions', async (t, world) => {
  const store = await startStore(world, { config: YIELD });
  const keys = keysOf('page', 10);
  await setAll(t, store, keys, 's');
  await store.namespace({ tag: 'other' }).tell('s', { ended: true });
  const more = keysOf('more', 20);
  await setAll(t, store, more);
  t.is(await count(store, [...keys, ...more]), 30);
});

simulated('sessions: a wrong hint costs a miss at most', async (t, world) => {
  const store = await startStore(world, { config: YIELD });
  await setAll(t, store, ['page'], 's');
  await store.tell('s', { ended: true });
  t.deepEqual(await store.get('page'), content(0, PAGE_BYTES));
  await setAll(t, store, keysOf('new', 20));
  t.deepEqual(await store.get('page'), content(0, PAGE_BYTES), 'a read ends what was expected');
});

simulated('sessions: wrong arguments are typed errors', async (t, world) => {
  const store = await startStore(world, { config: YIELD });
  const wrong: [string, unknown, RegExp][] = [
    ['', {}, /tell: session must be well-formed text of 1 to 256 bytes, got ""/],
    ['s'.repeat(257), {}, /1 to 256 bytes/],
    ['s', { waiting: -1 }, /tell: waiting must be a number of seconds from 0 to 604800, got -1/],
    ['s', { waiting: '3' }, /got "3"/],
    ['s', { ended: 1 }, /tell: ended must be true or false, got 1/],
    ['s', { branched: 'no' }, /branched must be true or false/],
    ['s', { shared: 1.5 }, /shared must be a number of pages/],
    ['s', { keys: 'k' }, /keys/],
    ['s', { end: true }, /unknown option "end"/],
    ['s', null, /options must be an object/],
  ];
  for (const [session, options, message] of wrong) {
    await t.throwsAsync(store.tell(session, options as object), { instanceOf: ArgumentError, message });
  }
  const page = content(1, PAGE_BYTES);
  await t.throwsAsync(store.set('k', page, { ended: true }), { message: /give its name as `session`/ });
  await t.throwsAsync(store.get('k', { session: 's', waiting: Number.NaN }), { message: /got NaN/ });
  t.is(await store.get('k'), null);
});
