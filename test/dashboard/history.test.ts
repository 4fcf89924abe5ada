import test from 'ava';
import { HISTORY_MAX_POINTS, HISTORY_MS, History, pastOf } from '../../src/dashboard/data/history.js';
import { fillShare, recentOf, totalOf } from '../../src/dashboard/data/points.js';
import type { ClusterReport, NodeReport } from '../../src/metrics/node-report.js';
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
  t.true(history.points(null).at(-1)?.isPartial);
  t.is(recentOf(history.points('a'), 30).seconds, 0);
  t.deepEqual(history.points(null).at(-1)?.counts, history.points('b').at(-1)?.counts);
  history.record(await cluster.cluster());
  t.truthy(history.points('a').at(-1)?.counts);
  t.is(recentOf(history.points('a'), 30).seconds, 1);
});

test('dashboard history: what a node counted while it did not answer is spread over that time, if that was short', async (t) => {
  const cluster = twoNodes();
  const history = new History();
  const node = cluster.nodes[1]!;
  history.record(await cluster.cluster());
  const before = (await node.report(2)).reads.local;
  node.state = 'unreachable';
  history.record(await cluster.cluster());
  t.is(history.points('b').length, 1);
  node.state = 'up';
  history.record(await cluster.cluster());
  const point = history.points('b').at(-1)!;
  t.is(point.counts?.local, (await node.report(2)).reads.local - before);
  t.is(point.seconds, 2);
  cluster.timeMs += 60_000;
  history.record(await cluster.cluster());
  t.is(history.points('b').at(-1)?.counts, null);
});

test('dashboard history: what the nodes have kept and what is polled afterwards add up to what was counted', async (t) => {
  const cluster = twoNodes();
  for (const [i, node] of cluster.nodes.entries()) node.ticks = 100 + i;
  const history = new History();
  history.record(await cluster.cluster());
  for (const stepS of [2, 10]) {
    cluster.timeMs += 300;
    history.begin(pastOf(await cluster.history(stepS)));
    for (let i = 0; i < 5; i++) history.record(await cluster.cluster());
    for (const [i, nodeId] of ['a', 'b', null].entries()) {
      const { counts } = totalOf(history.points(nodeId));
      const nodes = nodeId === null ? cluster.nodes : [cluster.nodes[i]!];
      const reports = await Promise.all(nodes.map((node) => node.report(2)));
      const total = (of: (report: NodeReport) => number) => reports.reduce((sum, report) => sum + of(report), 0);
      // What is older than the first interval that the nodes keep is not in it.
      const least = stepS === 2 ? 1 : 0.9;
      for (const [shown, counted] of [
        [counts.local, total(({ reads }) => reads.local)],
        [counts.found, total(({ lookups }) => lookups.found)],
        [counts.evictions, total(({ pool }) => pool.evictions)],
      ] as const) {
        t.true(shown <= counted + 1e-6 && shown >= least * counted * 0.98, `${nodeId}: ${shown} of ${counted}`);
      }
    }
  }
});

test('dashboard history: intervals of nodes that are taken at other times come to one row of times, with nothing lost', async (t) => {
  const cluster = twoNodes();
  for (const node of cluster.nodes) node.ticks = 60;
  const { nodes, ...rest } = await cluster.history(2);
  const shifted = nodes.map((node, i) => ({
    ...node,
    from_age_ms: node.from_age_ms + 700 * i,
    ages_ms: node.ages_ms.map((age) => age + 700 * i),
  }));
  const past = pastOf({ ...rest, nodes: shifted });
  const [a, b] = [past.nodes.get('a')!, past.nodes.get('b')!];
  t.deepEqual(a.map(({ timeMs }) => timeMs).slice(-20), b.map(({ timeMs }) => timeMs).slice(-20));
  for (const [i, points] of [a, b].entries()) {
    const counted = (nodes[i]!.counts.found ?? []).reduce((sum, count) => sum + count, 0);
    t.true(Math.abs(totalOf(points).counts.found - counted) < 1e-6 * counted);
  }
  const all = totalOf(past.cluster).counts.found;
  t.true(Math.abs(all - totalOf(a).counts.found - totalOf(b).counts.found) < 1e-6 * all);
  t.deepEqual(pastOf({ ...rest, nodes: [{} as never] }).cluster, [], 'a node of another version');
});

test('dashboard history: after a rolling restart the sum of all nodes is unknown where some have lost their past', (t) => {
  // Cause: the sum was of the nodes whose past goes back so far, and looked like a load that grew from nothing with
  // each restart.
  const nodes = ['a', 'b', 'c'].map((nodeId, i) => {
    const node = new FakeNode(nodeId, 1);
    node.ticks = 60 - 20 * i;
    return node.history(2, 3);
  });
  const { cluster } = pastOf({ node_id: 'a', time_ms: 1_000_000, step_s: 2, nodes });
  const known = cluster.map(({ timeMs, isPartial }) => [(1_000_000 - timeMs) / 1000, isPartial !== true] as const);
  t.is(known.length, 30);
  for (const [ageS, isKnown] of known) t.is(isKnown, ageS < 20, `${ageS} s ago`);
  // Shares of a part of the nodes are as good, and rates do not reach back into the time when they are not known.
  t.truthy(cluster[0]?.counts);
  t.is(recentOf(cluster, 60).seconds, 20);
});

test('dashboard history: a node that came later, or has no past at any time, makes no sum unknown', (t) => {
  const [first, second] = ['a', 'b'].map((nodeId, i) => {
    const node = new FakeNode(nodeId, 1);
    node.ticks = 60 - 40 * i;
    return node;
  }) as [FakeNode, FakeNode];
  const alone = first.history(2, 1);
  const together = first.history(2, 2);
  const members = alone.ages_ms.map((age) => (age < 20_000 ? 2 : 1));
  const joined = [{ ...alone, gauges: { ...alone.gauges, members } }, second.history(2, 2)];
  const hidden = [together];
  for (const nodes of [joined, hidden]) {
    const { cluster } = pastOf({ node_id: 'a', time_ms: 1_000_000, step_s: 2, nodes });
    t.true(cluster.every(({ isPartial }) => !isPartial));
  }
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
