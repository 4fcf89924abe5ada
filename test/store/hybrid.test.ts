import test from 'ava';
import fc from 'fast-check';
import { hybridHits, type PoolPresence, prefixLength } from '../../src/store/namespace/hybrid.js';

function hybridBoundary(kvHitPages: number, pools: readonly PoolPresence[]): number {
  return hybridHits(kvHitPages, pools).kvHitPages;
}

function pool(present: readonly number[], trailingCount?: number): PoolPresence {
  return { name: 'x', present: present.map((flag) => flag === 1), trailingCount };
}

test('hybrid: without further pools the boundary is the KV prefix', (t) => {
  t.is(hybridBoundary(5, []), 5);
  t.is(hybridBoundary(0, [pool([1, 1])]), 0);
});

test('hybrid: a pool needed for every page shortens the prefix to its first gap', (t) => {
  t.is(hybridBoundary(4, [pool([1, 1, 0, 1])]), 2);
  t.is(hybridBoundary(1, [pool([1, 1, 0, 1])]), 1);
});

test('hybrid: a pool needed for trailing pages moves the boundary back until it has them', (t) => {
  t.is(hybridBoundary(4, [pool([0, 0, 1, 0], 1)]), 3);
  t.is(hybridBoundary(4, [pool([0, 1, 1, 0], 2)]), 3);
  t.is(hybridBoundary(4, [pool([0, 1, 0, 1], 2)]), 0);
  t.is(hybridBoundary(2, [pool([1, 1, 0, 0], 8)]), 2);
});

test('hybrid: the boundary is legal for all pools at once, not the least of their own ones', (t) => {
  t.is(hybridBoundary(3, [pool([0, 0, 1], 1), pool([0, 1, 0], 1)]), 0);
  t.is(hybridBoundary(3, [pool([1, 0, 1], 1), pool([1, 1, 0], 1)]), 1);
  t.is(hybridBoundary(4, [pool([0, 0, 0, 1], 1), pool([1, 1, 1, 0])]), 0);
});

test('hybrid: the boundary is the greatest that a check page by page accepts', (t) => {
  const pools = fc.array(
    fc.record({
      name: fc.constant('x'),
      present: fc.array(fc.boolean(), { minLength: 12, maxLength: 12 }),
      trailingCount: fc.option(fc.integer({ min: 1, max: 5 }), { nil: undefined }),
    }),
    { maxLength: 4 },
  );
  const isLegal = (boundary: number, given: readonly PoolPresence[]): boolean =>
    given.every(({ present, trailingCount }) => {
      for (let i = 0; i < boundary; i++) {
        const isNeeded = trailingCount === undefined || i >= boundary - trailingCount;
        if (isNeeded && present[i] !== true) return false;
      }
      return true;
    });
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 12 }), pools, (kv, given) => {
      let expected = kv;
      while (!isLegal(expected, given)) expected--;
      t.is(hybridBoundary(kv, given), expected);
    }),
  );
  t.pass();
});

test('hybrid: each further pool is reported with its own boundary', (t) => {
  const hits = hybridHits(4, [
    { name: 'p', present: [true, true, false, true], trailingCount: undefined },
    { name: 'q', present: [true, true, true, false], trailingCount: undefined },
    { name: 'r', present: [false, false, false, true], trailingCount: 1 },
  ]);
  t.deepEqual(hits, { kvHitPages: 0, extraPoolHitPages: { p: 2, q: 3, r: 4 } });
});

test('hybrid: takes time in proportion to the pages: a long prefix with gaps at both ends', (t) => {
  const count = 300_000;
  const present = new Array<boolean>(count).fill(true);
  present[0] = false;
  present[count - 1] = false;
  t.is(hybridBoundary(count, [{ name: 'x', present, trailingCount: count - 1 }]), 0);
});

test('hybrid: prefix length ends at the first gap', (t) => {
  t.is(prefixLength([]), 0);
  t.is(prefixLength([true, true]), 2);
  t.is(prefixLength([true, false, true]), 1);
});
