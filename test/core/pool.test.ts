import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { ArgumentError, ClosedError, PoolAllocator, type PoolAllocatorOptions } from '../../src/core/index.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';

const PAGE_BYTES = 4096;

function poolOf(pages: number, options: Partial<PoolAllocatorOptions> = {}): PoolAllocator {
  return new PoolAllocator({ capacityBytes: pages * PAGE_BYTES, core: freshCore(), ...options });
}

test('pool: pages of one size fill the capacity exactly', (t) => {
  const pool = poolOf(100);
  const keys = Array.from({ length: 100 }, (_, i) => `k${i}`);
  const { offsets, evicted } = pool.publishBatch(keys, PAGE_BYTES);
  t.deepEqual(
    Array.from(offsets),
    keys.map((_, i) => i * PAGE_BYTES),
  );
  t.deepEqual(evicted, []);
  t.is(pool.size, 100);
  t.is(pool.usedBytes, pool.capacityBytes);
  t.deepEqual(pool.publish('one more', PAGE_BYTES), { offset: 0, slot: 0, evicted: ['k0'] });
  pool.verify();
});

test('pool: a use saves a page from being next', (t) => {
  const pool = poolOf(3);
  pool.publishBatch(['a', 'b', 'c'], PAGE_BYTES);
  t.truthy(pool.lookup('a'));
  t.true(pool.has('b'));
  t.deepEqual(pool.keys(), ['b', 'c', 'a']);
  t.deepEqual(pool.publish('d', PAGE_BYTES)?.evicted, ['b']);
  t.is(pool.touchBatch(['c', 'absent', 'a']), 2);
  t.deepEqual(pool.keys(), ['d', 'c', 'a']);
});

test('pool: a page that a later key of its batch evicts is reported gone', (t) => {
  const pool = poolOf(2);
  const { offsets, slots, evicted } = pool.publishBatch(['a', 'b', 'c'], PAGE_BYTES);
  t.deepEqual(Array.from(offsets), [-1, PAGE_BYTES, 0]);
  t.deepEqual(Array.from(slots), [-1, 1, 0]);
  t.deepEqual(evicted, ['a']);
});

test('pool: publishing a present key replaces it', (t) => {
  const pool = poolOf(4);
  pool.publishBatch(['a', 'b'], PAGE_BYTES);
  t.deepEqual(pool.publish('a', 2 * PAGE_BYTES), { offset: 2 * PAGE_BYTES, slot: 0, evicted: [] });
  t.is(pool.lookup('a')?.bytes, 2 * PAGE_BYTES);
  t.is(pool.size, 2);
  // When the new page cannot be placed, the old one is gone all the same.
  t.is(pool.publish('a', 5 * PAGE_BYTES), null);
  t.false(pool.has('a'));
  pool.verify();
});

test('pool: pinned pages are never evicted', (t) => {
  const pool = poolOf(2);
  pool.publishBatch(['a', 'b'], PAGE_BYTES);
  t.true(pool.pin('a'));
  t.deepEqual(pool.publish('c', PAGE_BYTES)?.evicted, ['b']);
  t.true(pool.pin('c'));
  t.is(pool.publish('d', PAGE_BYTES), null);
  t.is(pool.stats().pinned, 2);
  t.true(pool.unpin('a'));
  t.false(pool.unpin('a'));
  t.deepEqual(pool.publish('d', PAGE_BYTES)?.evicted, ['a']);
  t.false(pool.pin('a'));
});

test('pool: the range of a page removed while pinned stays untouched until its last unpin', (t) => {
  const pool = poolOf(2);
  const first = pool.publish('a', PAGE_BYTES)?.offset;
  pool.publish('b', PAGE_BYTES);
  pool.pin('a');
  pool.pin('a');
  t.true(pool.remove('a'));
  t.false(pool.has('a'));
  t.is(pool.publish('a', PAGE_BYTES), null, 'its key cannot come back meanwhile');
  t.not(pool.publish('c', PAGE_BYTES)?.offset, first);
  t.true(pool.unpin('a'));
  t.not(pool.publish('d', PAGE_BYTES)?.offset, first);
  t.true(pool.unpin('a'));
  t.is(pool.publish('a', PAGE_BYTES)?.offset, first);
  pool.verify();
});

test('pool: a publish that no eviction can help empties no pool', (t) => {
  const pool = poolOf(1000);
  pool.publishBatch(
    Array.from({ length: 1000 }, (_, i) => `k${i}`),
    PAGE_BYTES,
  );
  for (let i = 0; i < 1000; i += 100) pool.pin(`k${i}`);
  t.is(pool.publish('huge', 500 * PAGE_BYTES), null);
  t.true(pool.lastEvicted.length <= 64, `${pool.lastEvicted.length} evicted`);
  t.is(pool.size, 1000 - pool.lastEvicted.length);
  t.truthy(pool.publish('fits', 90 * PAGE_BYTES));
});

test('pool: a page that just fits between two pins gets its place, however many go for it', (t) => {
  const pool = poolOf(1000);
  pool.publishBatch(
    Array.from({ length: 1000 }, (_, i) => `k${i}`),
    PAGE_BYTES,
  );
  for (let i = 0; i < 1000; i += 100) pool.pin(`k${i}`);
  t.is(pool.publish('fits', 99 * PAGE_BYTES)?.offset, PAGE_BYTES);
  t.is(pool.lastEvicted.length, 99);
});

test('pool: a range waits out its quarantine', (t) => {
  const pool = poolOf(4, { quarantineMs: 1000, quarantineMaxBytes: 2 * PAGE_BYTES });
  pool.publishBatch(['a', 'b', 'c', 'd'], PAGE_BYTES, 0);
  pool.remove('a', 10);
  t.is(pool.stats().quarantinedBytes, PAGE_BYTES);
  // Two victims wait behind a; that is one too many, so that a's range ends early.
  const early = pool.publish('e', PAGE_BYTES, 20);
  t.deepEqual(early, { offset: 0, slot: early?.slot, evicted: ['b', 'c'] });
  t.is(pool.stats().earlyReuses, 1);
  t.is(pool.publish('f', PAGE_BYTES, 1020)?.offset, PAGE_BYTES);
  t.is(pool.publish('g', PAGE_BYTES, 1020)?.offset, 2 * PAGE_BYTES);
  t.is(pool.stats().earlyReuses, 1);
  pool.verify();
});

test('pool: a quarantine that is never cut short refuses instead', (t) => {
  const pool = poolOf(4, { quarantineMs: 1000, quarantineMaxBytes: 2 * PAGE_BYTES, neverReuseEarly: true });
  pool.publishBatch(['a', 'b', 'c', 'd'], PAGE_BYTES, 0);
  t.is(pool.publish('e', PAGE_BYTES, 10), null);
  t.deepEqual(pool.lastEvicted, ['a', 'b']);
  t.is(pool.publish('e', PAGE_BYTES, 1009), null);
  t.deepEqual(pool.lastEvicted, []);
  t.is(pool.publish('e', PAGE_BYTES, 1010)?.offset, 0);
  t.is(pool.stats().earlyReuses, 0);
});

test('pool: no page crosses a segment', (t) => {
  const pool = poolOf(10, { segmentBytes: 5 * PAGE_BYTES });
  const offsets = Array.from(pool.publishBatch(['a', 'b', 'c'], 3 * PAGE_BYTES).offsets);
  t.deepEqual(offsets, [-1, 5 * PAGE_BYTES, 0]);
  t.is(pool.publish('d', 6 * PAGE_BYTES), null);
  t.truthy(pool.publish('e', 5 * PAGE_BYTES));
  pool.verify();
});

test('pool: offsets beyond 32 bits are exact', (t) => {
  const pageBytes = 2 ** 30 + 64;
  const pool = new PoolAllocator({ capacityBytes: 16_000 * pageBytes, core: freshCore() });
  const keys = Array.from({ length: 16_000 }, (_, i) => `k${i}`);
  const { offsets } = pool.publishBatch(keys, pageBytes);
  t.deepEqual(
    Array.from(offsets),
    keys.map((_, i) => i * pageBytes),
  );
  t.is(pool.usedBytes, 16_000 * pageBytes);
  pool.verify();
});

for (const name of BINARIES) {
  test(`pool: the index agrees with a Map over churn of many keys (${name})`, (t) => {
    const seed = 7;
    const random = seededRandom(seed);
    const pool = new PoolAllocator({ capacityBytes: 2 ** 30, core: freshCore(name) });
    const model = new Map<string, number>();
    for (let round = 0; round < 200; round++) {
      const keys = [...new Set(Array.from({ length: 200 }, () => `k${random.u32() % 20_000}`))];
      if (random.u32() % 2 === 0) {
        const { offsets } = pool.publishBatch(keys, 64);
        for (const [i, key] of keys.entries()) model.set(key, offsets[i] as number);
      } else {
        const removed = Array.from(pool.removeBatch(keys), (flag) => flag === 1);
        t.deepEqual(
          removed,
          keys.map((key) => model.delete(key)),
          `seed ${seed}, round ${round}`,
        );
      }
    }
    const all = Array.from({ length: 20_000 }, (_, i) => `k${i}`);
    const { offsets } = pool.lookupBatch(all);
    t.deepEqual(
      Array.from(offsets),
      all.map((key) => model.get(key) ?? -1),
      `seed ${seed}`,
    );
    t.deepEqual(
      Array.from(pool.hasBatch(all), Boolean),
      all.map((key) => model.has(key)),
    );
    pool.verify();
  });
}

test('pool: clear leaves nothing but free space', (t) => {
  const pool = new PoolAllocator({ capacityBytes: 640, alignmentBytes: 64, core: freshCore() });
  pool.publishBatch(['a', 'b', 'c'], 100);
  t.is(pool.stats().paddingBytes, 3 * 28);
  pool.clear();
  t.deepEqual(pool.keys(), []);
  t.is(pool.stats().largestFreeBytes, pool.capacityBytes);
  pool.verify();
});

test('pool: pools of one core are independent, and their memory is used again', (t) => {
  const core = freshCore();
  const make = (): PoolAllocator => new PoolAllocator({ capacityBytes: 2 ** 30, policy: 's3fifo', core });
  const fill = (pool: PoolAllocator): void => {
    for (let i = 0; i < 20; i++)
      pool.publishBatch(
        Array.from({ length: 1000 }, (_, j) => `k${i * 1000 + j}`),
        2 ** 17,
      );
  };
  const other = make();
  other.publish('a', 64);
  fill(make());
  const pool = make();
  fill(pool);
  pool.free();
  const { memoryBytes } = core;
  for (let i = 0; i < 20; i++) {
    const next = make();
    fill(next);
    next.free();
    next.free();
  }
  t.is(core.memoryBytes, memoryBytes);
  t.deepEqual(other.keys(), ['a']);
  t.throws(() => pool.has('a'), { instanceOf: ClosedError });
});

test('pool: views are renewed when the memory grows in the middle of a batch', (t) => {
  const pool = new PoolAllocator({ capacityBytes: 2 ** 40, core: freshCore() });
  const keys = Array.from({ length: 200_000 }, (_, i) => `k${i}`);
  const { offsets } = pool.publishBatch(keys, 4096);
  t.true(offsets.every((offset, i) => offset === i * 4096));
  t.deepEqual(pool.keys(), keys);
});

test('pool: options and arguments that make no sense are refused', (t) => {
  const core = freshCore();
  const wrong: Partial<PoolAllocatorOptions>[] = [
    { capacityBytes: 0 },
    { capacityBytes: -1 },
    { capacityBytes: 1.5 },
    { capacityBytes: 63, alignmentBytes: 64 },
    { capacityBytes: Number.NaN },
    { capacityBytes: 4096, alignmentBytes: 48 },
    { capacityBytes: 4096, segmentBytes: 100, alignmentBytes: 64 },
    { capacityBytes: 4096, segmentBytes: 0 },
    { capacityBytes: 2 ** 50, segmentBytes: 64 },
    { capacityBytes: 4096, quarantineMs: -1 },
    { capacityBytes: 4096, quarantineMs: Number.POSITIVE_INFINITY },
    { capacityBytes: 4096, quarantineMaxBytes: 0.5 },
    { capacityBytes: 4096, neverReuseEarly: 'false' as unknown as boolean },
    { capacityBytes: 4096, policy: 'fifo' as 'lru' },
    { capacityBytes: 4096, policy: 'toString' as 'lru' },
  ];
  for (const options of wrong) {
    const make = (): PoolAllocator => new PoolAllocator({ ...(options as PoolAllocatorOptions), core });
    t.throws(make, { instanceOf: ArgumentError }, JSON.stringify(options));
  }
  const pool = poolOf(4);
  t.throws(() => pool.publishBatch(['a', 'b'], [1]), { instanceOf: ArgumentError });
  t.throws(() => pool.publishBatch(['a', 'b'], [1, -1]), { instanceOf: ArgumentError });
  t.throws(() => pool.publish('a', Number.NaN), { instanceOf: ArgumentError });
  t.throws(() => pool.publish('a', 1, Number.NaN), { instanceOf: ArgumentError });
  t.throws(() => pool.publish('\udc00', 1), { instanceOf: ArgumentError });
  t.throws(() => pool.hasBatch('ab' as unknown as string[]), { instanceOf: ArgumentError });
  t.throws(() => pool.publish('a', null as unknown as number), { instanceOf: ArgumentError });
  t.throws(() => pool.lookupBatch(['a', 5 as unknown as string]), { instanceOf: ArgumentError });
  t.is(pool.size, 0);
});

test('pool: empty batches do nothing', (t) => {
  const pool = poolOf(4);
  t.is(pool.publishBatch([], 10).offsets.length, 0);
  t.is(pool.lookupBatch([]).offsets.length, 0);
  t.is(pool.hasBatch([]).length, 0);
  t.is(pool.removeBatch([]).length, 0);
  t.is(pool.touchBatch([]), 0);
});
