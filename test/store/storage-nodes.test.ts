import test from 'ava';
import { orderOf, type StorageNode } from '../../src/store/holding/storage-nodes.js';

const GIB = 2 ** 30;
const NODES: readonly StorageNode[] = [
  { nodeId: 'small', incarnation: 1, poolBytes: GIB },
  { nodeId: 'large', incarnation: 1, poolBytes: 3 * GIB },
  { nodeId: 'middle', incarnation: 1, poolBytes: 2 * GIB },
];
const KEYS = Array.from({ length: 6_000 }, (_, i) => `key ${i}`);

function firstOf(key: string, nodes: readonly StorageNode[]): string {
  return (orderOf(key, nodes)[0] as StorageNode).nodeId;
}

test('storage nodes: each comes first for a share of the keys in proportion to its pool', (t) => {
  for (const { nodeId, poolBytes } of NODES) {
    const count = KEYS.filter((key) => firstOf(key, NODES) === nodeId).length;
    const expected = (KEYS.length * poolBytes) / (6 * GIB);
    t.true(Math.abs(count - expected) < 150, `${nodeId}: ${count} keys, ${expected} expected`);
  }
});

test('storage nodes: the order does not depend on how nodes are listed, and has all of them', (t) => {
  for (const key of KEYS.slice(0, 200)) {
    const order = orderOf(key, NODES);
    t.deepEqual(orderOf(key, [...NODES].reverse()), order);
    t.is(new Set(order).size, NODES.length);
  }
});

test('storage nodes: one that goes moves only its own keys, and each of them to the next in its order', (t) => {
  const left = NODES.filter(({ nodeId }) => nodeId !== 'large');
  for (const key of KEYS.slice(0, 1_000)) {
    const order = orderOf(key, NODES).map(({ nodeId }) => nodeId);
    t.is(firstOf(key, left), (order[0] === 'large' ? order[1] : order[0]) as string, key);
  }
});
