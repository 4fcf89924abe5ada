import test from 'ava';
import type { LooseReport } from '../../src/dashboard/data/counts.js';
import type { Member } from '../../src/dashboard/data/members.js';
import { CLIENT_LINES_MAX_COUNT, clientLines, unlistedCount } from '../../src/dashboard/views/clients-view.js';
import { fakeClient } from '../_support/dashboard/fake-cluster.js';

function member(nodeId: string, clients: unknown, state: Member['state'] = 'up'): Member {
  const report = { clients } as LooseReport;
  return {
    nodeId,
    state,
    sinceMs: 0,
    isThis: false,
    controlEndpoint: '',
    ringShare: 1,
    error: '',
    report,
    reportMs: 0,
  };
}

test('clients: by node, name and process, of the nodes that answer', (t) => {
  const names = ['b-10', 'b-2', 'a'].map((name) => fakeClient(name));
  const twice = [fakeClient('a', { pid: 9 }), fakeClient('a', { pid: 8 })];
  const members = [
    member('node-2', { attached: 3, busiest: names }),
    member('node-1', { attached: 2, busiest: twice }),
    member('node-3', { attached: 3, busiest: names }, 'unreachable'),
    member('node-4', undefined),
  ];
  t.deepEqual(
    clientLines(members).map(({ nodeId, name, pid }) => `${nodeId} ${name} ${pid}`),
    ['node-1 a 8', 'node-1 a 9', 'node-2 a 4711', 'node-2 b-2 4711', 'node-2 b-10 4711'],
  );
  t.is(unlistedCount(members, 5), 0);
});

test('clients: of very many those are shown that have moved most bytes, and the others counted', (t) => {
  const members = Array.from({ length: 10 }, (_, node) => {
    const busiest = Array.from({ length: 32 }, (_, i) => fakeClient(`engine-${i}`, { read_bytes: 1e9 * i }));
    return member(`node-${node}`, { attached: 50, busiest });
  });
  const lines = clientLines(members);
  t.is(lines.length, CLIENT_LINES_MAX_COUNT);
  t.true(lines.every(({ readBytes }) => readBytes >= 22e9));
  t.is(unlistedCount(members, lines.length), 500 - CLIENT_LINES_MAX_COUNT);
});

test('clients: a report of another version has what it has', (t) => {
  for (const clients of [{}, { attached: 1 }, { busiest: [{}] }, { attached: -1, busiest: [{ pid: Number.NaN }] }]) {
    for (const line of clientLines([member('node', clients)])) {
      t.deepEqual([line.name, line.mode, line.pid, line.requests], ['', '', 0, 0]);
    }
    t.true(unlistedCount([member('node', clients)], 0) <= 1);
  }
});

test('clients: the hit rate is of what was asked for: of lookups, and of the reads of clients that make none', (t) => {
  const asks = fakeClient('asks', { lookups: 8, found: 2, hits: 2, misses: 0 });
  const reads = fakeClient('reads', { lookups: 0, found: 0, hits: 3, misses: 1 });
  const { lookups, found, ...earlier } = fakeClient('of an earlier version', { hits: 1, misses: 1 });
  const idle = fakeClient('idle', { lookups: 0, found: 0, hits: 0, misses: 0 });
  const members = [member('node', { attached: 4, busiest: [asks, reads, earlier, idle] })];
  const rates = Object.fromEntries(clientLines(members).map(({ name, prefixHit }) => [name, prefixHit]));
  t.deepEqual(rates, { asks: 0.25, reads: 0.75, 'of an earlier version': 0.5, idle: null });
});
