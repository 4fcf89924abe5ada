import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { ArgumentError, ClosedError, PoolAllocator, type PoolAllocatorOptions } from '../../src/core/index.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';

const UNIT_BYTES = 4096;
const ROUNDS = 40;

function poolOf(units: number, options: Partial<PoolAllocatorOptions> = {}): PoolAllocator {
  return new PoolAllocator({
    capacityBytes: units * UNIT_BYTES,
    alignmentBytes: UNIT_BYTES,
    core: freshCore(),
    ...options,
  });
}

interface Survivor {
  readonly key: string;
  readonly offset: number;
  readonly bytes: number;
}

function byOffset(pool: PoolAllocator): Survivor[] {
  const keys = pool.keys();
  const { offsets, bytes } = pool.peekBatch(keys);
  const pages = keys.map((key, i) => ({ key, offset: offsets[i] as number, bytes: bytes[i] as number }));
  return pages.sort((a, b) => a.offset - b.offset);
}

function restoreAll(pool: PoolAllocator, pages: readonly Survivor[]): number[] {
  const slots = pool.restoreBatch(
    pages.map(({ key }) => key),
    pages.map(({ bytes }) => bytes),
    pages.map(({ offset }) => offset),
  );
  return Array.from(slots);
}

/** Units that the pages take; throws where two overlap. */
function occupied(pages: readonly Survivor[]): number {
  let end = 0;
  let units = 0;
  for (const { key, offset, bytes } of pages) {
    if (offset < end) throw new Error(`${key} at ${offset} overlaps the page below, which ends at ${end}`);
    const size = Math.max(1, Math.ceil(bytes / UNIT_BYTES));
    end = offset + size * UNIT_BYTES;
    units += size;
  }
  return units;
}

for (const name of BINARIES) {
  test(`pool: what survives a restart is found where it lay, and publishing goes on around it (${name})`, (t) => {
    const core = freshCore(name);
    const seed = Date.now() >>> 0;
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    for (let round = 0; round < ROUNDS; round++) {
      const units = 20 + (random.u32() % 3000);
      const segments = 1 + (random.u32() % 4);
      const options: PoolAllocatorOptions = {
        capacityBytes: units * UNIT_BYTES,
        segmentBytes: Math.ceil(units / segments) * UNIT_BYTES,
        alignmentBytes: UNIT_BYTES,
        quarantineMs: random.u32() % 2,
        core,
      };
      const length = (): number => 1 + (random.u32() % (12 * UNIT_BYTES));
      const before = new PoolAllocator(options);
      const count = random.u32() % 600;
      for (let i = 0; i < count; i++) before.publish(`k${random.u32() % 400}`, length(), i);
      before.removeBatch(
        before.keys().filter(() => random.u32() % 3 === 0),
        count,
      );
      before.remove('nothing', count + 10);

      const after = new PoolAllocator(options);
      const pages = byOffset(before);
      for (let start = 0, step = 1; start < pages.length; start += step, step = 1 + (random.u32() % 100)) {
        t.true(restoreAll(after, pages.slice(start, start + step)).every((slot) => slot !== -1));
        after.verify();
      }
      t.is(after.touchBatch(before.keys()), pages.length);
      t.deepEqual(after.keys(), before.keys());
      t.deepEqual(byOffset(after), pages);
      t.deepEqual(
        { ...after.stats(), evictions: 0, earlyReuses: 0 },
        { ...before.stats(), evictions: 0, earlyReuses: 0 },
      );

      for (let i = 0; i < 300; i++) {
        const key = `k${random.u32() % 400}`;
        const others = after.keys().filter((other) => other !== key);
        after.publish(key, length(), count + 20 + i);
        t.deepEqual(after.lastEvicted, others.slice(0, after.lastEvicted.length));
      }
      after.verify();
      t.is(occupied(byOffset(after)) * UNIT_BYTES, after.stats().usedBytes + after.stats().paddingBytes);
      before.free();
      after.free();
    }
  });
}

test('pool: pages that cannot lie where they are said to are not restored, and the others are', (t) => {
  const pool = poolOf(10, { segmentBytes: 5 * UNIT_BYTES });
  const pages = [
    { key: 'first', offset: 0, bytes: 2 * UNIT_BYTES },
    { key: 'overlaps the first', offset: 1 * UNIT_BYTES, bytes: 1 },
    { key: 'empty', offset: 2 * UNIT_BYTES, bytes: 0 },
    { key: 'first', offset: 3 * UNIT_BYTES, bytes: 1 },
    { key: 'crosses the segments', offset: 4 * UNIT_BYTES, bytes: UNIT_BYTES + 1 },
    { key: 'after a gap', offset: 6 * UNIT_BYTES, bytes: 2 * UNIT_BYTES },
    { key: 'reaches beyond the end', offset: 9 * UNIT_BYTES, bytes: UNIT_BYTES + 1 },
    { key: 'starts at the end', offset: 10 * UNIT_BYTES, bytes: 0 },
    { key: 'far away', offset: Number.MAX_SAFE_INTEGER - UNIT_BYTES + 1, bytes: Number.MAX_SAFE_INTEGER },
  ];
  t.deepEqual(restoreAll(pool, pages), [0, -1, 1, -1, -1, 2, -1, -1, -1]);
  pool.verify();
  t.deepEqual(pool.keys(), ['first', 'empty', 'after a gap']);
  t.deepEqual(pool.lookup('first'), { offset: 0, bytes: 2 * UNIT_BYTES, slot: 0 });
  t.is(pool.stats().freeBytes, 5 * UNIT_BYTES);
  t.is(pool.stats().largestFreeBytes, 2 * UNIT_BYTES);
});

test('pool: a restore in several calls fills a pool to the last unit', (t) => {
  const pool = poolOf(6, { segmentBytes: 2 * UNIT_BYTES });
  for (let i = 0; i < 6; i++) t.deepEqual(restoreAll(pool, [{ key: `k${i}`, offset: i * UNIT_BYTES, bytes: 1 }]), [i]);
  pool.verify();
  t.is(pool.stats().freeBytes, 0);
  t.deepEqual(pool.publish('new', 2 * UNIT_BYTES)?.evicted, ['k0', 'k1']);
});

test('pool: offsets out of order or off the alignment are refused before anything is restored', (t) => {
  const page = (units: number): Survivor => ({ key: `k${units}`, offset: units * UNIT_BYTES, bytes: 1 });
  const pool = poolOf(10);
  for (const wrong of [page(0), page(0.5), page(-1), page(Number.NaN), page(Number.POSITIVE_INFINITY)]) {
    t.throws(() => restoreAll(pool, [page(0), wrong]), { instanceOf: ArgumentError }, `offset ${wrong.offset}`);
  }
  t.throws(() => restoreAll(pool, [{ ...page(0), bytes: -1 }]), { instanceOf: ArgumentError });
  t.throws(() => restoreAll(pool, [{ ...page(0), key: '\udc00' }]), { instanceOf: ArgumentError });
  t.throws(() => pool.restoreBatch(['a', 'b'], [1, 1], [0]), { instanceOf: ArgumentError });
  t.throws(() => pool.restoreBatch(['a', 'b'], [1], [0, UNIT_BYTES]), { instanceOf: ArgumentError });
  t.is(pool.size, 0);
  restoreAll(pool, [page(0), page(3)]);
  for (const units of [0, 2, 3]) {
    t.throws(() => restoreAll(pool, [page(units)]), { instanceOf: ArgumentError }, `${units} after 3`);
  }
  t.is(pool.restoreBatch([], [], []).length, 0);
  t.deepEqual(restoreAll(pool, [page(4)]), [2]);
  pool.verify();
});

test('pool: nothing is restored after pages were published or removed', (t) => {
  const page = { key: 'late', offset: 5 * UNIT_BYTES, bytes: 1 };
  const spoilers: Record<string, (pool: PoolAllocator) => void> = {
    publish: (pool) => pool.publish('new', 1),
    remove: (pool) => pool.remove('early'),
    clear: (pool) => pool.clear(),
    evictNext: (pool) => pool.evictNext(),
    'remove while pinned': (pool) => pool.pin('early') && pool.remove('early'),
    'remove, and wait': (pool) => pool.remove('early') && pool.remove('nothing', 1e9),
  };
  for (const [what, spoil] of Object.entries(spoilers)) {
    for (const quarantineMs of [0, 1000]) {
      const pool = poolOf(10, { quarantineMs });
      restoreAll(pool, [{ key: 'early', offset: 0, bytes: 1 }]);
      spoil(pool);
      t.throws(() => restoreAll(pool, [page]), { instanceOf: ArgumentError }, what);
      t.false(pool.has('late'), what);
      pool.verify();
    }
  }
  const untouched = poolOf(10);
  t.is(untouched.publish('too large', 11 * UNIT_BYTES), null);
  t.false(untouched.remove('nothing'));
  t.deepEqual(restoreAll(untouched, [page]), [0]);
  untouched.free();
  t.throws(() => restoreAll(untouched, []), { instanceOf: ClosedError });
  t.throws(() => untouched.evictNext(), { instanceOf: ClosedError });
});

test('pool: evictNext follows the order of eviction, steps over pins, and leaves the range to the quarantine', (t) => {
  const pool = poolOf(4, { quarantineMs: 1000, quarantineMaxBytes: 2 * UNIT_BYTES, neverReuseEarly: true });
  t.is(pool.evictNext(), null);
  pool.publishBatch(['a', 'b', 'c', 'd'], UNIT_BYTES);
  pool.pin('a');
  pool.lookup('b');
  t.is(pool.evictNext(10), 'c');
  t.is(pool.evictNext(20), 'd');
  t.is(pool.stats().quarantinedBytes, 2 * UNIT_BYTES);
  t.is(pool.evictNext(30), null, 'the quarantine is at its limit');
  t.is(pool.evictNext(1010), 'b');
  t.is(pool.evictNext(9999), null, 'the only page is pinned');
  t.is(pool.stats().evictions, 3);
  t.throws(() => pool.evictNext(Number.NaN), { instanceOf: ArgumentError });
  t.deepEqual(pool.keys(), ['a']);
  pool.verify();
});

test('pool: views are renewed when the memory grows in the middle of a restore', (t) => {
  const pool = new PoolAllocator({ capacityBytes: 2 ** 40, core: freshCore() });
  const keys = Array.from({ length: 200_000 }, (_, i) => `k${i}`);
  const lengths = keys.map(() => 4096);
  const offsets = keys.map((_, i) => i * 8192);
  t.true(pool.restoreBatch(keys, lengths, offsets).every((slot, i) => slot === i));
  t.deepEqual(Array.from(pool.lookupBatch(keys).offsets), offsets);
  t.deepEqual(pool.keys(), keys);
  pool.verify();
});
