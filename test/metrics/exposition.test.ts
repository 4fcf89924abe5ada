import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { COUNTERS, clientSeries } from '../../src/metrics/metric-catalogue.js';
import { Metrics } from '../../src/node/machine/machine-node.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { AttachedClient } from '../_support/attached-client.js';
import { missingProgram } from '../_support/deploy/files.js';
import { parseOpenMetrics } from '../_support/metrics/open-metrics.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort } from '../_support/support.js';

const noPromtool = missingProgram('promtool');

/** A Metrics in which everything has been counted, with texts that need escaping. */
function busyMetrics(t: ExecutionContext): Metrics {
  const metrics = new Metrics('node "1"\\', { version: '1.2.3' });
  t.teardown(() => metrics.close());
  for (const source of ['local', 'remote', 'disk'] as const) {
    metrics.recordReads(source, { hits: 2, misses: 1, bytes: 10, seconds: 0.3 });
    metrics.recordRead(true, 1, 1e-6, source);
  }
  metrics.recordWrite(5, 100);
  metrics.recordLookup(3, 2);
  for (const [name, { series }] of Object.entries(COUNTERS))
    for (const labels of series) metrics.count(name, 1, labels);
  for (const [name, labels] of clientSeries('engine "1"')) metrics.count(name, 1, labels);
  metrics.setGaugeProvider('meshcache_transport_info', () => 1, { reason: 'line\nfeed, "quote", back\\slash' });
  metrics.setCounterProvider('meshcache_rdma_read_bytes_total', () => 2 ** 60);
  return metrics;
}

/** A store with a disk tier and a client, both of which have read and written. */
async function busyStore(t: ExecutionContext): Promise<MeshCacheStore> {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-metrics-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const client_socket = join(folder, 'node.sock');
  const disk = { disk_enabled: true, disk_path: join(folder, 'disk'), disk_size: '8mb' };
  const store = await createStore(await freePort(), {
    ...disk,
    client_socket,
    resp_port: 0,
    namespace_quotas: { a: {} },
  });
  t.teardown(() => store.close());
  await store.set('k', content(1, 1000));
  await store.get('k');
  await store.get('absent', new Uint8Array(10));
  const client = await AttachedClient.attach(client_socket, 'engine');
  t.teardown(() => client.close());
  await client.set({ 'of a client': content(2, 1000) });
  await client.get(['of a client', 'absent']);
  await client.getNowhere('of a client');
  return store;
}

function promtoolSays(text: string): string {
  const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  return `${status} ${stdout}${stderr}`;
}

const withPromtool = noPromtool === undefined ? test : test.skip;
const skipped = noPromtool === undefined ? '' : ` (skipped: ${noPromtool})`;

withPromtool(`exposition: promtool has nothing to say about a node with everything${skipped}`, async (t) => {
  t.is(promtoolSays(await busyMetrics(t).renderPrometheus()), '0 ');
  t.is(promtoolSays(await (await busyStore(t)).metrics.renderPrometheus()), '0 ');
  t.not(
    promtoolSays('# HELP a_milliseconds x\n# TYPE a_milliseconds counter\na_milliseconds 1\n'),
    '0 ',
    'it does check',
  );
});

test('exposition: every metric of a node is described, and nothing but counters ends in _total', async (t) => {
  const text = await (await busyStore(t)).metrics.renderPrometheus();
  for (const [, name, type] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
    t.is(name?.endsWith('_total'), type === 'counter', name);
    const help = new RegExp(`^# HELP ${name} (.*)$`, 'm').exec(text)?.[1] ?? '';
    t.true(help.length > 10 && help !== name, `${name}: ${help}`);
    t.notRegex(help, /"/, `${name}: OpenMetrics would have quotation marks escaped`);
  }
});

test('exposition: OpenMetrics is valid, has the same samples as the text, and spoils nothing for it', async (t) => {
  for (const metrics of [busyMetrics(t), (await busyStore(t)).metrics]) {
    const before = await metrics.renderPrometheus();
    const [open, text] = await Promise.all([metrics.renderPrometheus('openmetrics'), metrics.renderPrometheus('text')]);
    const families = parseOpenMetrics(open);
    t.is(families.get('meshcache_reads')?.type, 'counter');
    t.false(families.has('meshcache_reads_total'));
    t.is(families.get('meshcache_read_seconds')?.type, 'histogram');
    const namesIn = (all: string) => all.match(/^[a-z][^ ]*(?= )/gm)?.filter((name) => !name.includes('reason="line'));
    t.deepEqual(namesIn(open), namesIn(text));
    t.deepEqual(text.match(/^#.*$/gm), before.match(/^#.*$/gm));
  }
});

test('exposition: what is not valid OpenMetrics is told apart', async (t) => {
  const metrics = busyMetrics(t);
  const open = await metrics.renderPrometheus('openmetrics');
  for (const [wrong, message] of [
    [await metrics.renderPrometheus('text'), /# EOF/],
    [open.replaceAll('# TYPE meshcache_writes counter', '# TYPE meshcache_writes_total counter'), /meshcache_writes/],
    [open.replace('# TYPE process_open_fds', '\n# TYPE process_open_fds'), /neither/],
    [open.replace(/(?<=\nmeshcache_write_seconds_count\{.*\} )\d+/, '7'), /_count/],
    [open.replace('# EOF', `${open.split('\n')[2]}\n# EOF`), /not of/],
  ] as const) {
    t.throws(() => parseOpenMetrics(wrong), { message });
  }
});

test('exposition: formats are named with their versions', (t) => {
  const metrics = new Metrics('n');
  t.teardown(() => metrics.close());
  t.is(metrics.contentType('text'), 'text/plain; version=0.0.4; charset=utf-8');
  t.is(metrics.contentType('openmetrics'), 'application/openmetrics-text; version=1.0.0; charset=utf-8');
});
