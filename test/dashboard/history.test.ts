import test from 'ava';
import { fillShare, HISTORY_MAX_POINTS, HISTORY_MS, History, recentOf } from '../../src/dashboard/data/history.js';
import type { ClusterReport } from '../../src/metrics/node-report.js';
import { FakeCluster, FakeNode } from '../_support/dashboard/fake-cluster.js';

function twoNodes(): FakeCluster {
  return new FakeCluster([new FakeNode('a', 1), new FakeNode('b', 2)]);
}

test('dashboard history: rates are of the time between two polls, of each node and of all', async (t) => {
  const cluster = twoNodes();
  const history = new History();
  const reports = [await cluster.cluster(), await cluster.cluster(), await cluster.cluster()];
  for (const report of reports) t.true(history.record(report));
  const localOf = (report: ClusterReport, index: number): number => {
    const node = report.nodes[index];
    return node?.state === 'up' ? node.report.reads.local : 0;
  };
  const grown = [0, 1].map((i) => localOf(reports[2]!, i) - localOf(reports[0]!, i));
  t.deepEqual(recentOf(history.points('a'), 30).counts.local, grown[0]);
  t.deepEqual(recentOf(history.points('b'), 30).counts.local, grown[1]);
  t.deepEqual(recentOf(history.points(null), 30), {
    seconds: 2,
    counts: recentOf(history.points(null), 2).counts,
  });
  t.is(recentOf(history.points(null), 30).counts.local, grown[0]! + grown[1]!);
});

test('dashboard history: a report that was seen before changes nothing', async (t) => {
  const cluster = twoNodes();
  const history = new History();
  const report = await cluster.cluster();
  t.true(history.record(report));
  t.false(history.record(report));
  t.is(history.points(null).length, 1);
});

test('dashboard history: a restarted node starts anew, the others go on', async (t) => {
  const cluster = twoNodes();
  const history = new History();
  for (let i = 0; i < 5; i++) history.record(await cluster.cluster());
  cluster.nodes[0]!.restart();
  history.record(await cluster.cluster());
  t.is(history.points('a').at(-1)?.counts, null);
  t.is(recentOf(history.points('a'), 30).seconds, 0);
  t.deepEqual(history.points(null).at(-1)?.counts, history.points('b').at(-1)?.counts);
  history.record(await cluster.cluster());
  t.truthy(history.points('a').at(-1)?.counts);
  t.is(recentOf(history.points('a'), 30).seconds, 1);
});

test('dashboard history: what a node counted while it did not answer is no rate', async (t) => {
  const cluster = twoNodes();
  const history = new History();
  const node = cluster.nodes[1]!;
  history.record(await cluster.cluster());
  node.state = 'unreachable';
  history.record(await cluster.cluster());
  t.is(history.points('b').length, 1);
  node.state = 'up';
  history.record(await cluster.cluster());
  t.is(history.points('b').at(-1)?.counts, null);
});

test('dashboard history: only five minutes are kept, and a bounded number of points', async (t) => {
  const cluster = twoNodes();
  const history = new History();
  for (let i = 0; i < 400; i++) history.record(await cluster.cluster());
  t.is(history.points(null).length, HISTORY_MS / 1000 + 1);
  for (let i = 0; i < 2 * HISTORY_MAX_POINTS; i++) {
    cluster.timeMs -= 900;
    history.record(await cluster.cluster());
  }
  t.is(history.points(null).length, HISTORY_MAX_POINTS);
  t.is(history.points('a').length, HISTORY_MAX_POINTS);
  cluster.nodes.pop();
  cluster.timeMs += HISTORY_MS;
  history.record(await cluster.cluster());
  t.deepEqual(history.points('b'), []);
});

test('dashboard history: a clock that goes back starts everything anew', async (t) => {
  const cluster = twoNodes();
  const history = new History();
  for (let i = 0; i < 5; i++) history.record(await cluster.cluster());
  cluster.timeMs -= 60_000;
  history.record(await cluster.cluster());
  t.is(history.points(null).length, 1);
  t.is(history.points('a').at(-1)?.counts, null);
});

test('dashboard history: fill of all nodes is the sum of theirs, and unknown without a disk', async (t) => {
  const cluster = new FakeCluster([new FakeNode('a', 1, true), new FakeNode('b', 1, false)]);
  const history = new History();
  history.record(await cluster.cluster());
  const [all, a, b] = [null, 'a', 'b'].map((id) => history.points(id).at(-1)!);
  t.is(all!.pool.capacityBytes, a!.pool.capacityBytes + b!.pool.capacityBytes);
  t.deepEqual(all!.disk, a!.disk);
  t.is(fillShare(b!.disk), null);
  t.is(fillShare({ usedBytes: 3, capacityBytes: 4 }), 0.75);
});
