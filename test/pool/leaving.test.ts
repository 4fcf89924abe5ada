import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { EVICTION_POLICIES } from '../../src/config.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool, type PublishedPoolOptions } from '../../src/node/machine/machine-node.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

/** A pool that records which pages leave it, with a copy of their bytes. */
function setUp(t: ExecutionContext, pages: number, options: PublishedPoolOptions = {}) {
  const region = HostRegion.allocate(pages * PAGE);
  const left = new Map<string, Uint8Array>();
  const gone: string[] = [];
  const atOnce = new Set<string>();
  const pool = new PublishedPool(region.addr, region.length, 7, {
    stamps: seededRandom(1),
    onLeaving({ key, checksum, bytes: { views, length } }) {
      const bytes = Uint8Array.from(Buffer.concat(views));
      t.is(bytes.length, length);
      t.is(crc32(bytes, 0), checksum ?? crc32(bytes, 0), key);
      if (checksum === undefined) atOnce.add(key);
      left.set(key, bytes);
    },
    onEvict: (keys) => gone.push(...keys),
    ...options,
  });
  t.teardown(() => {
    pool.verify();
    pool.free();
    region.free();
  });
  const publish = (numbers: readonly number[], length = PAGE) =>
    pool.publishPages(
      numbers.map((i) => `k${i}`),
      numbers.map((i) => ({ views: [content(i, length)], length })),
    );
  return { pool, left, gone, atOnce, publish };
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

for (const policy of EVICTION_POLICIES) {
  for (const length of [PAGE, 5, 1000]) {
    test(`leaving: evicted pages are reported with their bytes before the range is used again, ${policy}, ${length} bytes`, async (t) => {
      const { pool, left, atOnce, publish } = setUp(t, 8, { policy });
      const count = Math.floor((8 * PAGE) / Math.max(length, 8));
      const wanted = new Set<string>();
      for (let round = 0; round < 6; round++) {
        const before = pool.keys();
        await publish(range(round * count, (round + 1) * count), length);
        for (const key of before) if (!pool.has(key)) wanted.add(key);
      }
      for (const key of atOnce) left.delete(key);
      t.true(wanted.size > 0);
      t.deepEqual(new Set(left.keys()), wanted, 'each page that had its bytes, and no page that never had');
      for (const [key, bytes] of left) t.deepEqual(bytes, content(Number(key.slice(1)), length), key);
    });
  }
}

test('leaving: pages that a batch evicts at once for later ones of it are reported, but for those without room', async (t) => {
  const { pool, left, atOnce, publish } = setUp(t, 64, { policy: 's3fifo' });
  await publish(range(0, 40));
  for (let i = 0; i < 200; i++) pool.lookupBatch(range(0, 40).map((each) => `k${each}`));
  left.clear();
  await publish(range(100, 160));
  t.true(atOnce.size > 0);
  for (const key of atOnce) {
    t.false(pool.has(key));
    t.deepEqual(left.get(key), content(Number(key.slice(1)), PAGE));
  }
  const small = setUp(t, 4);
  await small.publish(range(0, 20));
  t.deepEqual([...small.left], [], 'a batch that is longer than the pool');
});

test('leaving: pages that are removed, replaced or expired are not reported', async (t) => {
  let now = 1000;
  const { pool, left, gone, publish } = setUp(t, 4, { present: () => now });
  const origin = { version: 1, kind: 'named', setBy: 0, expires: 2000 } as const;
  await pool.publishPages(['expiring'], [{ views: [content(1, PAGE)], length: PAGE }], origin);
  await publish([2, 3]);
  pool.remove('k2');
  await pool.publishPages(['k3'], [{ views: [content(33, PAGE)], length: PAGE }], { ...origin, expires: 0 });
  now = 3000;
  t.deepEqual([...left], []);
  await publish(range(10, 14));
  t.deepEqual([...left.keys()], ['k3']);
  t.deepEqual(left.get('k3'), content(33, PAGE));
  t.true(gone.includes('expiring'));
});

test('leaving: pages that go for pages filled from elsewhere are reported', async (t) => {
  const { pool, left, publish } = setUp(t, 4);
  await publish(range(0, 4));
  const leases = await pool.fillPages(['new'], [PAGE], async ([target]) => {
    target?.views[0]?.set(content(9, PAGE));
    return [crc32(content(9, PAGE), 0)];
  });
  pool.unlease(leases.filter((lease) => lease !== null));
  t.deepEqual([...left.keys()], ['k0']);
});
