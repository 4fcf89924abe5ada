import test from 'ava';
import { ArgumentError, type EvictionPolicy, type Keys, PoolAllocator } from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';

const PAGE_BYTES = 4096;
const NEVER = Number.POSITIVE_INFINITY;

function poolOf(pages: number, policy: EvictionPolicy = 'yield'): PoolAllocator {
  return new PoolAllocator({ capacityBytes: pages * PAGE_BYTES, policy, core: freshCore() });
}

function pagesOf(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}.${i}`);
}

/** A full pool of two requests of four pages, `a` and `b`. */
function poolOfTwo(policy: EvictionPolicy = 'yield'): PoolAllocator {
  const pool = poolOf(8, policy);
  pool.publishBatch(pagesOf('a', 4), PAGE_BYTES, 0, { continues: false });
  pool.publishBatch(pagesOf('b', 4), PAGE_BYTES, 0, { continues: false });
  return pool;
}

/** Evicts so many pages, one after the other. */
function evict(pool: PoolAllocator, count: number, nowMs = 0): (string | null)[] {
  return Array.from({ length: count }, () => pool.evictNext(nowMs));
}

const NOW_MS = 64_000;

/** A pool of 64 pages that knows its pace: a request of four pages each second, of which the last 16 are there. */
function poolOfRequests(): PoolAllocator {
  const pool = poolOf(64);
  for (let i = 1; i <= 64; i++) pool.publishBatch(pagesOf(`r${i}`, 4), PAGE_BYTES, i * 1000, { continues: false });
  return pool;
}

test('yield: pages that are never asked for again go first, from the end of their request', (t) => {
  const pool = poolOfTwo();
  pool.expectBatch(pagesOf('b', 4), NEVER, 0);
  pool.verify();
  t.deepEqual(pool.keys().slice(0, 4), pagesOf('b', 4).toReversed());
  const { evicted } = pool.publishBatch(pagesOf('c', 5), PAGE_BYTES, 0, { continues: false });
  t.deepEqual(evicted.slice(0, 4), pagesOf('b', 4).toReversed());
  t.true(evicted[4]?.startsWith('a.'));
  pool.verify();
});

test('yield: of pages that are expected late the last one goes first, before others; soon ones stay', (t) => {
  const pool = poolOfRequests();
  pool.expectBatch(pagesOf('r50', 4), 20_000, NOW_MS);
  pool.expectBatch(pagesOf('r61', 4), 1_000_000, NOW_MS);
  pool.expectBatch(pagesOf('r60', 4), 500_000, NOW_MS);
  pool.verify();
  const evicted = evict(pool, 65, NOW_MS);
  t.deepEqual(evicted.slice(0, 8), [...pagesOf('r61', 4).toReversed(), ...pagesOf('r60', 4).toReversed()]);
  t.true(evicted[8]?.startsWith('r49.'), `${evicted[8]}`);
  const [soon, later] = ['r50.3', 'r53.0'].map((key) => evicted.indexOf(key)) as [number, number];
  t.true(soon > later, 'what comes back in 20 seconds outlives pages that were used later');
  t.is(evicted[64], null);
  pool.verify();
});

test('yield: a page that is never asked for again goes before one that is expected late', (t) => {
  const pool = poolOfRequests();
  pool.expectBatch(pagesOf('r61', 4), 1_000_000, NOW_MS);
  pool.expectBatch(pagesOf('r62', 4), NEVER, NOW_MS);
  t.deepEqual(evict(pool, 8, NOW_MS), [...pagesOf('r62', 4).toReversed(), ...pagesOf('r61', 4).toReversed()]);
});

test('yield: without a pace, only pages that are never asked for again go before others', (t) => {
  const pool = poolOfTwo();
  pool.expectBatch(pagesOf('b', 4), 1_000_000, 0);
  t.true(evict(pool, 4).every((key) => key?.startsWith('a.')));
});

test('yield: times beyond the horizon are alike, and later than all within it', (t) => {
  const pool = poolOfRequests();
  pool.expectBatch(['r60.0'], 10 ** 9, NOW_MS);
  pool.expectBatch(['r61.0'], Number.MAX_VALUE, NOW_MS);
  pool.expectBatch(['r62.0'], 2_080_000, NOW_MS);
  pool.expectBatch(['r63.0'], 2_000_000, NOW_MS);
  pool.verify();
  t.deepEqual(evict(pool, 4, NOW_MS), ['r60.0', 'r61.0', 'r62.0', 'r63.0']);
  pool.verify();
});

const USES: Readonly<Record<string, (pool: PoolAllocator, keys: Keys) => unknown>> = {
  'looked up': (pool, keys) => pool.lookupBatch(keys, { continues: false }),
  touched: (pool, keys) => pool.touchBatch(keys, { continues: false }),
  published: (pool, keys) => pool.publishBatch(keys, PAGE_BYTES, 0, { continues: false }),
  renewed: (pool, keys) => pool.renewBatch(keys),
  'pinned and unpinned': (pool, keys) => [pool.pinBatch(keys), pool.unpinBatch(keys)],
  'given a priority and it is taken back': (pool, keys) => [
    pool.setPriorityBatch(keys, 'high'),
    pool.setPriorityBatch(keys, 'normal'),
  ],
};

for (const [used, use] of Object.entries(USES)) {
  test(`yield: a page that is ${used} is not awaited any more`, (t) => {
    const pool = poolOfTwo();
    pool.expectBatch(pagesOf('b', 4), NEVER, 0);
    use(pool, ['b.0', 'b.1']);
    pool.verify();
    const evicted = evict(pool, 6);
    t.deepEqual(evicted.slice(0, 2), ['b.3', 'b.2']);
    t.deepEqual(evicted.slice(2).sort(), pagesOf('a', 4), 'pages that are used now stay longest');
    pool.verify();
  });
}

test('yield: a page is as any other once its time has come', (t) => {
  const pool = poolOfRequests();
  pool.expectBatch(pagesOf('r49', 4), 20_000, NOW_MS);
  pool.expectBatch(pagesOf('r50', 4), 20_000_000, NOW_MS);
  const [first] = evict(pool, 1, NOW_MS + 30_000);
  t.is(first, 'r50.3', 'the horizon is far ahead');
  pool.verify();
  pool.expectBatch(pagesOf('r64', 4), 20_000_000, NOW_MS + 30_000);
  const later = evict(pool, 64, NOW_MS + 30_000 + 2_200_000);
  t.not(later[0], 'r50.2', 'what is beyond the horizon is awaited up to there');
  const [early, late] = ['r49.0', 'r57.2'].map((key) => later.indexOf(key)) as [number, number];
  t.true(early >= 0 && early < late, 'it goes with those of about its age');
  t.is(later.filter((key) => key === null).length, 1);
  pool.verify();
});

test('yield: pinned pages, and those with priorities, are left as they are', (t) => {
  const pool = poolOfTwo();
  pool.pin('b.3');
  pool.setPriorityBatch(['b.2'], 'high');
  pool.setPriorityBatch(['a.0'], 'low');
  pool.expectBatch([...pagesOf('b', 4), 'a.0'], NEVER, 0);
  pool.verify();
  t.deepEqual(evict(pool, 3), ['a.0', 'b.1', 'b.0']);
  pool.unpin('b.3');
  t.deepEqual(evict(pool, 5).slice(3), ['b.3', 'b.2']);
});

test('yield: keys that are not there change nothing', (t) => {
  const pool = poolOfTwo();
  const before = pool.keys();
  pool.expectBatch(['unknown', 'c.0'], NEVER, 0);
  t.deepEqual(pool.keys(), before);
  const [evicted] = evict(pool, 1);
  pool.expectBatch([evicted as string], NEVER, 0);
  pool.expectBatch([], NEVER, 0);
  pool.verify();
  t.is(pool.size, 7);
});

for (const policy of ['lru', 's3fifo'] as const) {
  test(`${policy}: what callers expect changes nothing`, (t) => {
    const [pool, other] = [poolOfTwo(policy), poolOfTwo(policy)];
    pool.expectBatch(pagesOf('b', 4), NEVER, 0);
    pool.expectBatch(pagesOf('a', 2), 1_000, 5);
    t.deepEqual(pool.keys(), other.keys());
    t.deepEqual(evict(pool, 8), evict(other, 8));
    pool.verify();
  });
}

test('yield: a clock that goes back, or far ahead, costs no page and no time', (t) => {
  const pool = poolOfRequests();
  for (const nowMs of [NOW_MS, 0, -(10 ** 9), NOW_MS + 2 ** 32, NOW_MS, 2 ** 53, Number.MAX_VALUE, 5]) {
    const size = pool.size;
    pool.expectBatch(['r60.0', 'r60.1'], 60_000, nowMs);
    pool.expectBatch(['r61.0'], NEVER, nowMs);
    t.truthy(pool.evictNext(nowMs));
    t.is(pool.size, size - 1);
    pool.verify();
  }
});

test('yield: for a clock that has gone back the latest time counts', (t) => {
  const pool = poolOfRequests();
  pool.expectBatch(pagesOf('r60', 4), 20_000_000, 0);
  t.deepEqual(evict(pool, 4, 0), pagesOf('r60', 4).toReversed());
  pool.expectBatch(pagesOf('r61', 4), 1_000, 5_000);
  t.true(evict(pool, 4, 5_000).every((key) => key?.startsWith('r49.')));
});

test('yield: memory is bounded whatever callers expect', (t) => {
  const core = freshCore();
  const pool = new PoolAllocator({ capacityBytes: 100 * PAGE_BYTES, policy: 'yield', core });
  const publish = (from: number, to: number): void => {
    for (let i = from; i < to; i++) {
      const keys = pagesOf(`k${i}`, 50);
      pool.publishBatch(keys, PAGE_BYTES, i * 1000, { continues: false });
      pool.expectBatch(keys, NEVER, i * 1000);
      pool.expectBatch(keys, [1_000, 100_000, 10 ** 7, NEVER][i % 4] as number, i * 1000);
    }
  };
  publish(0, 500);
  const { memoryBytes } = core;
  publish(500, 2_500);
  t.is(core.memoryBytes, memoryBytes);
  pool.verify();
});

test('yield: wrong expectations are refused', (t) => {
  const pool = poolOfTwo();
  const before = pool.keys();
  const expect = (...given: readonly unknown[]): void => pool.expectBatch(...(given as [Keys, number, number]));
  for (const inMs of [Number.NaN, -1, Number.NEGATIVE_INFINITY, '5', null, undefined, {}, 5n]) {
    const error = t.throws(() => expect(['a.0'], inMs, 0), { instanceOf: ArgumentError }) as ArgumentError;
    t.regex(error.message, /inMs must be 0 or more milliseconds, or Infinity for never, got /);
  }
  for (const nowMs of [Number.NaN, NEVER, '5', undefined]) {
    t.throws(() => expect(['a.0'], 1000, nowMs), {
      instanceOf: ArgumentError,
      message: /nowMs must be a finite number/,
    });
  }
  for (const keys of ['a.0', null, undefined, [5], [null], ['a.0', '\ud800'], {}]) {
    t.throws(() => expect(keys, 1000, 0), { instanceOf: ArgumentError }, JSON.stringify(keys));
  }
  t.deepEqual(pool.keys(), before);
  t.notThrows(() => expect(['a.0'], 0, 0));
  pool.free();
  t.throws(() => expect(['a.0'], 1000, 0), { code: 'ERR_CLOSED' });
});
