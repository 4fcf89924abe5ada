import test from 'ava';
import { MEMBERS_MAX_COUNT } from '../../src/base/limits.js';
import { type MasterView, mergeChanged, mergeMembers } from '../../src/discovery/masters/merging.js';
import { MemberTable } from '../../src/discovery/messages/member-table.js';
import type { NodeInfo } from '../../src/types.js';
import { nodeOf } from '../_support/discovery/masters.js';

const TTL_MS = 6_000;

test('members: who is silent for the time-to-live expires, who is heard does not', (t) => {
  const table = new MemberTable(TTL_MS);
  table.register(nodeOf('a'), 0);
  table.register(nodeOf('b'), 0);
  t.is(table.heartbeat('b', 1, 3_000), 'ok');
  table.expire(TTL_MS - 1);
  t.is(table.size, 2);
  table.expire(TTL_MS);
  t.deepEqual([...table.members().keys()], ['b']);
  t.deepEqual(table.departures, [{ nodeId: 'a', incarnation: 1 }]);
  t.is(table.heartbeat('a', 1, TTL_MS), 'unknown');
});

test('members: of one id the newest start counts', (t) => {
  const table = new MemberTable(TTL_MS);
  t.is(table.register(nodeOf('a', { incarnation: 2 }), 0), 'ok');
  t.is(table.register(nodeOf('a', { incarnation: 1 }), 0), 'replaced');
  t.is(table.heartbeat('a', 1, 0), 'replaced');
  t.is(table.heartbeat('a', 3, 0), 'unknown');
  t.is(table.register(nodeOf('a', { incarnation: 3 }), 0), 'ok');
  t.is(table.heartbeat('a', 2, 0), 'replaced');
  table.leave('a', 2);
  t.is(table.size, 1);
  table.leave('a', 3);
  t.is(table.size, 0);
});

test('members: the version changes with the membership only', (t) => {
  const table = new MemberTable(TTL_MS);
  table.register(nodeOf('a'), 0);
  const { version } = table;
  table.register(nodeOf('a'), 1);
  table.heartbeat('a', 1, 2);
  table.expire(3);
  t.is(table.version, version);
  table.register(nodeOf('a', { tcpPort: 9 }), 3);
  t.not(table.version, version);
});

test('members: who comes back is not among the departed any more', (t) => {
  const table = new MemberTable(TTL_MS);
  table.register(nodeOf('a'), 0);
  table.leave('a', 1);
  table.register(nodeOf('a'), 1);
  t.deepEqual(table.departures, []);
});

test('members: their number is bounded', (t) => {
  const table = new MemberTable(TTL_MS);
  for (let i = 0; i < MEMBERS_MAX_COUNT; i++) t.is(table.register(nodeOf(`n${i}`), 0), 'ok');
  t.is(table.register(nodeOf('one more'), 0), 'full');
  t.is(table.register(nodeOf('n0', { incarnation: 2 }), 0), 'ok');
});

test('members: an excuse gives everybody more time', (t) => {
  const table = new MemberTable(TTL_MS);
  table.register(nodeOf('a'), 0);
  table.excuse(10_000);
  table.expire(15_000);
  t.is(table.size, 1);
  table.expire(16_000);
  t.is(table.size, 0);
});

const self = nodeOf('self');

function mapOf(...nodes: NodeInfo[]): Map<string, NodeInfo> {
  return new Map(nodes.map((node) => [node.nodeId, node]));
}

function viewOf(isMature: boolean, members: NodeInfo[], gone: MasterView['gone'] = []): MasterView {
  return { isMature, members: mapOf(...members), gone };
}

function idsOf(members: Map<string, NodeInfo>): string {
  return [...members.values()]
    .map(({ nodeId, incarnation }) => `${nodeId}${incarnation}`)
    .sort()
    .join(' ');
}

test('merge: a young master adds and takes nobody away', (t) => {
  const merged = mergeMembers(mapOf(self, nodeOf('a')), [viewOf(false, [nodeOf('b')])], self);
  t.is(idsOf(merged), 'a1 b1 self1');
});

test('merge: a mature master takes away whom it does not know', (t) => {
  const merged = mergeMembers(mapOf(self, nodeOf('a')), [viewOf(true, [nodeOf('b')])], self);
  t.is(idsOf(merged), 'b1 self1');
});

test('merge: whom any master knows stays', (t) => {
  const views = [viewOf(true, [nodeOf('b')]), viewOf(false, [nodeOf('a')])];
  t.is(idsOf(mergeMembers(mapOf(self, nodeOf('a')), views, self)), 'a1 b1 self1');
});

test('merge: a young master that saw somebody leave takes that start of it away', (t) => {
  const gone = [{ nodeId: 'a', incarnation: 1 }];
  t.is(idsOf(mergeMembers(mapOf(self, nodeOf('a')), [viewOf(false, [], gone)], self)), 'self1');
  const newer = mapOf(self, nodeOf('a', { incarnation: 2 }));
  t.is(idsOf(mergeMembers(newer, [viewOf(false, [], gone)], self)), 'a2 self1');
});

test('merge: of one id the newest start counts, whoever names it', (t) => {
  const views = [viewOf(true, [nodeOf('a', { incarnation: 3 })]), viewOf(true, [nodeOf('a', { incarnation: 2 })])];
  t.is(idsOf(mergeMembers(mapOf(self, nodeOf('a')), views, self)), 'a3 self1');
});

test('merge: of one start a record with a zone counts, which a master of an earlier version leaves out', (t) => {
  const [known, left] = [nodeOf('a', { zone: 'x' }), nodeOf('a')];
  const later = nodeOf('a', { incarnation: 2 });
  for (const views of [
    [known, left].map((each) => viewOf(true, [each])),
    [left, known].map((each) => viewOf(true, [each])),
  ]) {
    t.is(mergeMembers(mapOf(self), views, self).get('a')?.zone, 'x');
    t.is(mergeChanged(mapOf(self), ['a'], { views, self }).get('a')?.zone, 'x');
    t.is(idsOf(mergeMembers(mapOf(self), [...views, viewOf(true, [later])], self)), 'a2 self1');
  }
});

test('members: a node that returns with another zone has changed', (t) => {
  const table = new MemberTable(TTL_MS);
  table.register(nodeOf('a', { zone: 'x' }), 0);
  const { version } = table;
  table.register(nodeOf('a', { zone: 'x' }), 1);
  t.is(table.version, version);
  table.register(nodeOf('a', { zone: 'y' }), 2);
  t.not(table.version, version);
});

test('merge: without an answer nothing changes, and the own node is always in', (t) => {
  t.is(idsOf(mergeMembers(mapOf(self, nodeOf('a')), [], self)), 'a1 self1');
  t.is(idsOf(mergeMembers(new Map(), [viewOf(true, [])], self)), 'self1');
});

test('members: a start is followed when the others say that they go by a list with it', (t) => {
  const table = new MemberTable(TTL_MS);
  const register = (nodeId: string, incarnation: number): number => {
    table.register(nodeOf(nodeId, { incarnation }), 0);
    return table.sinceVersion(nodeId, incarnation) as number;
  };
  const follow = (nodeId: string, incarnation: number, followedVersion: number) =>
    table.heartbeat(nodeId, incarnation, 0, { followedVersion });
  register('a', 1);
  follow('a', 1, table.version);
  const since = register('b', 1);
  t.is(since, table.version);
  t.deepEqual(table.notFollowing(since), ['a', 'b']);
  follow('b', 1, since);
  t.deepEqual([table.notFollowing(since), table.followedByAll()], [['a'], since - 1]);
  follow('a', 1, since);
  t.deepEqual([table.notFollowing(since), table.followedByAll()], [[], since]);
  register('b', 1);
  t.is(table.sinceVersion('b', 1), since, 'the same start, registered again');
  t.is(register('b', 2), since + 1, 'a later start has to be heard of anew');
  t.deepEqual(table.notFollowing(since + 1), ['a', 'b']);
  t.is(table.sinceVersion('b', 1), undefined);
});
