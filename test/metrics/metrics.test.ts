import test, { type ExecutionContext } from 'ava';
import { Metrics } from '../../src/node/machine/machine-node.js';
import { sampleIn } from '../_support/metrics/samples.js';

function newMetrics(t: ExecutionContext, nodeId = 'n1'): Metrics {
  const metrics = new Metrics(nodeId, { version: '1.2.3' });
  t.teardown(() => metrics.close());
  return metrics;
}

test('metrics: reads and writes are counted by result and source', async (t) => {
  const metrics = newMetrics(t);
  metrics.recordRead(true, 100, 0.001, 'local');
  metrics.recordRead(true, 50, 0.001, 'remote');
  metrics.recordRead(false, 999, 0.001, 'remote');
  metrics.recordRead(true, 7, 0.001, 'disk');
  metrics.recordWrite(40, 0.002);
  const text = await metrics.renderPrometheus();
  t.regex(text, /meshcache_reads_total\{result="hit",source="local",node_id="n1"\} 1\n/);
  t.regex(text, /meshcache_reads_total\{result="miss",source="remote",node_id="n1"\} 1\n/);
  t.regex(text, /meshcache_read_bytes_total\{source="remote",node_id="n1"\} 50\n/);
  t.regex(text, /meshcache_read_seconds_count\{[^}]*source="disk"[^}]*\} 1\n/);
  t.regex(text, /meshcache_writes_total\{node_id="n1"\} 1\n/);
  t.regex(text, /meshcache_written_bytes_total\{node_id="n1"\} 40\n/);
  t.regex(text, /meshcache_build_info\{version="1\.2\.3",node_id="n1"\} 1\n/);
});

test('metrics: lookups are counted page by page', async (t) => {
  const metrics = newMetrics(t);
  metrics.recordLookup(10, 4);
  metrics.recordLookup(3, 0);
  const text = await metrics.renderPrometheus();
  t.is(sampleIn(text, 'meshcache_lookup_pages_total', { result: 'found' }), 4);
  t.is(sampleIn(text, 'meshcache_lookup_pages_total', { result: 'missing' }), 9);
});

test('metrics: every counter is there from the start, at 0', async (t) => {
  const text = await newMetrics(t).renderPrometheus();
  const counters = [...text.matchAll(/^# TYPE (meshcache_\S+) counter$/gm)].map(([, name]) => name as string);
  t.true(counters.length > 15);
  for (const name of counters) {
    const samples = [...text.matchAll(new RegExp(`^${name}\\{[^\\n]*\\} (\\S+)$`, 'gm'))];
    t.true(samples.length > 0, `${name} has no sample`);
    for (const [line, value] of samples) t.is(value, '0', line);
  }
  for (const source of ['local', 'remote', 'disk', 'object'])
    t.is(sampleIn(text, 'meshcache_read_seconds_count', { source }), 0);
  t.is(sampleIn(text, 'meshcache_stale_reads_total', { reason: 'unreadable' }), 0);
  t.is(sampleIn(text, 'meshcache_rpc_errors_total', { kind: 'slow_peer' }), 0);
});

test('metrics: providers are asked at every scrape, one sample for each label set', async (t) => {
  const metrics = newMetrics(t);
  let value = 1;
  metrics.setGaugeProvider('meshcache_members', () => value);
  metrics.setCounterProvider('meshcache_work_total', () => 10 * value);
  metrics.setGaugeProvider('meshcache_x', () => 1, { kind: 'a' });
  metrics.setGaugeProvider('meshcache_x', () => 2, { kind: 'b' });
  metrics.setGaugeProvider('meshcache_x', () => 3, { kind: 'a' });
  const before = await metrics.renderPrometheus();
  t.regex(before, /meshcache_members\{node_id="n1"\} 1\n/);
  t.regex(before, /# TYPE meshcache_work_total counter\nmeshcache_work_total\{node_id="n1"\} 10\n/);
  value = 5;
  const text = await metrics.renderPrometheus();
  t.regex(text, /meshcache_members\{node_id="n1"\} 5\n/);
  t.regex(text, /meshcache_work_total\{node_id="n1"\} 50\n/);
  t.regex(text, /meshcache_x\{kind="b",node_id="n1"\} 2\n/);
  t.regex(text, /meshcache_x\{kind="a",node_id="n1"\} 3\n/);
  t.notRegex(text, /meshcache_x\{kind="a",node_id="n1"\} 1\n/);
});

test('metrics: a provider that fails spoils its own sample only', async (t) => {
  const metrics = newMetrics(t);
  const broken = (): number => {
    throw new Error('broken');
  };
  metrics.setGaugeProvider('meshcache_bad', broken);
  metrics.setGaugeProvider('good', () => 4);
  metrics.setCounterProvider('meshcache_bad_total', broken, { kind: 'a' });
  metrics.setCounterProvider('meshcache_bad_total', () => -1, { kind: 'b' });
  metrics.setCounterProvider('meshcache_bad_total', () => 6, { kind: 'c' });
  const text = await metrics.renderPrometheus();
  t.regex(text, /meshcache_good\{node_id="n1"\} 4\n/);
  t.regex(text, /meshcache_bad\{node_id="n1"\} Nan\n/i);
  t.deepEqual(text.match(/^meshcache_bad_total.*$/gm), ['meshcache_bad_total{kind="c",node_id="n1"} 6']);
});

test('metrics: one name is one kind of metric with one set of labels', async (t) => {
  const metrics = newMetrics(t);
  metrics.setGaugeProvider('meshcache_x', () => 1, { kind: 'a' });
  const refused = { code: 'ERR_ARGUMENT', message: /meshcache_x: is a gauge with the labels kind/ };
  t.throws(() => metrics.setGaugeProvider('meshcache_x', () => 1), refused);
  t.throws(() => metrics.setCounterProvider('meshcache_x', () => 1, { kind: 'b' }), refused);
  t.throws(() => metrics.setCounterProvider('meshcache_writes_total', () => 1), { code: 'ERR_ARGUMENT' });
  t.is(sampleIn(await metrics.renderPrometheus(), 'meshcache_x', { kind: 'a' }), 1);
});

test('metrics: names that no metric can have, or that another has, are refused', async (t) => {
  const metrics = newMetrics(t);
  const refuses = (message: RegExp, ...[name, labels]: [string, Record<string, string>?]): void => {
    for (const set of [
      () => metrics.setGaugeProvider(name, () => 1, labels),
      () => metrics.setCounterProvider(name, () => 1, labels),
    ]) {
      t.throws(set, { name: 'ArgumentError', message }, String(name));
    }
  };
  for (const name of ['bad-name', 'a b', 'meshcache_ä', 'a:b', 'x'.repeat(500).concat('-'), ' ']) {
    refuses(/allowed are letters, digits and underscores/, name);
  }
  refuses(/must be a text/, 7 as never);
  for (const label of ['bad-label', '', '1st', '__name'])
    refuses(/: label ".*": allowed are/, 'fine', { [label]: 'a' });
  for (const name of ['read_seconds', 'meshcache_write_seconds', 'read_seconds_bucket', 'read_seconds_count']) {
    refuses(/is one that every node has; choose another name/, name);
  }
  t.throws(() => metrics.count('bad-name'), { name: 'ArgumentError' });
  t.throws(() => metrics.count('meshcache_read_seconds'), { name: 'ArgumentError' });
  metrics.setGaugeProvider('fine_count', () => 3);
  t.is(sampleIn(await metrics.renderPrometheus(), 'meshcache_fine_count'), 3);
});

test('metrics: a read or write that cannot be is refused, and nothing of it is counted', async (t) => {
  const metrics = newMetrics(t);
  const before = await metrics.report();
  const refused = (record: () => void, message: RegExp): void => {
    t.throws(record, { name: 'ArgumentError', message });
  };
  for (const wrong of [Number.NaN, -1, Number.POSITIVE_INFINITY, '5', undefined] as number[]) {
    refused(() => metrics.recordRead(true, 1, wrong, 'local'), /^seconds must be a number from 0 on, got /);
    refused(() => metrics.recordRead(true, wrong, 1, 'local'), /^nbytes must be/);
    refused(() => metrics.recordRead(false, wrong, 1, 'local'), /^nbytes must be/);
    refused(() => metrics.recordWrite(wrong, 1), /^nbytes must be/);
    refused(() => metrics.recordWrite(1, wrong), /^seconds must be/);
  }
  refused(
    () => metrics.recordRead(true, 1, 1, 'bogus' as never),
    /^source must be local, remote, disk, object, got "bogus"$/,
  );
  const { event_loop_delay: _, ...after } = await metrics.report();
  t.like(before, after);
  t.notRegex(await metrics.renderPrometheus(), /bogus/);
});

test('metrics: the buckets of latencies reach from a microsecond to seconds', async (t) => {
  const metrics = newMetrics(t);
  for (const seconds of [1e-6, 2e-6, 4e-6, 8e-6, 5]) metrics.recordRead(true, 1, seconds, 'local');
  const { bounds_s: bounds, read } = (await metrics.report()).latency;
  t.deepEqual(bounds.slice(0, 4), [1e-6, 2.5e-6, 5e-6, 10e-6]);
  t.deepEqual(read.local.buckets.slice(0, 4), [1, 1, 1, 1]);
  t.true((bounds.at(-1) ?? 0) > 5);
});

test('metrics: labels in another order are the same series, and other labels are refused', async (t) => {
  const metrics = newMetrics(t);
  metrics.count('meshcache_x_total', 2, { kind: 'a', side: 'b' });
  metrics.count('meshcache_x_total', 3, { side: 'b', kind: 'a' });
  metrics.count('meshcache_x_total', 4, { kind: 'b', side: 'a' });
  const refused = { name: 'ArgumentError', message: /labels are kind,side/ };
  t.throws(() => metrics.count('meshcache_x_total', 1, { kind: 'a' }), refused);
  t.throws(() => metrics.count('meshcache_x_total', 1, { kind: 'a', side: 'b', also: 'c' }), refused);
  for (const wrong of [-1, Number.NaN, Number.POSITIVE_INFINITY, '1' as never]) {
    t.throws(() => metrics.count('meshcache_x_total', wrong, { kind: 'a', side: 'b' }), { name: 'ArgumentError' });
  }
  t.deepEqual((await metrics.renderPrometheus()).match(/^meshcache_x_total.*$/gm), [
    'meshcache_x_total{kind="a",side="b",node_id="n1"} 5',
    'meshcache_x_total{kind="b",side="a",node_id="n1"} 4',
  ]);
});

test('metrics: two nodes of one process do not share their numbers', async (t) => {
  const [a, b] = [newMetrics(t, 'a'), newMetrics(t, 'b')];
  a.count('meshcache_rpc_errors_total', 3, { kind: 'bad_frame' });
  b.count('meshcache_rpc_errors_total', 1, { kind: 'bad_frame' });
  t.regex(await a.renderPrometheus(), /meshcache_rpc_errors_total\{kind="bad_frame",node_id="a"\} 3\n/);
  t.regex(await b.renderPrometheus(), /meshcache_rpc_errors_total\{kind="bad_frame",node_id="b"\} 1\n/);
});

test('metrics: the report has the numbers of the scrape', async (t) => {
  const metrics = newMetrics(t);
  metrics.recordReads('local', { hits: 3, misses: 1, bytes: 300, seconds: 20e-6 });
  metrics.recordReads('local', { hits: 1, misses: 0, bytes: 100, seconds: 0.3 });
  metrics.recordReads('remote', { hits: 2, misses: 4, bytes: 50, seconds: 60 });
  metrics.recordReads('disk', { hits: 5, misses: 0, bytes: 5, seconds: 0.001 });
  metrics.recordWrites({ pages: 7, bytes: 70, seconds: 0.2 });
  metrics.recordLookup(10, 6);
  metrics.count('meshcache_checksum_failures_total', 1, { source: 'local' });
  metrics.count('meshcache_checksum_failures_total', 2, { source: 'remote' });
  metrics.count('meshcache_stale_reads_total', 3, { reason: 'late' });
  metrics.count('meshcache_skipped_writes_total', 4, { reason: 'no_room' });

  const report = await metrics.report();
  t.deepEqual(report.reads, { local: 4, remote: 2, disk: 5, object: 0, misses: 5 });
  t.deepEqual(report.read_bytes, { local: 400, remote: 50, disk: 5, object: 0 });
  t.deepEqual(report.writes, { pages: 7, bytes: 70 });
  t.deepEqual(report.lookups, { asked: 10, found: 6 });
  t.like(report, { checksum_failures: 3, stale_reads: 3, skipped_writes: 4 });
  const { bounds_s: bounds, read, write } = report.latency;
  t.is(read.local.buckets.length, bounds.length + 1);
  const filled = (buckets: readonly number[]) => buckets.flatMap((count, i) => (count > 0 ? [[bounds[i], count]] : []));
  t.deepEqual(filled(read.local.buckets), [
    [25e-6, 1],
    [0.5, 1],
  ]);
  t.deepEqual(filled(read.remote.buckets), [[undefined, 1]]);
  t.deepEqual(filled(read.disk.buckets), [[0.001, 1]]);
  t.like(read.remote, { count: 1, sum_s: 60 });
  t.like(write, { count: 1, sum_s: 0.2 });
  t.is(read.local.sum_s, 20e-6 + 0.3);
  t.deepEqual(JSON.parse(JSON.stringify(report)), report);
});

test('metrics: the report of a node that has done nothing is all 0', async (t) => {
  const { latency, event_loop_delay: delay, ...report } = await newMetrics(t).report();
  t.deepEqual(report, {
    reads: { local: 0, remote: 0, disk: 0, object: 0, misses: 0 },
    read_bytes: { local: 0, remote: 0, disk: 0, object: 0 },
    writes: { pages: 0, bytes: 0 },
    lookups: { asked: 0, found: 0 },
    checksum_failures: 0,
    stale_reads: 0,
    skipped_writes: 0,
  });
  for (const one of [latency.read.local, latency.read.remote, latency.read.disk, latency.write]) {
    t.like(one, { count: 0, sum_s: 0 });
    t.true(one.buckets.every((count) => count === 0));
  }
  t.deepEqual(Object.keys(delay), ['p50_s', 'p99_s', 'max_s']);
});

test('metrics: recording a batch of pages takes microseconds', (t) => {
  const metrics = newMetrics(t);
  const batch = { hits: 100, misses: 28, bytes: 1e6, seconds: 0.003 };
  const round = (): number => {
    const startMs = performance.now();
    for (let i = 0; i < 2000; i++) metrics.recordReads('remote', batch);
    return (performance.now() - startMs) / 2000;
  };
  const bestMs = Math.min(...Array.from({ length: 10 }, round));
  t.true(bestMs < 0.05, `${bestMs * 1000} us`);
  t.log(`${(bestMs * 1000).toFixed(1)} us a batch`);
});

test('metrics: what is no boolean, no function and no id is refused', (t) => {
  // Cause: "false" was counted as a hit.
  const metrics = new Metrics('n');
  t.teardown(() => metrics.close());
  t.throws(() => metrics.recordRead('false' as never, 1, 1, 'local'), { name: 'ArgumentError' });
  t.throws(() => metrics.setGaugeProvider('x', 5 as never), { name: 'ArgumentError' });
  for (const id of [undefined, null, 7]) t.throws(() => new Metrics(id as never), { name: 'ArgumentError' });
});
