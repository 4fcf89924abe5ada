import test from 'ava';
import type { LogFields } from '../../src/base/environment/log.js';
import { isOfSameOwners, logMemberChange } from '../../src/node/upkeep/member-log.js';
import { NodeInfo, type NodeInfoInit } from '../../src/types.js';

function membersOf(incarnations: Readonly<Record<string, number>>): Map<string, NodeInfo> {
  return new Map(
    Object.entries(incarnations).map(([nodeId, incarnation]) => {
      const info = new NodeInfo({ nodeId, controlHost: '10.0.0.1', controlPort: 1, protocols: ['tcp'], incarnation });
      return [nodeId, info];
    }),
  );
}

/** The lines of a change in which `left` say good-bye. */
function linesOf(before: Record<string, number>, after: Record<string, number>, left: readonly string[] = []) {
  const lines: [message: string, fields: LogFields][] = [];
  const log = { log: (_level: string, message: string, fields: LogFields = {}) => void lines.push([message, fields]) };
  const change = { before: membersOf(before), after: membersOf(after) };
  const changed = [...new Set([...change.before.keys(), ...change.after.keys()])];
  logMemberChange(log, { ...change, changed }, { hasLeft: (nodeId) => left.includes(nodeId), memberTtlS: 6 });
  return lines;
}

test('member log: a line says what became of a node', (t) => {
  t.deepEqual(linesOf({ a: 1 }, { a: 1, b: 1 }), [['node joined', { node: 'b', members: 2 }]]);
  t.deepEqual(linesOf({ a: 1, b: 1 }, { a: 1, b: 2 }), [['node restarted', { node: 'b', members: 2 }]]);
  t.deepEqual(linesOf({ a: 1, b: 1 }, { a: 1 }, ['b']), [['node left', { node: 'b', members: 1 }]]);
  t.deepEqual(linesOf({ a: 1, b: 1 }, { a: 1 }), [['node lost: no heartbeat for 6 s', { node: 'b', members: 1 }]]);
  t.deepEqual(linesOf({ a: 1 }, { a: 1 }), []);
});

test('member log: owners follow from starts and zones, not from what else a member says of itself', (t) => {
  const of = (before: Partial<NodeInfoInit>, after: Partial<NodeInfoInit>): boolean => {
    const [was, is] = [before, after].map((init) => {
      const info = new NodeInfo({ nodeId: 'a', controlHost: '10.0.0.1', controlPort: 1, incarnation: 1, ...init });
      return new Map([['a', info]]);
    }) as [Map<string, NodeInfo>, Map<string, NodeInfo>];
    return isOfSameOwners({ before: was, after: is, changed: ['a'] });
  };
  t.true(of({}, { isDiskHung: true }));
  t.false(of({}, { incarnation: 2 }));
  t.false(of({ zone: 'z1' }, { zone: 'z2' }));
  t.false(isOfSameOwners({ before: membersOf({ a: 1 }), after: membersOf({ a: 1, b: 1 }), changed: ['b'] }));
  t.false(isOfSameOwners({ before: membersOf({ a: 1, b: 1 }), after: membersOf({ a: 1 }), changed: ['b'] }));
  t.false(isOfSameOwners({ before: membersOf({ a: 1 }), after: membersOf({ a: 1 }), changed: [] }), 'the first list');
});

test('member log: a lost node is a warning, one that leaves is not', (t) => {
  const levels: string[] = [];
  const log = { log: (level: string) => void levels.push(level) };
  const change = { before: membersOf({ a: 1, b: 1, c: 1 }), after: membersOf({ a: 1 }), changed: ['b', 'c'] };
  logMemberChange(log, change, { hasLeft: (nodeId) => nodeId === 'b', memberTtlS: 6 });
  t.deepEqual(levels, ['info', 'warn']);
});

test('member log: one line tells of all nodes with the same fate, and names the first of many', (t) => {
  const many = Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`n${i}`, 1]));
  t.deepEqual(linesOf({ a: 1, b: 1, c: 1, ...many }, { a: 1 }, ['b', 'c']), [
    ['nodes left', { nodes: 'b, c', members: 1 }],
    ['nodes lost: no heartbeat for 6 s', { nodes: 'n0, n1, n2, n3, n4, n5, n6, n7 and 2 more', members: 1 }],
  ]);
});
