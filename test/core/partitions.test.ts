import test from 'ava';
import { ConsistentHashRing, KeyBatch, NO_NODE } from '../../src/core/index.js';
import { PARTITIONS_COUNT, PartitionedRing, partitionsOf } from '../../src/core/ring/partitions.js';

const NODES = ['a', 'b', 'c', 'd', 'e'];
const KEYS = Array.from({ length: 3_000 }, (_, i) => `key ${i} ü`);

function ringOf(t: { teardown(fn: () => void): void }, nodes = NODES, zones?: ReadonlyMap<string, string>) {
  const ring = new PartitionedRing(64);
  ring.setNodes(nodes, zones);
  t.teardown(() => ring.free());
  return ring;
}

test('partitions: that of a key is the upper 16 bits of its XXH64', (t) => {
  // Part of the wire contract: XXH64 of 'a' is d24ec4f1a98c6e5b, that of no text ef46db3751d8e999.
  t.deepEqual([...partitionsOf(['a', ''])], [0xd24e, 0xef46]);
  const batch = KeyBatch.of(KEYS);
  t.deepEqual(partitionsOf(batch), partitionsOf(KEYS));
  t.deepEqual(partitionsOf(batch), partitionsOf(KEYS), 'its hashes were kept');
  t.is(partitionsOf([]).length, 0);
});

test('partitions: all keys of one have its owners, with zones and without, of a list and of a batch', (t) => {
  const zones = new Map([['a', 'x'], ['b', 'x'], ['c', 'y'], ['d', 'y'], ['e', 'y']]); // biome-ignore format: a table
  const partitions = partitionsOf(KEYS);
  for (const ring of [ringOf(t), ringOf(t, NODES, zones)]) {
    for (const n of [1, 2, 3, 7]) {
      const all = ring.ownersOfPartitions(n);
      t.is(all.length, PARTITIONS_COUNT * n);
      const owners = ring.getNodesBatch(KEYS, n);
      for (const [i, partition] of partitions.entries()) {
        const expected = all.subarray(partition * n, (partition + 1) * n);
        t.deepEqual(owners.subarray(i * n, (i + 1) * n), expected);
      }
      t.deepEqual(ring.getNodesBatch(KeyBatch.of(KEYS), n), owners);
      t.is(all[5] === NO_NODE, n === 7);
    }
    t.is(ring.getNode('a'), ring.getNodes('a', 2)[0]);
  }
});

test('partitions: few keys have other owners than on a ring of keys, and a batch is as good for both', (t) => {
  const [partitioned, plain] = [ringOf(t), new ConsistentHashRing(64)];
  t.teardown(() => plain.free());
  plain.setNodes(NODES);
  const batch = KeyBatch.of(KEYS);
  const [first, owners] = [partitioned.getNodesBatch(batch, 1), plain.getNodesBatch(batch, 1)];
  t.deepEqual(owners, plain.getNodesBatch(KEYS, 1));
  t.true(KEYS.filter((_, i) => first[i] !== owners[i]).length < KEYS.length / 100);
});

test('partitions: a node that comes takes about its share of them, from all others', (t) => {
  const [before, after] = [ringOf(t), ringOf(t, [...NODES, 'f'])];
  const [former, now] = [before.ownersOfPartitions(1), after.ownersOfPartitions(1)];
  const moved = [...now.keys()].filter((p) => after.nodes[now[p] as number] !== before.nodes[former[p] as number]);
  t.true(moved.every((p) => after.nodes[now[p] as number] === 'f'));
  t.true(moved.length > PARTITIONS_COUNT / 12 && moved.length < PARTITIONS_COUNT / 3, `${moved.length} moved`);
  const losers = moved.map((p) => before.nodes[former[p] as number] as string);
  t.deepEqual([...new Set(losers)].toSorted(), NODES);
});
