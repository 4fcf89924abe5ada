import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { ConfigError } from '../../src/base/errors.js';
import { HISTORY_STEPS_S, NODE_REPORT_CLIENTS_MAX_COUNT } from '../../src/base/limits.js';
import { compareNames } from '../../src/base/names.js';
import { clusterStatus } from '../../src/cli/status/status.js';
import { DiscoveryClient } from '../../src/discovery/client.js';
import type { ClusterHistory, HistoryCount } from '../../src/metrics/history-report.js';
import type { ClusterReport, DepartedNode, HealthReport, NodeReport } from '../../src/metrics/node-report.js';
import { isReportLike } from '../../src/metrics/report-checks.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { clientsReport } from '../../src/node/reporting/store-reporting.js';
import { RpcClient } from '../../src/rpc/client.js';
import { RpcServer } from '../../src/rpc/server.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { NodeInfo } from '../../src/types.js';
import { AttachedClient } from '../_support/attached-client.js';
import * as fixture from '../_support/node/store-fixture.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, freePort, listenAlone, until } from '../_support/support.js';

const createStore = (port: number, extra: Record<string, unknown> = {}) =>
  fixture.createStore(port, { metrics_enabled: true, ...extra });
const createCluster = (count: number, extra: Record<string, unknown> = {}) =>
  fixture.createCluster(count, { metrics_enabled: true, ...extra });

function closing(t: ExecutionContext, stores: readonly MeshCacheStore[]): void {
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
}

async function getJson<T>(store: MeshCacheStore, path: string): Promise<{ status: number; body: T }> {
  const response = await fetch(`http://${store.metricsEndpoint}${path}`);
  return { status: response.status, body: (await response.json()) as T };
}

async function occupied(t: ExecutionContext): Promise<number> {
  const server: Server = createServer();
  const port = await listenAlone(server);
  t.teardown(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return port;
}

test('reporting: every node tells of all members, with what each has done', async (t) => {
  const stores = await createCluster(3);
  closing(t, stores);
  const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
  const page = content(1, 10_000);
  t.true(await a.set('page', page));
  t.deepEqual(await b.get('page'), page);
  t.is(await b.batchExists(['page', 'no page']), 1);

  for (const store of stores) {
    const { status, body } = await getJson<ClusterReport>(store, '/api/cluster');
    t.is(status, 200);
    t.is(body.node_id, store.runtime.nodeId);
    t.is(body.heartbeat_interval_s, 0.2);
    t.deepEqual(
      body.nodes.map((node) => node.node_id),
      stores.map(({ runtime }) => runtime.nodeId).sort(compareNames),
    );
    const share = body.nodes.reduce((sum, node) => sum + node.ring_share, 0);
    t.true(Math.abs(share - 1) < 1e-9, `shares add up to ${share}`);
  }
  const { body } = await getJson<NodeReport>(b, '/api/node');
  t.is(body.node_id, b.runtime.nodeId);
  t.is(body.metrics_endpoint, b.metricsEndpoint);
  t.is(body.members, 3);
  t.deepEqual(body.reads, { local: 0, remote: 1, disk: 0, object: 0, misses: 0 });
  t.is(body.read_bytes.remote, 10_000);
  t.deepEqual(body.lookups, { asked: 2, found: 1 });
  t.is(body.disk, null);
  t.is(body.transport.wanted, 'tcp');
  t.regex(body.version, /^\d+\.\d+\.\d+/);
  t.true(body.events.some((event) => /^nodes? joined$/.test(event.message)));
});

test('reporting: a member that has gone without a word is unreachable at once and then no member', async (t) => {
  const stores = await createCluster(3, { member_ttl: 3 });
  closing(t, stores);
  const [a, b, c] = stores as [MeshCacheStore, MeshCacheStore, MeshCacheStore];
  // The control plane alone stops: to the others this is a node that has died.
  const gone = c.runtime.nodeId;
  const stateOf = async (store: MeshCacheStore) =>
    (await getJson<ClusterReport>(store, '/api/cluster')).body.nodes.find((node) => node.node_id === gone)?.state;
  t.is(await stateOf(a), 'up');
  await c.close();
  await until(async () => (await stateOf(a)) !== 'up' && (await stateOf(b)) !== 'up');
  await until(async () => (await stateOf(a)) === undefined);
  await until(() => b.stats().members === 2);
});

test('reporting: any node serves the histories of all, and recent figures that are those of the metrics', async (t) => {
  const stores = await createCluster(2);
  closing(t, stores);
  const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
  const page = content(1, 10_000);
  t.true(await a.set('page', page));
  t.deepEqual(await b.get('page'), page);
  t.is(await b.batchExists(['page', 'no page']), 1);
  const historyOf = async (stepS: number) => (await getJson<ClusterHistory>(a, `/api/history?step_s=${stepS}`)).body;
  const sum = (values: readonly number[] = []) => values.reduce((total, value) => total + value, 0);
  for (const stepS of HISTORY_STEPS_S) {
    // A sample may lie between what is counted for one call.
    await until(async () => {
      const { nodes } = await historyOf(stepS);
      const countOf = ({ runtime: { nodeId } }: MeshCacheStore, name: HistoryCount) =>
        sum(nodes.find(({ node_id }) => node_id === nodeId)?.counts[name]);
      const counts = [
        countOf(a, 'written_bytes'),
        countOf(b, 'remote_bytes'),
        countOf(b, 'asked'),
        countOf(b, 'found'),
      ];
      return counts.every((count) => count > 0);
    });
    const { nodes, step_s, node_id } = await historyOf(stepS);
    t.is(step_s, stepS);
    t.is(node_id, a.runtime.nodeId);
    const byNode = new Map(nodes.map((node) => [node.node_id, node]));
    const [ofA, ofB] = [byNode.get(a.runtime.nodeId), byNode.get(b.runtime.nodeId)];
    t.is(sum(ofA?.counts.written_bytes), 10_000);
    t.is(sum(ofB?.counts.remote_bytes), 10_000);
    t.deepEqual([sum(ofB?.counts.asked), sum(ofB?.counts.found)], [2, 1]);
    t.is(ofB?.incarnation, b.runtime.incarnation);
  }
  const { body } = await getJson<NodeReport>(b, '/api/node');
  t.deepEqual(body.recent?.lookups, { asked: 2, found: 1 });
  t.true((body.recent?.read_p99_s ?? 0) > 0);
  t.is(body.recent?.page_lifetime_s, null);
  const text = await (await fetch(`http://${b.metricsEndpoint}/metrics`)).text();
  t.regex(text, /^meshcache_pool_page_lifetime_seconds\{[^}]*\} NaN$/im);
  t.regex(text, /^meshcache_uptime_seconds\{[^}]*\} [\d.]+$/m);
});

test('reporting: a node that leaves has left, in every report and in none of the alarms', async (t) => {
  const stores = await createCluster(3);
  closing(t, stores);
  const [a, , c] = stores as [MeshCacheStore, MeshCacheStore, MeshCacheStore];
  const { nodeId, incarnation } = c.runtime;
  await c.close();
  const clusterOf = async () => (await getJson<ClusterReport>(a, '/api/cluster')).body;
  await until(async () => (await clusterOf()).departed?.length === 1);
  const { departed = [], member_events } = await clusterOf();
  const { node_id, how, incarnation: start } = departed[0] as DepartedNode;
  t.deepEqual([node_id, how, start], [nodeId, 'left', incarnation]);
  const changes = member_events?.filter((event) => event.node_id === nodeId).map(({ change }) => change);
  t.deepEqual(changes?.at(-1), 'left');
  t.is(changes?.filter((change) => change === 'left').length, 1, 'two nodes have seen it');
});

test('reporting: stores on one host take ports one after the other, and tell them to each other', async (t) => {
  const first = await occupied(t);
  const stores = await createCluster(2, { metrics_port: first });
  closing(t, stores);
  const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
  const ports = stores.map((store) => Number(store.metricsEndpoint.split(':').at(-1)));
  t.true(ports.every((port) => port > first) && ports[0] !== ports[1], `${ports} after ${first}`);
  const seen = a.runtime.members().get(b.runtime.nodeId);
  t.is(`${seen?.metricsHost}:${seen?.metricsPort}`, b.metricsEndpoint);
});

test('reporting: metrics can be turned off, and guarded by a token', async (t) => {
  const port = await freePort();
  const off = await createStore(port, { metrics_enabled: false });
  const guarded = await createStore(port, { metrics_token: 'a-token-of-ours' });
  closing(t, [off, guarded]);
  t.is(off.metricsEndpoint, '');
  t.is(off.runtime.members().get(off.runtime.nodeId)?.metricsPort, 0);
  const url = `http://${guarded.metricsEndpoint}/metrics`;
  t.is((await fetch(url)).status, 401);
  const answer = await fetch(url, { headers: { authorization: 'Bearer a-token-of-ours' } });
  t.is(answer.status, 200);
  const text = await answer.text();
  t.true(text.includes(`node_id="${guarded.runtime.nodeId}"`));
  t.false(text.includes('a-token-of-ours'));
  t.false(JSON.stringify(await guarded.runtime.report()).includes('a-token-of-ours'));
});

test('reporting: health says that no master answers', async (t) => {
  // Somebody else has the port.
  const port = await occupied(t);
  const store = await createStore(port);
  closing(t, [store]);
  const { status, body } = await getJson<HealthReport>(store, '/healthz');
  t.is(status, 503);
  t.is(body.status, 'degraded');
  t.true(body.reasons.includes(`no discovery master answers (127.0.0.1:${port})`), body.reasons.join());
});

test('reporting: a metrics address that cannot be had is refused with its key, and nothing stays', async (t) => {
  const port = await freePort();
  const error = await t.throwsAsync(createStore(port, { metrics_host: '203.0.113.7' }), { instanceOf: ConfigError });
  t.regex(error?.message ?? '', /metrics_host/);
  // The discovery port is free again, or was never taken.
  const store = await createStore(port, { metrics_port: await freePort() });
  t.true(store.runtime.isMeta);
  const { metricsEndpoint } = store;
  await store.close();
  await t.throwsAsync(fetch(`http://${metricsEndpoint}/healthz`));
});

test('reporting: the metrics server leaves the ports alone that the node itself is going to take', async (t) => {
  const port = await freePort();
  const store = await createStore(port, { metrics_port: port });
  closing(t, [store]);
  t.true(store.runtime.isMeta, 'the discovery port was free');
  t.true(Number(store.metricsEndpoint.split(':').at(-1)) > port);
});

test('reporting: a member that answers oddly is shown as unreachable, and spoils nothing', async (t) => {
  const port = await freePort();
  const store = await createStore(port);
  closing(t, [store]);
  const env = systemEnvironment({ clock: patientClock, log: silentLogger });
  const answers: unknown[] = [null, 'text', { pool: {}, latency: {}, events: {} }, { health: { reasons: 'all' } }];
  answers.push({ ...(await store.runtime.report()), incarnation: 2n ** 60n });
  for (const [i, answer] of answers.entries()) {
    const server = new RpcServer({ host: '127.0.0.1', env });
    server.handle('node.status', () => answer);
    const controlPort = await server.start();
    const nodeId = `odd ${i}`;
    const info = new NodeInfo({ nodeId, controlHost: '127.0.0.1', controlPort, incarnation: 1 });
    t.teardown(() => server.stop());
    const client = new DiscoveryClient(`127.0.0.1:${port}`, info, { heartbeatInterval: 0.2, memberTtl: 1, env });
    t.teardown(() => client.stop());
    await client.start();
    await until(() => store.runtime.members().has(nodeId));
    const stateOf = (report: ClusterReport) => report.nodes.find((node) => node.node_id === nodeId)?.state;
    await until(async () => stateOf((await getJson<ClusterReport>(store, '/api/cluster')).body) === 'unreachable');
    const status = await clusterStatus([{ host: '127.0.0.1', port }]);
    t.is(status.nodes.find((node) => node.node_id === nodeId)?.state, 'unreachable', `answer ${i}`);
    await client.stop();
    await server.stop();
  }
});

test('reporting: who asks for the whole cluster gets the last events of each member', async (t) => {
  const stores = await createCluster(2);
  closing(t, stores);
  const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
  const env = systemEnvironment({ clock: patientClock, log: silentLogger });
  const client = new RpcClient({ env });
  t.teardown(() => client.close());
  const { controlHost: host, controlPort } = b.runtime.members().get(a.runtime.nodeId) as NodeInfo;
  const ask = async (params: Record<string, unknown>) =>
    (await client.call({ host, port: controlPort }, 'node.status', params)) as NodeReport;
  const all = (await ask({})).events;
  t.true(all.length >= 2);
  t.deepEqual((await ask({ events_max: 1 })).events, all.slice(-1));
  t.deepEqual((await ask({ events_max: 0 })).events, []);
  t.deepEqual((await ask({ events_max: 'many' })).events, all);
});

test('reporting: a node with a client socket tells who is attached; one without has no such section', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-reporting-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const client_socket = join(folder, 'node.sock');
  const port = await freePort();
  const [a, b] = [await createStore(port, { client_socket }), await createStore(port)];
  closing(t, [a, b]);
  await until(() => b.stats().members === 2);
  const clientsOf = async (store: MeshCacheStore) => (await getJson<NodeReport>(store, '/api/node')).body.clients;
  t.deepEqual(await clientsOf(a), { socket: client_socket, attached: 0, busiest: [], namespaces: [] });
  t.is(await clientsOf(b), undefined);

  const idle = await AttachedClient.attach(client_socket, 'idle', 1);
  const busy = await AttachedClient.attach(client_socket, 'busy', 2);
  t.teardown(() => Promise.all([idle.close(), busy.close()]));
  await busy.set({ page: content(1, 700) });
  await busy.get(['page', 'absent']);
  await busy.getNowhere('page');
  const busiest = {
    name: 'busy',
    pid: 2,
    mode: 'bytes',
    requests: 3,
    errors: 1,
    in_flight: 0,
    lookups: 0,
    found: 0,
    hits: 1,
    misses: 1,
    pages_written: 1,
    read_bytes: 700,
    written_bytes: 700,
    mapped_bytes: 0,
  };
  const clients = await clientsOf(a);
  t.is(clients?.attached, 2);
  t.deepEqual(clients?.busiest[0], busiest);
  t.like(clients?.busiest[1], { name: 'idle', pid: 1, requests: 0 });
  const status = await clusterStatus([{ host: '127.0.0.1', port }]);
  const seen = (store: MeshCacheStore) => status.nodes.find(({ node_id }) => node_id === store.runtime.nodeId)?.clients;
  t.deepEqual(seen(a), clients);
  t.is(seen(b), undefined);
  await until(async () => {
    const { body } = await getJson<ClusterReport>(b, '/api/cluster');
    const other = body.nodes.find(({ node_id }) => node_id === a.runtime.nodeId);
    return other?.state === 'up' && other.report.clients?.busiest[0]?.name === 'busy';
  });
});

test('reporting: of many clients those that have moved most bytes are told, and how many there are', (t) => {
  const client = { mode: 'bytes', in_flight: 0, regions: 0, mapped_bytes: 0, lookups: 0, found: 0, errors: 0 };
  const counts = { hits: 0, misses: 0, pages_written: 0, bytes_by_way: { direct: 0, staged: 0, bytes: 0 } };
  const all = Array.from({ length: 100 }, (_, i) => {
    const bytes = (37 * i) % 100;
    return { ...client, ...counts, name: `engine-${i}`, pid: i, requests: 1, read_bytes: bytes, written_bytes: 1 };
  });
  const { socket, attached, busiest } = clientsReport('/run/node.sock', all, []);
  t.deepEqual([socket, attached], ['/run/node.sock', 100]);
  const expected = Array.from({ length: NODE_REPORT_CLIENTS_MAX_COUNT }, (_, i) => 99 - i);
  t.deepEqual(
    busiest.map(({ read_bytes }) => read_bytes),
    expected,
  );
});

test('reporting: a report with clients that cannot be counted with is none', async (t) => {
  t.true(isReportLike({}));
  const client = { name: 'engine', mode: 'bytes', requests: 1 };
  t.true(isReportLike({ clients: { socket: '/a', attached: 1, busiest: [client] } }));
  for (const clients of [
    null,
    7,
    [],
    { attached: '1' },
    { busiest: {} },
    { busiest: [{ ...client, requests: 'x' }] },
  ]) {
    t.false(isReportLike({ clients }), JSON.stringify(clients));
  }
});
