import test from 'ava';
import { Connection } from '../../src/dashboard/api.js';
import { isClusterReport } from '../../src/dashboard/data/counts.js';
import { EVENTS_MAX_COUNT, EventLog } from '../../src/dashboard/data/event-log.js';
import { GONE_MAX_COUNT, Members } from '../../src/dashboard/data/members.js';
import { formatClock } from '../../src/dashboard/views/format.js';
import { dashboardLink } from '../../src/dashboard/views/members-view.js';
import type { NodeEvent } from '../../src/metrics/node-report.js';
import { FakeCluster, FakeNode } from '../_support/dashboard/fake-cluster.js';

test('dashboard members: a node is up, unreachable, lost and back, each with its time and in words', async (t) => {
  const cluster = new FakeCluster([new FakeNode('a', 1), new FakeNode('b', 1)]);
  const members = new Members();
  t.deepEqual(members.update(await cluster.cluster()), [], 'the first report is no change');
  const [, b] = cluster.nodes;
  b!.state = 'unreachable';
  t.deepEqual(members.update(await cluster.cluster()), ['b does not answer']);
  const failedMs = cluster.timeMs;
  t.deepEqual(members.update(await cluster.cluster()), []);
  t.like(members.get('b'), { state: 'unreachable', sinceMs: failedMs, error: b!.error, reportMs: failedMs - 1000 });
  t.truthy(members.get('b')?.report, 'the last figures stay');
  cluster.lose('b', 'lost');
  const lostMs = cluster.timeMs;
  t.deepEqual(members.update(await cluster.cluster()), ['b is lost']);
  t.deepEqual(members.update(await cluster.cluster()), []);
  t.like(members.get('b'), { state: 'lost', sinceMs: lostMs, ringShare: 0 });
  t.truthy(members.get('b')?.report, 'the last figures stay');
  t.deepEqual(
    members.list().map(({ nodeId }) => nodeId),
    ['a', 'b'],
  );
  b!.state = 'up';
  cluster.departed = [];
  cluster.nodes.unshift(b!);
  t.deepEqual(members.update(await cluster.cluster()), ['b has joined']);
  t.like(members.get('b'), { state: 'up', isThis: true });
});

test('dashboard members: who was lost or has left before the page was opened is shown, and told apart', async (t) => {
  const cluster = new FakeCluster(['a', 'b10', 'b9', 'c'].map((name) => new FakeNode(name, 1)));
  await cluster.cluster();
  cluster.lose('b9', 'lost');
  cluster.lose('a', 'left');
  const members = new Members();
  t.deepEqual(members.update(await cluster.cluster()), []);
  t.deepEqual(
    members.list().map(({ nodeId, state }) => `${nodeId} ${state}`),
    ['b9 lost', 'b10 up', 'c up', 'a left'],
  );
  // A node of an older version does not say why another one is gone.
  cluster.departed = undefined;
  cluster.nodes.pop();
  t.deepEqual(members.update(await cluster.cluster()), ['c is gone']);
  t.is(members.get('c')?.state, 'gone');
});

test('dashboard members: the gone are remembered, the first of them not for ever', async (t) => {
  const cluster = new FakeCluster([new FakeNode('stays', 1)]);
  const members = new Members();
  for (let i = 0; i < GONE_MAX_COUNT + 5; i++) {
    cluster.nodes[1] = new FakeNode(`n${i}`, 1);
    members.update(await cluster.cluster());
  }
  const list = members.list();
  t.is(list.filter(({ state }) => state === 'gone').length, GONE_MAX_COUNT);
  t.is(members.get('n0'), undefined);
  t.is(members.get(`n${GONE_MAX_COUNT + 3}`)?.state, 'gone');
});

test('dashboard events: of all nodes by time, each once, bounded, and told apart after a restart', (t) => {
  const log = new EventLog();
  const event = (id: number, time_ms: number, level: NodeEvent['level'] = 'info'): NodeEvent => {
    return { id, time_ms, level, message: `m${id}`, fields: { n: id } };
  };
  t.true(log.add('a', 1, [event(1, 10), event(2, 30)]));
  t.true(log.add('b', 1, [event(1, 20, 'error')]));
  t.false(log.add('a', 1, [event(1, 10), event(2, 30)]), 'nothing new');
  t.true(log.add('a', 1, [event(2, 30), event(3, 40)]));
  t.deepEqual(
    log.newest(null).map(({ nodeIds, timeMs, text }) => `${nodeIds} ${timeMs} ${text}`),
    ['a 40 m3 n=3', 'a 30 m2 n=2', 'b 20 m1 n=1', 'a 10 m1 n=1'],
  );
  t.deepEqual(
    log.newest('b').map(({ level }) => level),
    ['error'],
  );
  t.true(log.add('a', 2, [{ ...event(1, 50), message: 'started' }]), 'a restarted node counts from 1 again');
  t.is(log.newest('a')[0]?.timeMs, 50);
  log.add(
    'c',
    1,
    Array.from({ length: 2 * EVENTS_MAX_COUNT }, (_, i) => event(i + 1, 100 + i)),
  );
  t.is(log.newest(null).length, EVENTS_MAX_COUNT);
  t.is(log.newest(null)[0]?.timeMs, 99 + 2 * EVENTS_MAX_COUNT);
});

test('dashboard events: what several nodes tell is one event, with all of their names', (t) => {
  const log = new EventLog();
  const tell = (node: string, time_ms: number, message: string) =>
    log.add(node, 1, [{ id: time_ms, time_ms, level: 'info', message, fields: { seats: 'x' } }], true);
  for (const [i, node] of ['a', 'b', 'c'].entries()) tell(node, 1_000 + i, 'discovery masters changed');
  tell('a', 90_000, 'discovery masters changed');
  for (const node of ['a', 'b', 'c']) tell(node, 95_000, 'nodes joined');
  t.deepEqual(
    log.newest(null).map(({ nodeIds, timeMs }) => `${nodeIds} ${timeMs}`),
    ['a 90000', 'a,b,c 1000'],
    'a minute later it is another event, and members that come and go are told by the cluster',
  );
  t.is(log.newest('c').length, 1);
  for (const later of [96_000, 97_000]) tell('b', later, 'data connection failed');
  t.like(log.newest('b')[0], { nodeIds: ['b'], times: 2, timeMs: 96_000 });
});

test('dashboard events: a node that comes or goes is one event, as it was noticed first', (t) => {
  const log = new EventLog();
  const lost = { node_id: 'b', incarnation: 7, change: 'lost', time_ms: 50 } as const;
  t.true(log.addMemberEvents([lost], 6));
  t.false(log.addMemberEvents([lost], 6));
  t.true(log.addMemberEvents([{ ...lost, time_ms: 40, change: 'left' }], 6), 'another node has heard its good-bye');
  t.true(log.addMemberEvents([{ ...lost, incarnation: 8, time_ms: 60 }], 6));
  t.deepEqual(
    log.newest('b').map(({ text, level, timeMs }) => `${timeMs} ${level} ${text}`),
    ['60 error lost: no heartbeat for 6 s', '40 info left'],
  );
});

test('dashboard connection: two failures or one deadline are said, with the time of the last answer; an answer ends it', (t) => {
  const connection = new Connection();
  const report = { kind: 'report', report: {} as never } as const;
  const refused = { kind: 'silent', isTimeout: false } as const;
  connection.note(refused, 0);
  t.is(connection.banner, null);
  connection.note(refused, 0);
  t.is(connection.banner, 'This node does not answer. It is asked again every second.');
  const atMs = 1_760_000_000_000;
  connection.note(report, atMs);
  t.is(connection.banner, null);
  connection.note(refused, atMs + 1_000);
  t.is(connection.banner, null);
  connection.note(refused, atMs + 2_000);
  const since = `This node does not answer since ${formatClock(atMs)}; what is below is from then.`;
  t.is(connection.banner, since);
  connection.note(report, atMs + 9_000);
  t.false(connection.isLost);
  connection.note({ kind: 'silent', isTimeout: true }, atMs + 12_000);
  t.true(connection.isLost);
  connection.note({ kind: 'failed', why: 'answers with HTTP status 503' }, atMs + 13_000);
  t.regex(connection.banner ?? '', /^This node answers with HTTP status 503 since/);
});

test('dashboard links: only to what the reader can reach, and never anything but host and port', (t) => {
  const link = (endpoint: string, ownHost: string, controlEndpoint = '10.0.0.9:4000'): string | null =>
    dashboardLink(endpoint, { ownHost, controlEndpoint });
  t.is(link('10.0.0.7:31997', '10.0.0.8'), 'http://10.0.0.7:31997/');
  t.is(link('gpu-7.rack:31997', 'gpu-8.rack'), 'http://gpu-7.rack:31997/');
  t.is(link('[fd00::7]:31997', '[fd00::8]'), 'http://[fd00::7]:31997/');
  t.is(link('127.0.0.1:31998', '127.0.0.1'), 'http://127.0.0.1:31998/');
  t.is(link('127.0.0.1:31998', 'localhost'), 'http://127.0.0.1:31998/');
  const secure = { ownHost: '10.0.0.8', controlEndpoint: '10.0.0.9:18500', isTls: true };
  t.is(dashboardLink('10.0.0.7:31997', secure), 'https://10.0.0.7:31997/');
  t.is(link('127.0.0.1:31998', '10.0.0.8'), null, 'its loopback is not ours');
  t.is(link('[::1]:31998', 'gpu-8.rack'), null);
  t.is(link('0.0.0.0:31997', '10.0.0.8'), 'http://10.0.0.9:31997/', 'it listens on every address');
  t.is(link('[::]:31997', '10.0.0.8', 'gpu-9.rack:1'), 'http://gpu-9.rack:31997/');
  t.is(link('0.0.0.0:31997', '10.0.0.8', '127.0.0.1:1'), null);
  t.is(link('0.0.0.0:31997', '10.0.0.8', ''), null);
  for (const bad of ['', 'host', 'host:99999', 'a@b:1', 'javascript:alert(1)', 'x/y:80', 'h:1/x', 'h:1#x']) {
    t.is(link(bad, '127.0.0.1'), null, bad);
  }
});

test('dashboard reports: what is no report is refused', async (t) => {
  t.true(isClusterReport(await new FakeCluster([]).cluster()));
  for (const bad of [
    null,
    7,
    'x',
    [],
    {},
    { nodes: [] },
    { nodes: [], time_ms: Number.NaN },
    { nodes: {}, time_ms: 1 },
  ]) {
    t.false(isClusterReport(bad));
  }
});
