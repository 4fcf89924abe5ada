import test from 'ava';
import { Metrics } from '../../src/metrics/metrics.js';

test('metrics: reads and writes are counted by result and source', async (t) => {
  const metrics = new Metrics('n1');
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
});

test('metrics: gauges ask their provider at every scrape, one sample for each label set', async (t) => {
  const metrics = new Metrics('n1');
  let value = 1;
  metrics.setGaugeProvider('meshcache_members', () => value);
  metrics.setGaugeProvider('meshcache_x', () => 1, { kind: 'a' });
  metrics.setGaugeProvider('meshcache_x', () => 2, { kind: 'b' });
  metrics.setGaugeProvider('meshcache_x', () => 3, { kind: 'a' });
  t.regex(await metrics.renderPrometheus(), /meshcache_members\{node_id="n1"\} 1\n/);
  value = 5;
  const text = await metrics.renderPrometheus();
  t.regex(text, /meshcache_members\{node_id="n1"\} 5\n/);
  t.regex(text, /meshcache_x\{kind="b",node_id="n1"\} 2\n/);
  t.regex(text, /meshcache_x\{kind="a",node_id="n1"\} 3\n/);
  t.notRegex(text, /meshcache_x\{kind="a",node_id="n1"\} 1\n/);
});

test('metrics: a gauge whose provider fails is not a number, the others are there', async (t) => {
  const metrics = new Metrics('n1');
  metrics.setGaugeProvider('meshcache_bad', () => {
    throw new Error('broken');
  });
  metrics.setGaugeProvider('good', () => 4);
  const text = await metrics.renderPrometheus();
  t.regex(text, /meshcache_good\{node_id="n1"\} 4\n/);
  t.regex(text, /meshcache_bad\{node_id="n1"\} Nan\n/i);
});

test('metrics: two nodes of one process do not share their numbers', async (t) => {
  const [a, b] = [new Metrics('a'), new Metrics('b')];
  a.count('meshcache_rpc_errors_total', 3, { kind: 'garbage' });
  b.count('meshcache_rpc_errors_total', 1, { kind: 'garbage' });
  t.regex(await a.renderPrometheus(), /meshcache_rpc_errors_total\{kind="garbage",node_id="a"\} 3\n/);
  t.regex(await b.renderPrometheus(), /meshcache_rpc_errors_total\{kind="garbage",node_id="b"\} 1\n/);
});
