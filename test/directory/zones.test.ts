import test from 'ava';
import { DIRECTORY_CHOICE_MAX_COUNT, DIRECTORY_NEAREST_MAX_COUNT } from '../../src/base/limits.js';
import { ConsistentHashRing } from '../../src/core/index.js';
import { DirectoryClient } from '../../src/directory/client.js';
import { LocationColumns } from '../../src/directory/messages/location-columns.js';
import { Taken } from '../../src/directory/messages/taken.js';
import { ownersAndNext } from '../../src/directory/owners/owners.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { type Distances, OTHER_ZONE, SAME_HOST, SAME_ZONE } from '../../src/net/distance.js';
import { ManualClock } from '../_support/clock.js';
import { getOne, locationOf, putOne, startNodes } from '../_support/directory/locations.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';

/** Distances by the first letter of a node's name. */
function farBy(names: { readonly host?: string; readonly zone?: string }): Distances {
  return (nodeId) => {
    if (names.host?.includes(nodeId.charAt(0))) return SAME_HOST;
    return names.zone?.includes(nodeId.charAt(0)) ? SAME_ZONE : OTHER_ZONE;
  };
}

function shardFor(asker: string, distances: Distances): DirectoryShard {
  return new DirectoryShard({ distancesFrom: (nodeId) => (nodeId === asker ? distances : undefined) });
}

/** The nodes whose locations the asker gets, each once. */
function asked(shard: DirectoryShard, asker: string, avoided: readonly string[] = []): string {
  const got = Array.from({ length: 40 }, () => shard.get(['key'], asker, avoided).locationAt(0)?.nodeId);
  return [...new Set(got)].sort().join(' ');
}

test('zones: a reader gets the nearest location, those of equally near nodes in turn, and others as ever', (t) => {
  const shard = shardFor('reader', farBy({ host: 'h', zone: 'z' }));
  for (const nodeId of ['o1', 'z1', 'h1', 'o2', 'z2', 'h2']) putOne(shard, 'key', { nodeId });
  t.is(asked(shard, 'reader'), 'h1 h2');
  t.is(asked(shard, 'reader', ['h1']), 'h2');
  t.is(asked(shard, 'reader', ['h1', 'h2']), 'z1 z2');
  t.is(asked(shard, 'reader', ['h1', 'h2', 'z1', 'z2']), 'o1 o2');
  t.is(asked(shard, 'other'), 'h1 h2 o1 o2 z1 z2');
});

test('zones: a page in memory is preferred to a nearer one on disk', (t) => {
  const shard = shardFor('reader', farBy({ zone: 'z' }));
  putOne(shard, 'key', { nodeId: 'z1', tier: 'disk' });
  putOne(shard, 'key', { nodeId: 'z2', tier: 'disk' });
  putOne(shard, 'key', { nodeId: 'o1', tier: 'disk' });
  t.is(asked(shard, 'reader'), 'z1 z2');
  putOne(shard, 'key', { nodeId: 'o2' });
  t.is(asked(shard, 'reader'), 'o2');
});

test('zones: the nearest of many locations is looked for among a limited number', (t) => {
  const shard = shardFor('reader', farBy({ zone: 'z' }));
  for (let i = 1; i < DIRECTORY_NEAREST_MAX_COUNT; i++) putOne(shard, 'key', { nodeId: `o${i}` });
  putOne(shard, 'key', { nodeId: 'z1' });
  t.is(asked(shard, 'reader'), 'z1');
  const full = shardFor('reader', farBy({ zone: 'z' }));
  for (let i = 0; i < DIRECTORY_NEAREST_MAX_COUNT; i++) putOne(full, 'key', { nodeId: `o${i}` });
  putOne(full, 'key', { nodeId: 'z1' });
  t.false(asked(full, 'reader').includes('z1'));
  const near = shardFor('reader', farBy({ host: 'h' }));
  for (let i = 0; i < 2 * DIRECTORY_CHOICE_MAX_COUNT; i++) putOne(near, 'key', { nodeId: `h${i}` });
  t.is(asked(near, 'reader').split(' ').length, DIRECTORY_CHOICE_MAX_COUNT);
});

test('zones: of the owners of a key the nearest is asked first, but for a while after owners have changed', async (t) => {
  const clock = new ManualClock();
  const { nodes, ring, resolve } = await startNodes(t, ['a1', 'a2', 'b1', 'b2']);
  ring.setNodes(ring.nodes, new Map(ring.nodes.map((nodeId) => [nodeId, nodeId.charAt(0)])));
  const former = new ConsistentHashRing();
  former.setNodes(ring.nodes);
  const env = testEnvironment({ clock });
  const distances = () => farBy({ zone: 'b' });
  const client = new DirectoryClient(former, resolve, 2, { rpc: newClient(t), env, formerRingMs: 1000, distances });
  client.setRing(ring);
  const keys = Array.from({ length: 100 }, (_, i) => `key-${i}`);
  for (const { shard, nodeId } of nodes.values()) {
    for (const [i, key] of keys.entries()) putOne(shard, key, { nodeId, rkey: i });
  }
  // Each owner answers with its own location.
  const answeredBy = async () => (await client.get(keys)).map((location) => location?.nodeId);
  t.deepEqual(
    await answeredBy(),
    keys.map((key) => ring.getNode(key)),
  );
  clock.advance(1000);
  const near = keys.map((key) => ring.getNodes(key, 2).find((nodeId) => nodeId.startsWith('b')));
  t.deepEqual(await answeredBy(), near);
  t.deepEqual(
    Array.from(client.firstOwners(keys), (owner) => ring.nodes[owner]),
    near,
  );
  for (const nodeId of ['b1', 'b2']) nodes.get(nodeId)?.shard.clear();
  t.true(
    (await answeredBy()).every((nodeId) => nodeId?.startsWith('a')),
    'then the other owner is asked',
  );
});

test('zones: owners from before a join are found clockwise, whatever the zones are', (t) => {
  const nodeIds = Array.from({ length: 8 }, (_, i) => `n${i}`);
  const ring = new ConsistentHashRing();
  ring.setNodes(nodeIds, new Map(nodeIds.map((nodeId, i) => [nodeId, `${i % 4}`])));
  const keys = Array.from({ length: 200 }, (_, i) => `key-${i}`);
  const rows = ownersAndNext(ring, keys, 2, 4);
  for (const [i, key] of keys.entries()) {
    const row = Array.from(rows.subarray(6 * i, 6 * i + 6), (node) => ring.nodes[node]).filter(
      (id) => id !== undefined,
    );
    t.deepEqual(row.slice(0, 2), ring.getNodes(key, 2));
    const next = Array.from(ring.getNextNodesBatch([key], 4), (node) => ring.nodes[node]);
    t.is(new Set(row).size, row.length);
    t.deepEqual(new Set(row), new Set([...ring.getNodes(key, 2), ...next]));
  }
  ring.setNodes(nodeIds);
  t.deepEqual(
    Array.from(ownersAndNext(ring, keys, 2, 4)).filter((node) => node !== 0xffffffff),
    Array.from(ring.getNodesBatch(keys, 4)),
  );
});

test('zones: a statement by others is told to owners from before joins, too', async (t) => {
  const { nodes, ring, resolve } = await startNodes(t, ['a1', 'a2', 'a3', 'b1', 'b2', 'c1']);
  ring.setNodes(ring.nodes, new Map(ring.nodes.map((nodeId) => [nodeId, nodeId.charAt(0)])));
  const client = new DirectoryClient(ring, resolve, 2, { nodeId: 'a1', rpc: newClient(t), env: testEnvironment() });
  const keys = Array.from({ length: 50 }, (_, i) => `key-${i}`);
  const columns = LocationColumns.of(keys.map(() => locationOf({ nodeId: 'a1', generation: 0, version: 1 })));
  const codes = await client.state(keys, columns, { byOthers: true });
  t.true(codes.every((code) => code === Taken.taken));
  for (const key of keys) {
    const next = Array.from(ring.getNextNodesBatch([key], 4), (node) => ring.nodes[node] as string);
    for (const nodeId of [...ring.getNodes(key, 2), ...next]) {
      t.not(getOne(nodes.get(nodeId)?.shard as DirectoryShard, key), null, `${key} ${nodeId}`);
    }
  }
});
