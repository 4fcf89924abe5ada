import test from 'ava';
import { PartitionedRing, partitionsOf } from '../../src/core/ring/partitions.js';
import { gainedPartitions, type RingView } from '../../src/directory/gains.js';
import { pruneShard } from '../../src/directory/prune.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { systemClock } from '../../src/system/system-clock.js';
import { putOne } from '../_support/directory/locations.js';

const KEYS = Array.from({ length: 5000 }, (_, i) => `key-${i}`);

function viewOf(nodes: Record<string, number>): RingView & { ring: PartitionedRing } {
  const ring = new PartitionedRing(160);
  ring.setNodes(Object.keys(nodes));
  return { ring, incarnations: new Map(Object.entries(nodes)) };
}

/** The plain definition: owner by id and start, before and after. */
function naiveGained(before: ReturnType<typeof viewOf>, after: ReturnType<typeof viewOf>, replicas: number) {
  const gained = new Map<string, string[]>();
  for (const key of KEYS) {
    const old = before.ring.getNodes(key, replicas).map((id) => `${id} ${before.incarnations.get(id)}`);
    for (const id of after.ring.getNodes(key, replicas)) {
      if (old.includes(`${id} ${after.incarnations.get(id)}`)) continue;
      gained.set(id, [...(gained.get(id) ?? []), key]);
    }
  }
  return gained;
}

function gainedKeys(before: RingView | undefined, after: RingView, replicas: number, width = replicas) {
  const partitions = partitionsOf(KEYS);
  const gained = new Map<string, string[]>();
  for (const [id, some] of gainedPartitions(before, after, { replicas, width })) {
    const keys = KEYS.filter((_, i) => some.has(partitions[i] as number));
    if (keys.length > 0) gained.set(id, keys);
  }
  return gained;
}

function sorted(gained: Map<string, string[]>): [string, string[]][] {
  return [...gained].sort(([a], [b]) => (a < b ? -1 : 1));
}

test('gains: agrees with the plain definition for joins, leaves, restarts and all of them at once', (t) => {
  const before = viewOf({ a: 1, b: 1, c: 1, d: 1 });
  for (const nodes of [
    { a: 1, b: 1, c: 1, d: 1 },
    { a: 1, b: 1, c: 1, d: 1, e: 1 },
    { a: 1, b: 1, c: 1 },
    { a: 1, b: 2, c: 1, d: 1 },
    { b: 2, c: 1, e: 5 },
    {},
  ] as Record<string, number>[]) {
    const after = viewOf(nodes);
    for (const replicas of [1, 2, 3]) {
      t.deepEqual(sorted(gainedKeys(before, after, replicas)), sorted(naiveGained(before, after, replicas)));
    }
  }
});

test('gains: nothing is to be told when nothing has changed', (t) => {
  const view = viewOf({ a: 1, b: 1, c: 1 });
  t.is(gainedKeys(view, viewOf({ c: 1, a: 1, b: 1 }), 2).size, 0);
});

test('gains: a restarted node gains all that it owns', (t) => {
  const after = viewOf({ a: 1, b: 2, c: 1 });
  const gained = gainedKeys(viewOf({ a: 1, b: 1, c: 1 }), after, 2);
  t.deepEqual([...gained.keys()], ['b']);
  t.deepEqual(
    gained.get('b'),
    KEYS.filter((key) => after.ring.getNodes(key, 2).includes('b')),
  );
});

test('gains: nodes behind the owners are told when they join, and owners also when they were behind them', (t) => {
  const before = viewOf({ a: 1, b: 1, c: 1, d: 1, e: 1, f: 1 });
  const after = viewOf({ b: 1, c: 1, d: 1, e: 1, f: 1, g: 1 });
  const [replicas, width] = [2, 4];
  const told = gainedKeys(before, after, replicas, width);
  const expected = new Map<string, string[]>();
  for (const key of KEYS) {
    const [owners, wide] = [before.ring.getNodes(key, replicas), before.ring.getNodes(key, width)];
    after.ring.getNodes(key, width).forEach((id, i) => {
      if ((i < replicas ? owners : wide).includes(id)) return;
      expected.set(id, [...(expected.get(id) ?? []), key]);
    });
  }
  t.deepEqual(sorted(told), sorted(expected));
});

test('gains: where nobody owned anything every owner gains all that it owns', (t) => {
  const after = viewOf({ a: 1, b: 1, c: 1 });
  const all = sorted(gainedKeys(undefined, after, 2));
  t.deepEqual(all, sorted(gainedKeys(viewOf({}), after, 2)));
  t.is(all.flatMap(([, keys]) => keys).length, 2 * KEYS.length);
});

test('prune: forgets what the node does not own by the ring, and nothing else', async (t) => {
  const { ring } = viewOf({ a: 1, b: 1, c: 1, d: 1 });
  const shard = new DirectoryShard();
  for (const key of KEYS) putOne(shard, key);
  const forgotten = await pruneShard(shard, { ring: () => ring, nodeId: 'b', replicas: 2 }, systemClock);
  const owned = KEYS.filter((key) => ring.getNodes(key, 2).includes('b'));
  t.is(forgotten, KEYS.length - owned.length);
  t.is(shard.stats().keys, owned.length);
  t.true(shard.exists(owned).every((flag) => flag === 1));
  t.is(await pruneShard(shard, { ring: () => ring, nodeId: 'not there', replicas: 2 }, systemClock), 0);
});
