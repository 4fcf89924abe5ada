import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { DIRECTORY_CHOICE_MAX_COUNT, DIRECTORY_LOCATIONS_PER_KEY_COUNT } from '../../src/base/limits.js';
import { Taken } from '../../src/directory/messages/taken.js';
import type { Displaced } from '../../src/directory/shard/displaced.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { systemRandom } from '../../src/system/system-random.js';
import type { DataLocationInit } from '../../src/types.js';
import { columnsOf, getOne, locationOf, putOne } from '../_support/directory/locations.js';

test('shard: what was put is found, field by field', (t) => {
  const shard = new DirectoryShard();
  const location = locationOf({ remoteAddr: 2n ** 64n - 1n, tier: 'disk', generation: 2 ** 40, length: 2 ** 33 });
  shard.put(['key'], columnsOf(location));
  t.deepEqual(getOne(shard, 'key'), location);
  t.is(getOne(shard, 'other'), null);
  t.deepEqual([...shard.exists(['other', 'key'])], [0, 1]);
});

test('shard: a newer statement of a node replaces its older one, never the other way round', (t) => {
  const shard = new DirectoryShard();
  t.true(putOne(shard, 'key', { generation: 5, rkey: 5 }));
  t.false(putOne(shard, 'key', { generation: 4, rkey: 4 }), 'and does not count as taken');
  t.is(getOne(shard, 'key')?.rkey, 5);
  t.true(putOne(shard, 'key', { generation: 6, rkey: 6 }));
  t.is(getOne(shard, 'key')?.rkey, 6);
  t.true(putOne(shard, 'key', { incarnation: 2, generation: 1, rkey: 7 }));
  t.is(getOne(shard, 'key')?.rkey, 7);
  t.false(putOne(shard, 'key', { incarnation: 1, generation: 100, rkey: 8 }));
  t.is(getOne(shard, 'key')?.rkey, 7);
  t.is(shard.stats().locations, 1);
});

test('shard: a late delete does not touch what was put after it', (t) => {
  const shard = new DirectoryShard();
  putOne(shard, 'key', { generation: 8 });
  shard.delete(['key'], { nodeId: 'n1', incarnation: 1, generation: 7 });
  t.is(getOne(shard, 'key')?.generation, 8);
  shard.delete(['key'], { nodeId: 'n1', incarnation: 1, generation: 8 });
  t.is(getOne(shard, 'key'), null);
  t.deepEqual(shard.stats(), { keys: 0, locations: 0, droppedLocations: 0, refusedKeys: 0 });
});

test('shard: a delete touches only the location of that node and that start of it', (t) => {
  const shard = new DirectoryShard();
  putOne(shard, 'key', { nodeId: 'n1', incarnation: 2 });
  putOne(shard, 'key', { nodeId: 'n2' });
  shard.delete(['key'], { nodeId: 'n1', incarnation: 1, generation: 100 });
  shard.delete(['key'], { nodeId: 'n3', incarnation: 1, generation: 100 });
  t.is(shard.stats().locations, 2);
  shard.delete(['key'], { nodeId: 'n2', incarnation: 1, generation: 100 });
  t.is(getOne(shard, 'key')?.nodeId, 'n1');
});

test('shard: readers are spread over all live locations', (t) => {
  const live = new Set(['n1', 'n2', 'n3']);
  const shard = new DirectoryShard({ isLive: (nodeId) => live.has(nodeId) });
  for (const nodeId of ['n1', 'n2', 'n3']) putOne(shard, 'key', { nodeId });
  const asked = (): (string | undefined)[] =>
    [...new Set(Array.from({ length: 12 }, () => getOne(shard, 'key')?.nodeId))].sort();
  t.deepEqual(asked(), ['n1', 'n2', 'n3']);
  live.delete('n2');
  t.deepEqual(asked(), ['n1', 'n3']);
  live.clear();
  t.deepEqual(asked(), [undefined]);
  t.deepEqual([...shard.exists(['key'])], [0]);
});

test('shard: the asker’s own location is handed out only when there is no other', (t) => {
  const shard = new DirectoryShard();
  putOne(shard, 'key', { nodeId: 'n1' });
  t.is(getOne(shard, 'key', 'n1')?.nodeId, 'n1');
  putOne(shard, 'key', { nodeId: 'n2' });
  for (let i = 0; i < 5; i++) t.is(getOne(shard, 'key', 'n1')?.nodeId, 'n2');
});

test('shard: locations that could not be read are handed out only when there are no others, the asker’s own last', (t) => {
  const shard = new DirectoryShard();
  for (const nodeId of ['n1', 'n2', 'n3', 'n4']) putOne(shard, 'key', { nodeId });
  const asked = (asker: string, avoided: string[]): (string | undefined)[] => {
    const found = Array.from({ length: 12 }, () => shard.get(['key'], asker, avoided).locationAt(0)?.nodeId);
    return [...new Set(found)].sort();
  };
  t.deepEqual(asked('', ['n1']), ['n2', 'n3', 'n4']);
  t.deepEqual(asked('n2', ['n1', 'n3']), ['n4']);
  t.deepEqual(asked('n2', ['n1', 'n3', 'n4']), ['n4']);
  t.deepEqual(asked('n2', []), ['n1', 'n3', 'n4']);
  shard.dropNodes(({ nodeId }) => nodeId === 'n2');
  t.deepEqual(asked('n2', ['n1']), ['n2']);
});

test('shard: a location in memory goes before one on disk, whoever stated it first', (t) => {
  const live = new Set(['n1', 'n2', 'n3', 'n4']);
  const shard = new DirectoryShard({ isLive: (nodeId) => live.has(nodeId) });
  putOne(shard, 'key', { nodeId: 'n1', tier: 'disk' });
  for (const nodeId of ['n2', 'n3']) putOne(shard, 'key', { nodeId });
  putOne(shard, 'key', { nodeId: 'n4', tier: 'disk' });
  const asked = (avoiding = ''): (string | undefined)[] =>
    [...new Set(Array.from({ length: 12 }, () => getOne(shard, 'key', avoiding)?.nodeId))].sort();
  t.deepEqual(asked(), ['n2', 'n3']);
  t.deepEqual(asked('n2'), ['n3']);
  live.delete('n2');
  live.delete('n3');
  t.deepEqual(asked(), ['n1', 'n4']);
  t.deepEqual(asked('n1'), ['n4']);
  putOne(shard, 'key', { nodeId: 'n1', generation: 9 });
  t.deepEqual(asked(), ['n1'], 'the page was promoted');
});

test('shard: what only a disk has that does not answer is not there, and is not void', (t) => {
  const hung = new Set<string>();
  const shard = new DirectoryShard({ isDiskHung: (nodeId) => hung.has(nodeId) });
  const put = (nodeId: string, init: Partial<DataLocationInit>) =>
    shard.put(['key'], columnsOf(locationOf({ nodeId, ...init })), { unlessHeld: true })[0];
  putOne(shard, 'key', { nodeId: 'n1', tier: 'disk', version: 7 });
  hung.add('n1');
  t.is(getOne(shard, 'key'), null);
  t.deepEqual([...shard.exists(['key'])], [0]);
  t.is(shard.newestOf(['key', 'none']), 7, 'a delete must be later than this page, too');
  t.is(put('n2', { version: 8 }), Taken.taken, 'it is nowhere else to be read');
  t.is(getOne(shard, 'key')?.nodeId, 'n2');
  t.is(put('n3', { version: 9 }), Taken.held);
  shard.dropNode('n2');
  t.is(getOne(shard, 'key'), null);
  hung.delete('n1');
  t.is(getOne(shard, 'key')?.nodeId, 'n1', 'the disk answers again');
  hung.add('n1');
  putOne(shard, 'key', { nodeId: 'n1', generation: 9 });
  t.is(getOne(shard, 'key')?.nodeId, 'n1', 'the page is in memory');
});

test('shard: liveness is that of the start which stated the location', (t) => {
  const shard = new DirectoryShard({ isLive: (_, incarnation) => incarnation === 2 });
  putOne(shard, 'key', { incarnation: 1 });
  t.is(getOne(shard, 'key'), null);
  putOne(shard, 'key', { incarnation: 2 });
  t.is(getOne(shard, 'key')?.incarnation, 2);
});

test('shard: after a clock was set back, the start that is a member counts, whatever its former start says late', (t) => {
  let live = 9;
  const shard = new DirectoryShard({ isLive: (_, incarnation) => incarnation === live });
  t.true(putOne(shard, 'told', { incarnation: 9, generation: 7 }));
  live = 3;
  shard.dropNode('n1', 9, 3);
  // What the former start has sent arrives only now, at a key with a page of the present start and at others.
  t.true(putOne(shard, 'told', { incarnation: 3, generation: 1 }));
  t.false(putOne(shard, 'told', { incarnation: 9, generation: 8 }));
  t.is(getOne(shard, 'told')?.incarnation, 3);
  t.true(putOne(shard, 'late', { incarnation: 9, generation: 8 }));
  t.true(putOne(shard, 'late', { incarnation: 3, generation: 2 }));
  t.is(getOne(shard, 'late')?.incarnation, 3);
  shard.verify();
});

test('shard: a new start that is no member here yet is not replaced by what its former start says late', (t) => {
  let live = 1;
  const shard = new DirectoryShard({ isLive: (_, incarnation) => incarnation === live });
  t.true(putOne(shard, 'key', { incarnation: 2, generation: 1 }));
  t.false(putOne(shard, 'key', { incarnation: 1, generation: 8 }));
  live = 2;
  shard.dropNode('n1', 1, 2);
  t.is(getOne(shard, 'key')?.incarnation, 2);
  t.true(putOne(shard, 'key', { incarnation: 3, generation: 1 }), 'the next one may be new as well');
});

test('shard: every node that holds a page is listed, and told of what becomes of it', (t) => {
  // Cause: of more than four holders one was forgotten, and read what had been set anew for as long as it had it.
  const displaced: Displaced[] = [];
  const shard = new DirectoryShard();
  shard.displaced.listen((each) => displaced.push(each));
  const others = Array.from({ length: 3 * DIRECTORY_CHOICE_MAX_COUNT }, (_, i) => `n${i}`);
  const told = (): string[] => displaced.splice(0).map(({ nodeId }) => nodeId);
  putOne(shard, 'named', { nodeId: 'own', version: 5, checksum: 1 });
  for (const nodeId of others) putOne(shard, 'named', { nodeId, version: 5, checksum: 1, setBy: 7 });
  putOne(shard, 'named', { nodeId: 'new', version: 6, checksum: 2, kind: 'named' });
  t.deepEqual(told(), ['own', ...others]);
  t.is(shard.stats().locations, 1);
  shard.verify();
});

test('shard: of many locations the first ones take turns, and the last one is handed out when those have gone', (t) => {
  const shard = new DirectoryShard();
  const nodeIds = Array.from({ length: 2 * DIRECTORY_CHOICE_MAX_COUNT }, (_, i) => `n${i}`);
  for (const nodeId of nodeIds) putOne(shard, 'key', { nodeId });
  const asked = () => [...new Set(nodeIds.map(() => getOne(shard, 'key')?.nodeId))].sort();
  t.deepEqual(asked(), nodeIds.slice(0, DIRECTORY_CHOICE_MAX_COUNT).sort());
  const last = nodeIds.pop();
  shard.dropNodes(({ nodeId }) => nodeId === last);
  t.deepEqual(asked(), [last]);
});

test('shard: further locations of a key are refused when there is no room, and counted', (t) => {
  const shard = new DirectoryShard({ maxKeys: 1 });
  for (let i = 0; i < DIRECTORY_LOCATIONS_PER_KEY_COUNT; i++) t.true(putOne(shard, 'key', { nodeId: `n${i}` }));
  t.false(putOne(shard, 'key', { nodeId: 'new' }));
  t.true(putOne(shard, 'key', { nodeId: 'n0', generation: 2 }), 'one that is there may be stated anew');
  t.is(shard.stats().refusedKeys, 1);
  shard.verify();
});

test('shard: new keys are refused when it is full, known ones are not', (t) => {
  const shard = new DirectoryShard({ maxKeys: 2 });
  t.deepEqual([...shard.put(['a', 'b', 'c'], columnsOf(locationOf(), locationOf(), locationOf()))], [1, 1, 0]);
  t.true(putOne(shard, 'a', { generation: 2 }));
  t.is(shard.stats().refusedKeys, 1);
  shard.delete(['b'], { nodeId: 'n1', incarnation: 1, generation: 10 });
  t.true(putOne(shard, 'c'));
});

test('shard: a dropped node is never handed out again, and its space comes back', (t) => {
  const shard = new DirectoryShard();
  for (let i = 0; i < 1000; i++) {
    putOne(shard, `k${i}`, { nodeId: 'gone' });
    if (i % 2 === 0) putOne(shard, `k${i}`, { nodeId: 'stays' });
  }
  shard.dropNode('gone', 1);
  t.is(getOne(shard, 'k0')?.nodeId, 'stays');
  t.is(getOne(shard, 'k1'), null);
  t.is(shard.stats().droppedLocations, 1000);
  t.true(shard.sweep(100));
  for (let i = 0; i < 20; i++) putOne(shard, 'k0', { nodeId: 'stays', generation: i + 2 });
  t.deepEqual(shard.stats(), { keys: 500, locations: 500, droppedLocations: 0, refusedKeys: 0 });
});

test('shard: dropping a start of a node leaves its newer one, and it may come back', (t) => {
  const shard = new DirectoryShard();
  putOne(shard, 'old', { incarnation: 1 });
  putOne(shard, 'new', { incarnation: 2 });
  shard.dropNode('n1', 1);
  t.is(getOne(shard, 'old'), null);
  t.is(getOne(shard, 'new')?.incarnation, 2);
  t.true(putOne(shard, 'old', { incarnation: 1, generation: 9 }));
  t.is(getOne(shard, 'old')?.generation, 9);
});

test('shard: clear forgets all locations, and not what is void', (t) => {
  const shard = new DirectoryShard();
  putOne(shard, 'key');
  shard.removeAll(['deleted'], 5);
  shard.dropNode('n1');
  shard.clear();
  t.false(putOne(shard, 'deleted', { version: 4 }));
  t.deepEqual(shard.stats(), { keys: 0, locations: 0, droppedLocations: 0, refusedKeys: 0 });
  putOne(shard, 'key');
  t.truthy(getOne(shard, 'key'));
});

interface Stated {
  incarnation: number;
  generation: number;
  rkey: number;
}

test('shard: agrees with a naive model over random operations', (t) => {
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const { u32 } = seededRandom(seed);
  const nodeIds = ['a', 'b', 'c'];
  const shard = new DirectoryShard();
  const model = new Map<string, Map<string, Stated>>();
  const key = (): string => `key-${u32() % 50}`;
  const node = (): string => nodeIds[u32() % nodeIds.length] as string;
  for (let step = 0; step < 40_000; step++) {
    const dice = u32() % 100;
    if (dice < 60) {
      const [k, nodeId] = [key(), node()];
      const stated = { incarnation: 1 + (u32() % 3), generation: 1 + (u32() % 40), rkey: step };
      const known = model.get(k)?.get(nodeId);
      const isOlder =
        known !== undefined && stated.incarnation === known.incarnation && stated.generation < known.generation;
      const isVoid = known !== undefined && stated.incarnation < known.incarnation;
      t.is(putOne(shard, k, { nodeId, ...stated }), !isVoid && !isOlder, `seed ${seed} step ${step}`);
      if (!isOlder && !isVoid) {
        if (!model.has(k)) model.set(k, new Map());
        model.get(k)?.set(nodeId, stated);
      }
    } else if (dice < 98) {
      const [k, nodeId, incarnation, generation] = [key(), node(), 1 + (u32() % 3), u32() % 45];
      shard.delete([k], { nodeId, incarnation, generation });
      const known = model.get(k)?.get(nodeId);
      if (known?.incarnation === incarnation && known.generation <= generation) model.get(k)?.delete(nodeId);
    } else {
      const [nodeId, incarnation] = [node(), 1 + (u32() % 3)];
      shard.dropNode(nodeId, incarnation);
      for (const stated of model.values()) {
        if ((stated.get(nodeId)?.incarnation ?? Number.POSITIVE_INFINITY) <= incarnation) stated.delete(nodeId);
      }
    }
    const k = key();
    const found = getOne(shard, k);
    const expected = model.get(k);
    if (found === null) t.is(expected?.size ?? 0, 0, `seed ${seed} step ${step}`);
    else t.is(expected?.get(found.nodeId)?.rkey, found.rkey, `seed ${seed} step ${step}`);
    if (step % 16 === 0) shard.verify();
  }
  shard.sweep(Number.POSITIVE_INFINITY);
  const locations = [...model.values()].reduce((sum, stated) => sum + stated.size, 0);
  const keys = [...model.values()].filter((stated) => stated.size > 0).length;
  t.deepEqual(shard.stats(), { keys, locations, droppedLocations: 0, refusedKeys: 0 }, `seed ${seed}`);
});

test('shard: what a node has renounced goes, what it has said since and what others have said stays', (t) => {
  const shard = new DirectoryShard();
  for (const key of ['old', 'both', 'new']) putOne(shard, key, { generation: 5 });
  putOne(shard, 'old', { nodeId: 'other', generation: 1 });
  putOne(shard, 'restarted', { incarnation: 2, generation: 1 });
  for (const key of ['both', 'new']) putOne(shard, key, { generation: 7 });
  shard.renounce('n1', 1, 5);
  for (const _ of shard.voidLocations.dropRenounced(2));
  t.is(getOne(shard, 'old')?.nodeId, 'other');
  t.is(getOne(shard, 'both')?.generation, 7);
  t.is(getOne(shard, 'restarted')?.incarnation, 2);
  t.is(shard.stats().locations, 4);
  // A late and older word counts until the node renounces it again.
  t.true(putOne(shard, 'late', { generation: 3 }));
  shard.renounce('n1', 1, 7);
  for (const _ of shard.voidLocations.dropRenounced(2));
  t.is(getOne(shard, 'late'), null);
  t.is(getOne(shard, 'new'), null);
});

test('shard: last words of a node that has gone are dropped at the second look, those of who joins are not', (t) => {
  const live = new Set<string>();
  const shard = new DirectoryShard({ isLive: (nodeId) => live.has(nodeId) });
  for (let i = 0; i < 100; i++) {
    putOne(shard, `dead ${i}`, { nodeId: 'dead' });
    putOne(shard, `joining ${i}`, { nodeId: 'joining' });
  }
  shard.dropStrangers();
  live.add('joining');
  shard.dropStrangers();
  while (shard.sweep(50));
  t.deepEqual(shard.stats(), { keys: 100, locations: 100, droppedLocations: 0, refusedKeys: 0 });
  t.is(getOne(shard, 'joining 5')?.nodeId, 'joining');
});

test('shard: the holder of an older content is told to drop what is older than the new one, and that only', (t) => {
  // Cause: the version of the new content was void, too; its holder could never copy that one again, not even when it
  // was handed over.
  const displaced: Displaced[] = [];
  const shard = new DirectoryShard();
  shard.displaced.listen((each) => displaced.push(each));
  putOne(shard, 'k', { nodeId: 'a', kind: 'named', version: 10, checksum: 1 });
  putOne(shard, 'k', { nodeId: 'b', kind: 'named', version: 20, checksum: 2 });
  t.deepEqual(displaced.splice(0), [{ nodeId: 'a', key: 'k', voidBelow: 20, isTie: false }]);
  // Two of one version: one of them goes, the same one everywhere.
  putOne(shard, 'k', { nodeId: 'c', kind: 'named', version: 20, checksum: 3 });
  t.deepEqual(displaced, [{ nodeId: 'b', key: 'k', voidBelow: 21, isTie: true }]);
  t.is(getOne(shard, 'k')?.nodeId, 'c');
});
