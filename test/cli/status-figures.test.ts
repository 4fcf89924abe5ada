import test from 'ava';
import { quantileOf } from '../../src/base/quantile.js';
import { nodeRow, statusResult } from '../../src/cli/status/status-report.js';
import { formatStatus } from '../../src/cli/status/status-text.js';

import { LATENCY_BOUNDS_S } from '../../src/metrics/metrics-report.js';
import { Metrics } from '../../src/node/machine/machine-node.js';
import { NodeFigures } from '../../src/node/reporting/node-figures.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { sampleIn } from '../_support/metrics/samples.js';

const MIB = 2 ** 20;
const SECONDS = 90;

/** A node with its figures and metrics on a clock that the test turns. Each second has another load. */
class LoadedNode {
  readonly clock = new ManualClock(0);
  readonly metrics: Metrics;
  readonly #figures: NodeFigures;
  #evictions = 0;

  constructor(readonly nodeId: string) {
    this.metrics = new Metrics(nodeId, { version: '0.1.0' });
    this.metrics.setCounterProvider('meshcache_pool_evictions_total', () => this.#evictions, { reason: 'capacity' });
    this.#figures = new NodeFigures({
      metrics: this.metrics,
      store: () => this.#store(),
      members: () => 1,
      clock: this.clock,
    });
  }

  #store() {
    const pool = { entries: 100, used_bytes: MIB, capacity_bytes: 4 * MIB, evictions: this.#evictions };
    return { pool: { ...pool, quarantined_bytes: 0 }, disk: null };
  }

  /** A second of load, and the sample at its end. */
  async run(second: number): Promise<void> {
    this.metrics.recordReads('local', { hits: 3, misses: 0, bytes: (second % 7) * MIB, seconds: 0.0001 * second });
    this.metrics.recordReads('remote', { hits: 1, misses: 1, bytes: (second % 5) * MIB, seconds: 0.002 * second });
    this.metrics.recordWrites({ pages: 2, bytes: (second % 3) * MIB, seconds: 0.001 });
    this.metrics.recordLookup(10, second % 11);
    this.#evictions += second % 4;
    this.clock.advance(1_000);
    await new Promise((resolve) => setImmediate(resolve));
  }

  async row() {
    const answer = { ...(await this.metrics.report()), ...this.#store(), ...this.#figures.recent() };
    const info = new NodeInfo({
      nodeId: this.nodeId,
      controlHost: '10.0.0.2',
      controlPort: 41_234,
      metricsPort: 31_997,
    });
    return nodeRow(info, { node_id: this.nodeId, ...answer } as never, { ringShare: 0.5, isHere: true });
  }

  stop(): void {
    this.#figures.stop();
    this.metrics.close();
  }
}

/** Seconds below which 99 of 100 read calls between two scrapes stayed, by their buckets. */
function p99Between(before: string, after: string): number | null {
  const below = (le: string): number => {
    const labels = { le };
    const name = 'meshcache_read_seconds_bucket';
    return (sampleIn(after, name, labels) ?? 0) - (sampleIn(before, name, labels) ?? 0);
  };
  const cumulative = [...LATENCY_BOUNDS_S.map(String), '+Inf'].map(below);
  const counts = cumulative.map((count, i) => count - (cumulative[i - 1] ?? 0));
  return quantileOf({ boundsS: LATENCY_BOUNDS_S, counts }, 0.99);
}

test('status figures: the figures of the table are those of /metrics over the same time', async (t) => {
  const node = new LoadedNode('node-1');
  t.teardown(() => node.stop());
  const scrapes: string[] = [await node.metrics.renderPrometheus()];
  for (let second = 1; second <= SECONDS; second++) {
    await node.run(second);
    scrapes.push(await node.metrics.renderPrometheus());
  }
  const result = statusResult([await node.row()], { discoveryAddr: '10.0.0.1:1', timeMs: 0 });
  const { totals } = result;
  const windowS = totals.window_s as number;
  t.is(windowS, 30);
  const [before, after] = [scrapes[SECONDS - windowS] as string, scrapes[SECONDS] as string];
  const between = (name: string, labels = {}): number =>
    (sampleIn(after, name, labels) ?? 0) - (sampleIn(before, name, labels) ?? 0);
  const found = between('meshcache_lookup_pages_total', { result: 'found' });
  const asked = between('meshcache_lookup_pages_total');
  t.deepEqual(totals.recent_lookups, { asked, found });
  t.is(totals.read_bytes_per_s, between('meshcache_read_bytes_total') / windowS);
  t.is(totals.written_bytes_per_s, between('meshcache_written_bytes_total') / windowS);
  t.is(totals.evictions_per_s, between('meshcache_pool_evictions_total') / windowS);
  t.is(totals.slowest?.read_p99_s, p99Between(before, after) ?? undefined);
  t.deepEqual(totals.lookups, {
    asked: sampleIn(after, 'meshcache_lookup_pages_total'),
    found: sampleIn(after, 'meshcache_lookup_pages_total', { result: 'found' }),
  } as never);
  // The text rounds the same figures.
  const text = formatStatus(result);
  t.true(
    text.includes(`prefix hits  ${((100 * found) / asked).toFixed(1)} % of ${asked} pages in the last 30 s`),
    text,
  );
  const readMib = between('meshcache_read_bytes_total') / windowS / MIB;
  t.regex(text, new RegExp(`throughput +${String(Number(readMib.toPrecision(3))).replace('.', '\\.')} MiB/s read`));
});

test('status: zones are shown with what leaves them, where a node has one', (t) => {
  const info = (nodeId: string) => new NodeInfo({ nodeId, controlHost: '10.0.0.2', controlPort: 41_234 });
  const row = (nodeId: string, answer: object) =>
    nodeRow(info(nodeId), { node_id: nodeId, ...answer }, { ringShare: 0.5, isHere: true });
  const by_distance = {
    read_pages: { host: 10, zone: 70, other: 20 },
    read_bytes: { host: 10, zone: 70, other: 20 },
    directory_keys: { host: 50, zone: 45, other: 5 },
  };
  const textOf = (...rows: ReturnType<typeof row>[]) =>
    formatStatus(statusResult(rows, { discoveryAddr: '10.0.0.1:31990', timeMs: 0 }), { columns: 120 });
  const text = textOf(row('a', { zone: 'rack-1', by_distance }), row('b', {}));
  t.regex(text, /node +zone +read of others +same host +same zone +other zones +lookups +lookups leave/);
  t.regex(text, /\na +rack-1 +100 +10\.0 % +70\.0 % +20\.0 % +100 +5\.0 %/);
  t.regex(text, /\nb +- +- +- +- +- +- +-/, 'a node without a zone does not count its reads by distance');
  t.notRegex(textOf(row('b', {})), /zone/);
});
