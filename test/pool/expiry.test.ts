import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import type { PageBytes, PageOrigin } from '../../src/pool/published-pool.js';
import { content } from '../_support/support.js';

const PAGE = 1024;

/** A pool of eight pages, and its present. */
function setUp(t: ExecutionContext) {
  const time = { present: 1 };
  const told: string[] = [];
  const region = HostRegion.allocate(8 * PAGE);
  const pool = new PublishedPool(region.addr, region.length, 1, {
    stamps: seededRandom(1),
    present: () => time.present,
    onEvict: (keys) => told.push(...keys),
  });
  t.teardown(() => {
    pool.verify();
    pool.free();
    region.free();
  });
  let version = 0;
  const origin = (expires: number, kind: PageOrigin['kind'] = 'named'): PageOrigin => {
    return { version: ++version, kind, setBy: 0, expires };
  };
  const bytes = (seed: number, length = PAGE): PageBytes => ({ views: [content(seed, length)], length });
  const set = (key: string, expires: number, seed = 1, kind?: PageOrigin['kind']) =>
    pool.publishPages([key], [bytes(seed)], origin(expires, kind));
  const read = (key: string) =>
    pool.readPages([key], [{ views: [new Uint8Array(PAGE)], length: PAGE }], { isVerified: true });
  return { pool, time, told, set, read, origin, bytes };
}

test('pool expiry: an expired page is found by no call, and is removed when asked for', async (t) => {
  const { pool, time, set, read } = setUp(t);
  await set('k', 10);
  await set('stays', 0);
  t.is(pool.firstExpiry(), 10);
  time.present = 9;
  t.deepEqual(pool.removeExpired(100), []);
  t.deepEqual(await read('k'), ['read']);
  time.present = 10;
  t.deepEqual(await read('k'), ['absent']);
  t.false(pool.has('k'));
  t.deepEqual([...pool.hasBatch(['k', 'stays'])], [0, 1]);
  t.deepEqual([pool.peekBatch(['k']), pool.lookupBatch(['k']), pool.lease(['k'])], [[null], [null], [null]]);
  t.is(pool.addressOf('k'), null);
  t.deepEqual(await pool.serve(['k'], true), [null]);
  pool.verify();
  t.deepEqual(pool.removeExpired(100), ['k']);
  t.deepEqual([pool.size, pool.firstExpiry()], [1, 0]);
});

test('pool expiry: pages are removed in the order of their expiry, as many as asked for', async (t) => {
  const { pool, time, set } = setUp(t);
  for (const [i, expires] of [30, 10, 20, 40].entries()) await set(`k${i}`, expires);
  time.present = 35;
  t.deepEqual(pool.removeExpired(2), ['k1', 'k2']);
  t.deepEqual(pool.removeExpired(2), ['k0']);
  t.deepEqual(pool.removeExpired(2), []);
  t.is(pool.firstExpiry(), 40);
});

test('pool expiry: the stamp of an expired page is destroyed before its range has another page', async (t) => {
  const { pool, time, set } = setUp(t);
  for (const replace of ['publish', 'sweep'] as const) {
    time.present = 1;
    await set(replace, 10);
    const [page] = pool.peekBatch([replace]);
    if (page == null) throw new Error('not set');
    const before = pool.stampOf(page);
    t.deepEqual(pool.stampOf(page), before);
    time.present = 10;
    if (replace === 'publish') await set(replace, 0, 2);
    else pool.removeExpired(1);
    t.notDeepEqual(pool.stampOf(page), before, replace);
  }
});

test('pool expiry: a leased page that has expired does not keep a new one out', async (t) => {
  const { pool, time, set, read } = setUp(t);
  await set('k', 10);
  const [lease] = pool.lease(['k']);
  t.true(lease?.isLive);
  time.present = 10;
  pool.verify();
  t.not((await set('k', 0, 2))[0], null);
  t.false(lease?.isLive);
  t.deepEqual(await read('k'), ['read']);
});

test('pool expiry: a page that is filled from elsewhere replaces an expired one, and expires itself', async (t) => {
  const { pool, time, set, origin } = setUp(t);
  await set('k', 10);
  time.present = 10;
  const fill = async (targets: readonly (PageBytes | null)[]) => targets.map((target) => (target === null ? null : 7));
  const leases = await pool.fillPages(['k'], [PAGE], fill, { origins: [{ ...origin(20), setBy: 7 }] });
  t.is(leases[0]?.page.expires, 20);
  pool.unlease(leases.filter((lease) => lease !== null));
  t.is(pool.peekBatch(['k'])[0]?.checksum, 7);
  time.present = 20;
  t.false(pool.has('k'));
});

test('pool expiry: an expired page that a page without room was to replace is told of', async (t) => {
  const { pool, time, told, set, origin, bytes } = setUp(t);
  await set('k', 10);
  time.present = 10;
  t.deepEqual(await pool.publishPages(['k'], [bytes(1, 9 * PAGE)], origin(0)), [null]);
  t.deepEqual(told, ['k']);
  t.is(pool.size, 0);
});

test('pool expiry: a slot that another page gets has that page’s expiry', async (t) => {
  const { pool, time, set } = setUp(t);
  for (let i = 0; i < 40; i++) await set(`k${i}`, i % 2 === 0 ? 10 : 0, i);
  time.present = 10;
  pool.verify();
  const removed = pool.removeExpired(100);
  t.true(removed.every((key) => Number(key.slice(1)) % 2 === 0));
  t.deepEqual(
    pool.keys().map((key) => Number(key.slice(1)) % 2),
    Array(pool.size).fill(1),
  );
});

test('pool expiry: a named page set again has the new expiry, a computed one the later of the two', async (t) => {
  const { pool, set } = setUp(t);
  const expires = (key: string) => pool.peekBatch([key])[0]?.expires;
  await set('named', 10);
  for (const next of [20, 5, 0, 7]) {
    await set('named', next);
    t.is(expires('named'), next);
  }
  for (const [first, second, later] of [
    [10, 20, 20],
    [20, 10, 20],
    [10, 0, 0],
    [0, 10, 0],
  ] as const) {
    const key = `${first} ${second}`;
    await set(key, first, 1, 'computed');
    await set(key, second, 2, 'computed');
    t.is(expires(key), later, key);
  }
  await set('named', 15, 1, 'computed');
  t.is(expires('named'), 15);
});
