import test from 'ava';
import { HISTORY_INTERVALS_COUNT, HISTORY_STEPS_S } from '../../src/base/limits.js';
import { HISTORY_COUNTS, HISTORY_GAUGES, type HistorySample } from '../../src/metrics/history-report.js';
import { NodeHistory } from '../../src/metrics/node-history.js';
import { isHistoryLike } from '../../src/metrics/report-checks.js';
import { ManualClock } from '../_support/clock.js';

const BOUNDS_S = [0.001, 0.01];

/**
 * A node of which each second counts: its counters grow by 1 a second, `evictions` by 2, and reads take less than a
 * millisecond.
 */
class CountingNode {
  readonly clock = new ManualClock(0);
  /** Samples that fail. */
  failures = 0;
  readonly history = new NodeHistory({ boundsS: BOUNDS_S, sample: async () => this.#sample(), clock: this.clock });

  constructor() {
    this.history.start();
  }

  /** Turns the clock, and lets every sample be taken at its time. */
  async run(seconds: number): Promise<void> {
    for (let s = 0; s < seconds; s++) {
      this.clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  #sample(): HistorySample {
    if (this.failures-- > 0) throw new Error('no figures');
    const s = this.clock.nowMs() / 1_000;
    const counts = Object.fromEntries(HISTORY_COUNTS.map((name) => [name, name === 'evictions' ? 2 * s : s]));
    const gauges = Object.fromEntries(HISTORY_GAUGES.map((name) => [name, name === 'pool_pages' ? 100 : 7]));
    return { counts, gauges, readBuckets: [s, 0, 0] } as unknown as HistorySample;
  }
}

const sum = (values: readonly number[] = []): number => values.reduce((total, value) => total + value, 0);

test('history: at each resolution the intervals add up to what was counted, and memory is bounded', async (t) => {
  const node = new CountingNode();
  await node.run(2 * 3_600);
  for (const [i, stepS] of HISTORY_STEPS_S.entries()) {
    const { from_age_ms, ages_ms, counts, gauges, read_latency } = node.history.report(stepS);
    t.is(ages_ms.length, HISTORY_INTERVALS_COUNT[i] as number);
    t.is(from_age_ms, ages_ms.length * stepS * 1_000);
    t.is(ages_ms.at(-1), 0);
    t.true(counts.found?.every((count) => count === stepS));
    t.is(sum(counts.evictions), (2 * from_age_ms) / 1_000);
    t.true(gauges.pool_pages?.every((pages) => pages === 100));
    t.deepEqual(Object.keys(read_latency.buckets), ['0'], 'buckets without calls are left out');
    t.is(sum(read_latency.buckets[0]), from_age_ms / 1_000);
  }
});

test('history: everything since the start is there, up to the latest sample', async (t) => {
  const node = new CountingNode();
  await node.run(74);
  for (const stepS of HISTORY_STEPS_S) {
    const { from_age_ms, ages_ms, counts, totals } = node.history.report(stepS);
    t.is(from_age_ms, 74_000);
    t.is(ages_ms.at(-1), 0);
    t.is(sum(counts.found), 74);
    t.deepEqual([totals.counts.found, totals.read_buckets[0]], [74, 74]);
  }
  await node.run(1);
  t.is(node.history.report(60).ages_ms.at(-1), 1_000);
});

test('history: a sample that fails leaves a longer interval and no hole', async (t) => {
  const node = new CountingNode();
  await node.run(4);
  node.failures = 1;
  await node.run(4);
  const { ages_ms, counts } = node.history.report(2);
  t.deepEqual(ages_ms, [6_000, 4_000, 0]);
  t.deepEqual(counts.found, [2, 2, 4]);
});

test('history: recent figures are rates of the last seconds, and the page lifetime is pages by evictions', async (t) => {
  const node = new CountingNode();
  t.is(node.history.recent(), undefined);
  await node.run(100);
  const recent = node.history.recent();
  t.is(recent?.windowS, 30);
  t.is(recent?.readBytesPerS, 3);
  t.is(recent?.writtenBytesPerS, 1);
  t.is(recent?.evictionsPerS, 2);
  t.deepEqual([recent?.asked, recent?.found], [30, 30]);
  t.is(recent?.pageLifetimeS, 50);
  t.is(recent?.readP50S, 0.0005);
});

test('history: after stop no timer is left', async (t) => {
  const node = new CountingNode();
  await node.run(3);
  node.history.stop();
  t.is(node.clock.pendingCount, 0);
  t.throws(() => node.history.report(3), { message: /no history has steps of 3 s/ });
});

test('history: what a peer answers is taken only as columns of numbers of a known length', async (t) => {
  const node = new CountingNode();
  await node.run(10);
  const answer = { incarnation: 5, ...node.history.report(2) };
  t.true(isHistoryLike(answer));
  t.true(isHistoryLike(JSON.parse(JSON.stringify(answer))));
  for (const odd of [
    null,
    { ...answer, ages_ms: 'long ago' },
    { ...answer, ages_ms: new Array(1_000).fill(1) },
    { ...answer, counts: { found: [Number.NaN] } },
    { ...answer, gauges: { loop_p99_s: { length: 3 } } },
    { ...answer, read_latency: { bounds_s: [1], buckets: [[1]] } },
    { ...answer, counts: Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [i, [1]])) },
  ]) {
    t.false(isHistoryLike(odd), JSON.stringify(odd)?.slice(0, 80));
  }
});
