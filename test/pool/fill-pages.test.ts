import test, { type ExecutionContext } from 'ava';
import { crc32, crc32Views } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool, type PublishedPoolOptions } from '../../src/node/machine/machine-node.js';
import type { PageBytes, PageLease } from '../../src/pool/published-pool.js';
import { settled } from '../_support/pool/held-copies.js';
import { pageBytes } from '../_support/pool/page-bytes.js';
import { removeAll } from '../_support/pool/remove-all.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

function page(seed: number, length = PAGE) {
  return { views: [content(seed, length)], length };
}

function setUp(t: ExecutionContext, pages: number, options: PublishedPoolOptions = {}) {
  const region = HostRegion.allocate(pages * PAGE);
  const pool = new PublishedPool(region.addr, region.length, 7, options);
  t.teardown(() => {
    pool.free();
    region.free();
  });
  return pool;
}

/** Fills targets with the contents of these seeds when it is told to; a seed below 0 fails. */
function held(seeds: readonly number[]) {
  let targets: readonly (PageBytes | null)[] = [];
  let finish: (error?: Error) => void = () => {};
  const finished = new Promise<void>((resolve, reject) => {
    finish = (error) => (error === undefined ? resolve() : reject(error));
  });
  const fill = async (given: readonly (PageBytes | null)[]) => {
    targets = given;
    await finished;
    return given.map((target, i) => {
      const seed = seeds[i] as number;
      if (target === null || seed < 0) return null;
      target.views[0]?.set(content(seed, target.length));
      return crc32Views(target.views);
    });
  };
  return { fill, finish: (error?: Error) => finish(error), targets: () => targets };
}

function bytesOf(pool: PublishedPool, lease: PageLease | null | undefined): Uint8Array | null {
  return lease ? pageBytes(pool, lease.page) : null;
}

test('pool fill: pages come straight into their ranges, found and leased when they are there', async (t) => {
  const pool = setUp(t, 8);
  pool.publishBatch(['here'], [page(9)]);
  const { fill, finish, targets } = held([1, -1, 9, 3]);
  const filling = pool.fillPages(['a', 'b', 'here', 'c'], [PAGE, PAGE, PAGE, 100], fill);
  t.deepEqual(
    targets().map((target) => target?.length ?? null),
    [PAGE, PAGE, null, 100],
  );
  t.deepEqual([...pool.hasBatch(['a', 'b', 'here', 'c'])], [0, 0, 1, 0]);
  finish();
  const leases = await filling;
  t.deepEqual(bytesOf(pool, leases[0]), content(1, PAGE));
  t.is(leases[0]?.page.checksum, crc32(content(1, PAGE)));
  t.is(leases[1], null);
  t.deepEqual(bytesOf(pool, leases[2]), content(9, PAGE));
  t.deepEqual(bytesOf(pool, leases[3]), content(3, 100));
  t.is(pool.stats().pinned, 3);
  t.deepEqual(pool.keys().sort(), ['a', 'c', 'here']);
  pool.unlease(leases.filter((lease) => lease !== null));
  t.is(pool.stats().pinned, 0);
  t.is(pool.bytesUsed, 2 * PAGE + 100);
});

test('pool fill: of pages that do not all fit, those that fit come, and none evicts another one', async (t) => {
  // What is evicted keeps its range for a while. With one range left, the second page finds none.
  const pool = setUp(t, 2, { quarantineMs: 1_000, neverReuseEarly: true });
  pool.publishBatch(['here'], [page(9)]);
  const here = pool.lease(['here']);
  const { fill, finish } = held([1, 2]);
  const filling = pool.fillPages(['a', 'b'], [PAGE, PAGE], fill);
  finish();
  const leases = await filling;
  t.deepEqual(bytesOf(pool, leases[0]), content(1, PAGE));
  t.is(leases[1], null);
  pool.unlease([...here, ...leases].filter((lease) => lease !== null));
});

test('pool fill: a leased page is not evicted, and is when nobody has it leased any more', async (t) => {
  const pool = setUp(t, 2);
  pool.publishBatch(['a', 'b'], [page(1), page(2)]);
  const [first, unknown] = pool.lease(['a', 'x']);
  const [second] = pool.lease(['a']);
  t.is(unknown, null);
  const publishMore = (seed: number) => pool.publishBatch([`x${seed}`], [page(seed)]);
  publishMore(10);
  publishMore(11);
  t.true(pool.has('a'));
  pool.unlease([first as PageLease]);
  pool.unlease([first as PageLease]);
  t.false(first?.isLive);
  publishMore(12);
  t.true(pool.has('a'), 'given back twice, and still the other one’s');
  pool.unlease([second as PageLease]);
  publishMore(13);
  publishMore(14);
  t.false(pool.has('a'));
});

test('pool fill: publishing other bytes, removing and clearing end a lease; publishing the same ones does not', async (t) => {
  const pool = setUp(t, 4);
  const leased = () => {
    pool.publishBatch(['a'], [page(1)]);
    return pool.lease(['a'])[0] as PageLease;
  };
  const same = leased();
  t.true(pool.publishBatch(['a'], [page(1)])[0]?.alreadyPresent);
  t.true(same.isLive);
  const [other] = pool.publishBatch(['a'], [page(2)]);
  t.deepEqual(other && pageBytes(pool, other), content(2, PAGE));
  t.false(same.isLive);
  for (const end of [() => pool.remove('a'), () => removeAll(pool)]) {
    const lease = leased();
    end();
    t.false(lease.isLive);
    t.is(pool.stats().quarantinedBytes, 0, 'its range is free');
    pool.unlease([lease]);
    t.not(pool.publishBatch(['a'], [page(3)])[0], null);
  }
});

test('pool fill: a page that is set meanwhile waits, and then takes the place', async (t) => {
  const pool = setUp(t, 8);
  const { fill, finish } = held([1]);
  const filling = pool.fillPages(['a'], [PAGE], fill);
  const setting = pool.publishPages(['a', 'b'], [page(2), page(3)]);
  const settingOther = pool.publishPages(['c'], [page(4)]);
  t.not((await settingOther)[0], null, 'others do not wait');
  t.deepEqual(pool.publishBatch(['a'], [page(5)]), [null], 'who cannot wait is refused');
  finish();
  await filling;
  const [a] = await setting;
  t.deepEqual(a && pageBytes(pool, a), content(2, PAGE));
  t.is(pool.stats().pinned, 0);
});

test('pool fill: what is removed meanwhile is not there, and its range stays untouched until the end', async (t) => {
  for (const end of ['remove', 'clear'] as const) {
    const pool = setUp(t, 2);
    const { fill, finish } = held([1]);
    const filling = pool.fillPages(['a'], [PAGE], fill);
    if (end === 'remove') t.false(pool.remove('a'));
    else removeAll(pool);
    pool.publishBatch(['x', 'y'], [page(8), page(9)]);
    t.is(pool.size, 1);
    finish();
    t.deepEqual(await filling, [null]);
    t.false(pool.has('a'));
    const [y] = pool.peekBatch(['y']);
    t.deepEqual(y && pageBytes(pool, y), content(9, PAGE));
    pool.publishBatch(['z'], [page(7)]);
    t.is(pool.size, 2);
  }
});

test('pool fill: an error is passed on, and nothing of it is left', async (t) => {
  const pool = setUp(t, 4);
  const { fill, finish } = held([1, 2]);
  const filling = pool.fillPages(['a', 'b'], [PAGE, PAGE], fill);
  const setting = pool.publishPages(['a'], [page(5)]);
  finish(new Error('no disk'));
  await t.throwsAsync(filling, { message: 'no disk' });
  t.not((await setting)[0], null);
  t.deepEqual(pool.keys(), ['a']);
  t.is(pool.stats().pinned, 0);
  t.is(pool.bytesUsed, PAGE);
});

test('pool fill: pages for which there is no room have no target, and those evicted are told', async (t) => {
  const evicted: string[] = [];
  const pool = setUp(t, 4, { onEvict: (keys) => evicted.push(...keys) });
  pool.publishBatch(['p', 'q', 'r', 's'], [page(1), page(2), page(3), page(4)]);
  const leases = pool.lease(['p', 'q', 'r']);
  const { fill, finish, targets } = held([7, 8]);
  const filling = pool.fillPages(['big', 'small'], [2 * PAGE, PAGE], fill);
  finish();
  const [big, small] = await filling;
  t.is(targets()[0], null);
  t.is(big, null);
  t.deepEqual(bytesOf(pool, small), content(8, PAGE));
  t.deepEqual(evicted, ['s']);
  t.true(leases.every((lease) => lease?.isLive));
});

test('pool fill: the end waits for it, and freed in the middle it ends without its pages', async (t) => {
  const region = HostRegion.allocate(4 * PAGE);
  t.teardown(() => region.free());
  const pool = new PublishedPool(region.addr, region.length, 7);
  pool.publishBatch(['p'], [page(9)]);
  const [lease] = pool.lease(['p']);
  const { fill, finish } = held([1]);
  const filling = pool.fillPages(['a'], [PAGE], fill);
  let isEnded = false;
  const ending = pool.end().then(() => {
    isEnded = true;
  });
  await settled();
  t.false(isEnded);
  t.deepEqual(await pool.fillPages(['b'], [PAGE], fill), [null]);
  pool.free();
  t.false(lease?.isLive);
  pool.unlease([lease as PageLease]);
  finish();
  t.deepEqual(await filling, [null]);
  await ending;
});
