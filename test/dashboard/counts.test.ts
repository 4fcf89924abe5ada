import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { type Buckets, quantileOf } from '../../src/base/quantile.js';
import {
  addBuckets,
  addCounts,
  countsBetween,
  countsOf,
  hitsOf,
  NO_COUNTS,
  shareOf,
} from '../../src/dashboard/data/counts.js';
import { FakeNode } from '../_support/dashboard/fake-cluster.js';

test('dashboard counts: what lies between two reports, added to the first, is the second', (t) => {
  const node = new FakeNode('n', 1);
  node.ticks = 50;
  const first = countsOf(node.report(1));
  node.ticks = 80;
  const second = countsOf(node.report(1));
  const between = countsBetween(first, second);
  t.truthy(between);
  t.deepEqual(addCounts(first, between!), second);
  t.true(hitsOf(between!) > 0);
});

test('dashboard counts: any count that falls is a node that has started anew', (t) => {
  const node = new FakeNode('n', 1);
  node.ticks = 50;
  const counts = countsOf(node.report(1));
  t.is(countsBetween({ ...counts, found: counts.found + 1 }, counts), null);
  const [first = 0, ...rest] = counts.readLatency.counts;
  const more = { ...counts.readLatency, counts: [first + 1, ...rest] };
  t.is(countsBetween({ ...counts, readLatency: more }, counts), null);
  t.deepEqual(countsBetween(counts, counts)?.local, 0);
});

test('dashboard counts: a report of another version counts what it knows, whatever else it says', (t) => {
  t.deepEqual(countsOf({}), NO_COUNTS);
  const counts = countsOf({ reads: { local: 5, remote: Number.NaN, misses: -3 }, writes: { pages: '7' as never } });
  t.like(counts, { local: 5, remote: 0, disk: 0, misses: 0, writes: 0 });
});

test('dashboard counts: shares of nothing are unknown', (t) => {
  t.is(shareOf(0, 0), null);
  t.is(shareOf(1, 4), 0.25);
});

test('dashboard quantile: lies in the bucket of the call that it is, never falls, and is unknown without calls', (t) => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  const boundsS = [1, 2, 4, 8, 16];
  for (let round = 0; round < 200; round++) {
    const calls = Array.from({ length: 1 + (random.u32() % 50) }, () => (random.u32() % 2000) / 100);
    const counts = [...boundsS, Number.POSITIVE_INFINITY].map(
      (bound, i, all) => calls.filter((s) => s <= bound && s > (all[i - 1] ?? -1)).length,
    );
    calls.sort((a, b) => a - b);
    let last = 0;
    for (const quantile of [0.01, 0.25, 0.5, 0.9, 0.99, 1]) {
      const exact = calls[Math.ceil(quantile * calls.length) - 1] as number;
      const found = quantileOf({ boundsS, counts }, quantile) as number;
      const bucket = boundsS.findIndex((bound) => exact <= bound);
      const [lower, upper] = bucket < 0 ? [16, 16] : [boundsS[bucket - 1] ?? 0, boundsS[bucket] as number];
      t.true(found >= lower && found <= upper, `seed ${seed}, round ${round}: ${quantile} is ${exact}, said ${found}`);
      t.true(found >= last, `seed ${seed}, round ${round}`);
      last = found;
    }
  }
  t.is(quantileOf({ boundsS, counts: [0, 0, 0, 0, 0, 0] }, 0.5), null);
  t.is(quantileOf({ boundsS: [], counts: [] }, 0.5), null);
});

test('dashboard quantile: calls lie evenly within their bucket', (t) => {
  const buckets: Buckets = { boundsS: [1, 3], counts: [10, 10, 0] };
  t.is(quantileOf(buckets, 0.25), 0.5);
  t.is(quantileOf(buckets, 0.75), 2);
});

test('dashboard counts: buckets of another version are left out of a sum', (t) => {
  const a: Buckets = { boundsS: [1, 2], counts: [1, 1, 0] };
  t.deepEqual(addBuckets(a, a).counts, [2, 2, 0]);
  t.deepEqual(addBuckets(a, { boundsS: [1, 4], counts: [5, 5, 5] }), a);
});
