import type { ExecutionContext } from 'ava';
import { DirectoryClient } from '../../src/directory/client.js';
import { AntiEntropy } from '../../src/node/upkeep/anti-entropy.js';
import { columnsOf, getOne, locationOf, putOne, startNodes } from '../_support/directory/locations.js';
import { newClient } from '../_support/rpc/server.js';
import { simulated, type TestWorld } from '../_support/simulated.js';

const KEYS = Array.from({ length: 1000 }, (_, i) => `key-${i}`);

async function newCluster(t: ExecutionContext, world: TestWorld, roundMs: number) {
  const { environment: env, metrics } = world.process();
  const { nodes, ring, resolve } = await startNodes(t, ['n1', 'n2', 'n3'], { env });
  const local = nodes.get('n1')?.shard;
  if (local === undefined) throw new Error('no shard');
  const directory = new DirectoryClient(ring, resolve, 2, {
    nodeId: 'n1',
    incarnation: 1,
    rpc: newClient(t, env),
    localShard: local,
    env,
  });
  const here = new Set(KEYS);
  const publications = {
    keysInSlices: () => [[...here]],
    get isEmpty() {
      return here.size === 0;
    },
    drop: async () => {},
    voids: () => [],
    locationsOf: (keys: readonly string[]) =>
      keys.map((key) => (here.has(key) ? locationOf({ generation: 0, incarnation: 0 }) : null)),
  };
  const antiEntropy = new AntiEntropy({ directory, publications, replicas: 2, env, roundMs });
  t.teardown(() => antiEntropy.stop());
  const ownersOf = (key: string) => [...ring.getNodes(key, 2)].map((id) => nodes.get(id)?.shard);
  return { metrics, directory, antiEntropy, here, nodes, ownersOf };
}

simulated('anti-entropy: what owners have lost is stated again, what is gone is forgotten there', async (t, world) => {
  const { directory, antiEntropy, here, nodes, ownersOf } = await newCluster(t, world, 200);
  t.true(
    (await directory.put(new Map(KEYS.map((key) => [key, locationOf({ generation: 0, incarnation: 0 })])))).every(
      Boolean,
    ),
  );
  nodes.get('n2')?.shard.clear();
  // Its delete has never arrived, and neither has that of another node's page, which is none of this node's business.
  const gone = KEYS.slice(0, 100);
  for (const key of gone) here.delete(key);
  for (const { shard } of nodes.values()) putOne(shard, 'gone 0', { nodeId: 'other' });
  antiEntropy.start();
  await world.until(() =>
    KEYS.slice(100).every((key) => ownersOf(key).every((shard) => shard?.exists([key])[0] === 1)),
  );
  await world.until(() => {
    for (const { shard } of nodes.values()) for (const _ of shard.dropVoid(100));
    return gone.every((key) => ownersOf(key).every((shard) => shard?.exists([key])[0] === 0));
  });
  for (const { shard } of nodes.values()) t.not(getOne(shard, 'gone 0'), null);
  for (const key of KEYS.slice(100))
    t.true(
      ownersOf(key).every((shard) => shard?.exists([key])[0] === 1),
      key,
    );
});

simulated(
  'anti-entropy: an owner that has not taken everything is not told that the rest is void',
  async (t, world) => {
    const { directory, antiEntropy, nodes, metrics } = await newCluster(t, world, 100);
    await directory.put(new Map(KEYS.map((key) => [key, locationOf({ generation: 0, incarnation: 0 })])));
    const shard = nodes.get('n2')?.shard;
    if (shard === undefined) return t.fail();
    const kept = shard.stats().keys;
    // Newer statements, which no statement of this client gets past, and one old one.
    shard.put(KEYS, columnsOf(...KEYS.map(() => locationOf({ generation: 1e9 }))));
    putOne(shard, 'old', { generation: 1 });
    antiEntropy.start();
    const restated = () => metrics.value('meshcache_restated_keys_total');
    await world.until(() => restated() > 4 * KEYS.length);
    for (const _ of shard.dropVoid(100));
    t.not(getOne(shard, 'old'), null);
    t.true(shard.stats().keys >= kept);
  },
);

simulated('anti-entropy: its rate follows from the time of a round', async (t, world) => {
  const { antiEntropy, metrics } = await newCluster(t, world, 2_000);
  const restated = () => metrics.value('meshcache_restated_keys_total');
  antiEntropy.start();
  await world.until(() => restated() > 0);
  const startedMs = world.nowMs;
  const before = restated();
  await world.until(() => world.nowMs - startedMs > 1_500);
  const perSecond = ((restated() - before) / (world.nowMs - startedMs)) * 1000;
  // 1,000 keys of two owners each in two seconds, in batches of 256.
  t.true(perSecond > 400 && perSecond < 1_500, `${perSecond} keys/s`);
});

simulated('anti-entropy: an owner of nothing is told so once, and then left alone', async (t, world) => {
  const { directory, antiEntropy, here, nodes } = await newCluster(t, world, 50);
  here.clear();
  await directory.put(new Map([['gone', locationOf({ generation: 0, incarnation: 0 })]]));
  const told = [...nodes.keys()].filter((ownerId) => directory.mayKnow(ownerId));
  t.is(told.length, 2);
  const renounced: string[] = [];
  const renounce = directory.renounce.bind(directory);
  directory.renounce = (ownerId, generation) => {
    renounced.push(ownerId);
    return renounce(ownerId, generation);
  };
  antiEntropy.start();
  await world.until(() => renounced.length === 2);
  t.deepEqual(renounced.toSorted(), told.toSorted());
  await world.until(() => !told.some((ownerId) => directory.mayKnow(ownerId)));
  // What is stated again is renounced again.
  await directory.put(new Map([['gone', locationOf({ generation: 0, incarnation: 0 })]]));
  await world.until(() => renounced.length === 4);
  t.deepEqual(renounced.slice(2).toSorted(), told.toSorted());
});
