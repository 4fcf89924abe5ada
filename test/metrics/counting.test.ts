import { mkdtempSync, rmSync } from 'node:fs';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import type { MetricsSink } from '../../src/base/environment/metrics-sink.js';
import { CLIENT_WAYS, ClientCounts } from '../../src/clients/requests/client-stats.js';
import { Status } from '../../src/clients/wire/messages.js';
import { ConsistentHashRing, KeyEncoder } from '../../src/core/index.js';
import { DirectoryClient } from '../../src/directory/client.js';
import { clientSeries } from '../../src/metrics/metric-catalogue.js';
import { Metrics } from '../../src/node/machine/machine-node.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { RpcClient } from '../../src/rpc/client.js';
import { RpcServer } from '../../src/rpc/server.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { DataLocation } from '../../src/types.js';
import { AttachedClient } from '../_support/attached-client.js';
import { sampleIn } from '../_support/metrics/samples.js';
import { createCluster, createStore } from '../_support/node/store-fixture.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, freePort, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const PAGE = 16 * 2 ** 10;

type Labels = Readonly<Record<string, string>>;

async function cluster(t: ExecutionContext, count: number, extra: Record<string, unknown> = {}) {
  const stores = await createCluster(count, extra);
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  return stores as [MeshCacheStore, MeshCacheStore];
}

async function alone(t: ExecutionContext, extra: Record<string, unknown> = {}): Promise<MeshCacheStore> {
  const store = await createStore(await freePort(), extra);
  t.teardown(() => store.close());
  return store;
}

/** `meshcache_<name>`, added up over its other labels. */
async function value({ metrics }: { metrics: Metrics }, name: string, labels?: Labels): Promise<number | undefined> {
  return sampleIn(await metrics.renderPrometheus(), `meshcache_${name}`, labels);
}

function countingEnvironment(t: ExecutionContext) {
  const metrics = new Metrics('n');
  t.teardown(() => metrics.close());
  return { metrics, env: systemEnvironment({ clock: patientClock, log: silentLogger, metrics }) };
}

test('counting: a page that is not where the directory said is a stale read, once a call', async (t) => {
  const [a, b] = await cluster(t, 2);
  const namespace = { modelName: 'test', dtype: '', layout: '', tag: '', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1 };
  const [key] = new KeyEncoder({ ...namespace, isMlaModel: false }).encodeKeys(['lost']) as [string];
  t.true(await a.set('other', content(1, 1000)));
  const [other] = new KeyEncoder({ ...namespace, isMlaModel: false }).encodeKeys(['other']) as [string];
  const [right] = await b.runtime.directory.get([other]);
  // As if the page that lies there now had been published in the place of the one that is asked for.
  await a.runtime.directory.put({
    [key]: new DataLocation({ ...(right as DataLocation), checksum: 1, generation: 0 }),
  });
  t.is(await value(b, 'stale_reads_total'), 0);
  t.false(await b.get('lost', new Uint8Array(1000)));
  t.is(await value(b, 'stale_reads_total', { reason: 'unreadable' }), 1);
  t.is(await value(b, 'stale_reads_total'), 1);
  t.true(((await value(b, 'checksum_failures_total', { source: 'remote' })) as number) >= 1);
  t.is((await b.metrics.report()).stale_reads, 1);
  t.is(await value(b, 'reads_total', { result: 'miss', source: 'remote' }), 1);
  t.is(await value(b, 'reads_total', { result: 'hit', source: 'remote' }), 0);
});

test('counting: a miss that the directory knew nothing of is no stale read', async (t) => {
  const [, b] = await cluster(t, 2);
  t.false(await b.get('absent', new Uint8Array(1000)));
  t.is(await value(b, 'stale_reads_total'), 0);
  t.is(await value(b, 'directory_lookups_total', { result: 'missing' }), 1);
});

test('counting: pages that the pool has no room for are skipped writes, and what goes for others is evicted', async (t) => {
  const store = await alone(t, { global_segment_size: 4 * PAGE, reuse_quarantine_ms: 0 });
  for (let i = 0; i < 6; i++) t.true(await store.set(`k${i}`, content(i, PAGE)));
  t.is(await value(store, 'pool_evictions_total', { reason: 'capacity' }), 2);
  t.is(await value(store, 'pool_evictions_total', { reason: 'damaged' }), 0);
  t.is(await value(store, 'pool_used_bytes'), 4 * PAGE);
  t.is(await value(store, 'skipped_writes_total'), 0);
  t.false(await store.set('large', content(9, 5 * PAGE)));
  t.is(await value(store, 'skipped_writes_total', { reason: 'too_large' }), 1);
  t.is(await value(store, 'skipped_writes_total'), 1);
});

test('counting: a quarantine that may not be cut short leaves no room; one that may is cut short', async (t) => {
  const settings = { global_segment_size: 4 * PAGE, reuse_quarantine_ms: 600_000 };
  const strict = await alone(t, { ...settings, verify_reads: false });
  const results: boolean[] = [];
  for (let i = 0; i < 6; i++) results.push(await strict.set(`k${i}`, content(i, PAGE)));
  const refused = results.filter((ok) => !ok).length;
  t.true(refused > 0);
  t.is(await value(strict, 'skipped_writes_total', { reason: 'no_room' }), refused);
  t.true(((await value(strict, 'pool_quarantined_bytes')) as number) > 0);
  t.is(await value(strict, 'pool_early_reuses_total'), 0);
  t.is((await strict.metrics.report()).skipped_writes, refused);

  const verified = await alone(t, settings);
  for (let i = 0; i < 6; i++) t.true(await verified.set(`k${i}`, content(i, PAGE)));
  t.true(((await value(verified, 'pool_early_reuses_total')) as number) > 0);
});

test('counting: members that come and go, calls and connections of the control plane', async (t) => {
  const [a, b] = await cluster(t, 2);
  t.is(await value(a, 'members'), 2);
  t.is(await value(a, 'member_changes_total', { change: 'joined' }), 1);
  t.is(((await value(a, 'discovery_head')) as number) + ((await value(b, 'discovery_head')) as number), 1);
  t.is(await value(a, 'discovery_reachable'), 1);
  for (let i = 0; i < 20; i++) t.true(await a.set(`k${i}`, content(i, 100)));
  t.is(await b.batchExists(Array.from({ length: 20 }, (_, i) => `k${i}`)), 20);
  t.is(await value(b, 'directory_lookups_total', { result: 'found' }), 20);
  t.true(((await value(a, 'rpc_calls_total', { result: 'ok' })) as number) > 0);
  t.true(((await value(b, 'rpc_served_calls_total')) as number) > 0);
  t.true(((await value(b, 'rpc_connections', { side: 'server', service: 'control' })) as number) > 0);
  t.is(await value(a, 'rpc_connections', { side: 'client', service: 'discovery' }), 1);
  await b.close();
  await until(async () => (await value(a, 'member_changes_total', { change: 'left' })) === 1);
  t.is(await value(a, 'members'), 1);
  t.is(await value(a, 'member_changes_total', { change: 'lost' }), 0, 'it has said good-bye');
  t.is(await value(a, 'lost_members'), 0);
});

const OUTER = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;

unless(OUTER === undefined ? 'this machine has no address but loopback' : '')(
  'counting: a node without a master tells so',
  async (t) => {
    // Nobody listens there, and no node of this machine may: the address is not one of its own.
    const discovery = { discovery_addr: '192.0.2.1:31990', local_hostname: OUTER, allow_unauthenticated: true };
    const store = await alone(t, discovery);
    t.is(await value(store, 'discovery_reachable'), 0);
    t.is(await value(store, 'discovery_head'), 0);
    await until(async () => ((await value(store, 'discovery_failures_total')) as number) > 0);
  },
);

test('counting: calls by how they ended, and connections that came back', async (t) => {
  const { metrics, env } = countingEnvironment(t);
  const quiet = systemEnvironment({ clock: patientClock, log: silentLogger });
  const port = await freePort();
  const endpoint = { host: '127.0.0.1', port };
  const first = new RpcServer({ ...endpoint, env: quiet });
  first.handle('echo', (params) => params);
  first.handle('fail', () => {
    throw new Error('on purpose');
  });
  first.handle('wait', () => new Promise(() => {}));
  await first.start();
  const client = new RpcClient({ env });
  t.teardown(() => client.close());
  await client.call(endpoint, 'echo', {});
  await client.call(endpoint, 'echo', {});
  await t.throwsAsync(client.call(endpoint, 'fail', {}));
  await t.throwsAsync(client.call(endpoint, 'wait', {}, { timeoutMs: 500 }), { code: 'ERR_TIMEOUT' });
  t.is(await value({ metrics }, 'rpc_connections', { side: 'client' }), 1);
  t.is(await value({ metrics }, 'rpc_reconnects_total'), 0);
  await first.stop();
  await until(async () => (await value({ metrics }, 'rpc_connections', { side: 'client' })) === 0);
  const second = new RpcServer({ ...endpoint, env: quiet });
  second.handle('echo', (params) => params);
  await second.start();
  await client.call(endpoint, 'echo', {});
  t.is(await value({ metrics }, 'rpc_reconnects_total'), 1);
  await second.stop();
  await until(async () => (await value({ metrics }, 'rpc_connections', { side: 'client' })) === 0);
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  for (const [result, count] of [
    ['ok', 3],
    ['refused', 1],
    ['timeout', 1],
    ['unreachable', 1],
    ['overloaded', 0],
  ] as const) {
    t.is(await value({ metrics }, 'rpc_calls_total', { result }), count, result);
  }
});

test('counting: directory owners that do not answer', async (t) => {
  const { metrics, env } = countingEnvironment(t);
  const port = await freePort();
  const ring = new ConsistentHashRing(4);
  ring.setNodes(['gone']);
  const client = new DirectoryClient(ring, () => ({ host: '127.0.0.1', port }), 1, { env });
  t.teardown(() => client.close());
  t.deepEqual(await client.get(['a', 'b']), [null, null]);
  t.deepEqual(await client.exists(['a']), [false]);
  t.is(await value({ metrics }, 'directory_failures_total', { request: 'get' }), 1);
  t.is(await value({ metrics }, 'directory_failures_total', { request: 'exists' }), 1);
  t.is(await value({ metrics }, 'directory_failures_total', { request: 'put' }), 0);
  t.is(await value({ metrics }, 'directory_lookups_total', { result: 'missing' }), 3);
});

test('counting: what a client does is counted under its name; all series of a name are there from when it attaches', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-counting-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const client_socket = join(folder, 'node.sock');
  const store = await alone(t, { client_socket });
  t.is(await value(store, 'clients'), 0);
  t.is(await value(store, 'client_requests_total'), undefined);
  const engine = await AttachedClient.attach(client_socket, 'engine');
  t.teardown(() => engine.close());
  const other = await AttachedClient.attach(client_socket, 'other-engine');
  t.teardown(() => other.close());
  const text = await store.metrics.renderPrometheus();
  for (const [name, labels] of clientSeries('engine')) t.is(sampleIn(text, name, labels), 0, name);
  t.is(await value(store, 'clients'), 2);

  const [page, second] = [content(1, 1000), content(2, 500)];
  t.deepEqual(await engine.set({ page, second }), [true, true]);
  await engine.get(['page', 'absent']);
  const client = 'engine';
  t.is(await engine.getNowhere('page'), Status.noRegion);
  t.is(await value(store, 'client_requests_total', { client }), 3);
  t.is(await value(store, 'client_writes_total', { client }), 2);
  t.is(await value(store, 'client_written_bytes_total', { client, way: 'bytes' }), 1500);
  t.is(await value(store, 'client_reads_total', { client, result: 'hit' }), 1);
  t.is(await value(store, 'client_reads_total', { client, result: 'miss' }), 1);
  t.is(await value(store, 'client_read_bytes_total', { client, way: 'bytes' }), 1000);
  t.is(await value(store, 'client_read_bytes_total', { client }), 1000);
  t.is(await value(store, 'client_errors_total', { client, reason: 'no_region' }), 1);
  t.is(await value(store, 'client_errors_total', { client }), 1);
  t.is(await value(store, 'client_requests_total', { client: 'other-engine' }), 0);

  await engine.close();
  await until(async () => (await value(store, 'clients')) === 1);
  t.is(await value(store, 'client_requests_total', { client }), 3, 'what was counted stays');
});

test('counting: every status of an answer that is an error, and every way of pages, is a series', (t) => {
  const sink = { series: new Set<string>() };
  const metrics = {
    count(name: string, _amount: number, labels: Labels) {
      sink.series.add(`${name} ${JSON.stringify(Object.entries(labels).sort())}`);
    },
  } as MetricsSink;
  const counts = new ClientCounts(metrics, 'engine');
  const known = sink.series.size;
  t.is(known, clientSeries('engine').length);
  const pages = [{ length: 5 }, { length: 6 }];
  counts.request();
  for (const status of Object.values(Status)) if (status !== Status.ok) counts.failed(status);
  for (const way of CLIENT_WAYS) {
    counts.read(way, pages, [true, false]);
    counts.written(way, pages, [true, true]);
  }
  t.is(sink.series.size, known);
});
