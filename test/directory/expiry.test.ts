import test from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { LocationColumns } from '../../src/directory/messages/location-columns.js';
import { Taken } from '../../src/directory/messages/taken.js';
import type { Displaced } from '../../src/directory/shard/displaced.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import type { DataLocationInit } from '../../src/types.js';
import { columnsOf, getOne, locationOf } from '../_support/directory/locations.js';

function setUp() {
  const time = { present: 1 };
  const displaced: Displaced[] = [];
  const seen: number[] = [];
  const shard = new DirectoryShard({
    versions: { now: () => time.present, isAhead: () => false, see: (version) => seen.push(version) },
  });
  shard.displaced.listen((each) => displaced.push(each));
  const put = (init: Partial<DataLocationInit>, unlessHeld = false, key = 'k') =>
    shard.put([key], columnsOf(locationOf(init)), { unlessHeld })[0];
  return { shard, put, time, displaced, seen };
}

const named = { kind: 'named', length: 10, checksum: 1 } as const;
const computed = { kind: 'computed', length: 10, checksum: 1 } as const;

test('directory expiry: a location travels with its expiry', (t) => {
  const expiries = [0, 5, 2 ** 50];
  const columns = columnsOf(...expiries.map((expires, i) => locationOf({ nodeId: `n${i}`, expires })));
  const read = LocationColumns.decode(columns.bytes, columns.nodesToWire());
  t.deepEqual([...read.expires], expiries);
  const picked = LocationColumns.concat([read.pick([2]), read.pick([1])]);
  t.deepEqual([picked.locationAt(0)?.expires, picked.locationAt(1)?.expires], [2 ** 50, 5]);
  // One that cannot be read does not spoil the others.
  for (const column of [read.expires, read.version]) {
    for (const wrong of [1.5, -1, 2 ** 53, Number.NaN]) {
      const before = column[1] as number;
      column[1] = wrong;
      const others = LocationColumns.decode(read.bytes, read.nodesToWire());
      t.deepEqual(
        [0, 1, 2].map((i) => others.locationAt(i)?.nodeId),
        ['n0', undefined, 'n2'],
      );
      column[1] = before;
    }
  }
  t.throws(() => columnsOf(locationOf({ expires: -1 })), { instanceOf: ArgumentError });
});

test('directory expiry: an expired location is not answered, and others of its key are', (t) => {
  const { shard, put, time, seen } = setUp();
  t.is(put({ ...computed, nodeId: 'a', version: 1, expires: 10 }), Taken.taken);
  t.is(put({ ...computed, nodeId: 'b', version: 2, expires: 20 }), Taken.taken);
  t.is(put({ ...computed, nodeId: 'c', version: 3 }, false, 'other'), Taken.taken);
  t.deepEqual(seen, [1, 2, 3], 'from these versions on the time of the pages passes');
  time.present = 9;
  t.deepEqual([getOne(shard, 'k')?.nodeId, getOne(shard, 'k')?.nodeId].sort(), ['a', 'b']);
  time.present = 10;
  for (let i = 0; i < 4; i++) t.is(getOne(shard, 'k')?.nodeId, 'b');
  time.present = 20;
  t.is(getOne(shard, 'k'), null);
  t.deepEqual([...shard.exists(['k', 'other'])], [0, 1]);
  shard.verify();
});

test('directory expiry: a slot that is used again has no expiry of the one before', (t) => {
  const { shard, put, time } = setUp();
  for (let i = 0; i < 300; i++)
    put({ ...computed, nodeId: 'a', version: 1, generation: 1, expires: 10 }, false, `k${i}`);
  const keys = Array.from({ length: 300 }, (_, i) => `k${i}`);
  shard.delete(keys, { nodeId: 'a', incarnation: 1, generation: 1 });
  for (const key of keys) put({ ...computed, nodeId: 'a', version: 2, generation: 2 }, false, key);
  time.present = 100;
  t.true(shard.exists(keys).every((flag) => flag === 1));
});

test('directory expiry: a newer named content wins over one that differs in its expiry alone', (t) => {
  const { shard, put, displaced } = setUp();
  t.is(put({ ...named, nodeId: 'a', version: 5 }), Taken.taken);
  t.is(put({ ...named, nodeId: 'b', version: 6, expires: 50 }), Taken.taken);
  t.deepEqual(displaced, [{ nodeId: 'a', key: 'k', voidBelow: 6, isTie: false }]);
  t.is(put({ ...named, nodeId: 'a', version: 5, generation: 2 }), Taken.outdated);
  t.is(
    put({ ...named, nodeId: 'c', version: 6, expires: 50, setBy: 7 }),
    Taken.taken,
    'a copy of it is the same content',
  );
  shard.verify();
});

test('directory expiry: an expired named content keeps older ones out, also when its node has removed it', (t) => {
  const { shard, put, time } = setUp();
  t.is(put({ ...named, nodeId: 'b', version: 6, expires: 50, generation: 1 }), Taken.taken);
  time.present = 50;
  t.is(put({ ...named, nodeId: 'a', version: 5, checksum: 2 }), Taken.outdated);
  shard.delete(['k'], { nodeId: 'b', incarnation: 1, generation: 1 });
  t.is(put({ ...named, nodeId: 'a', version: 5, checksum: 2, generation: 2 }), Taken.outdated);
  t.is(put({ ...named, nodeId: 'a', version: 7, checksum: 2, generation: 3 }), Taken.taken);
});

test('directory expiry: a computed page is held only where it does not expire earlier', (t) => {
  for (const [there, here, expected] of [
    [10, 10, Taken.held],
    [20, 10, Taken.held],
    [0, 10, Taken.held],
    [0, 0, Taken.held],
    [10, 20, Taken.taken],
    [10, 0, Taken.taken],
  ] as const) {
    const { put } = setUp();
    put({ ...computed, nodeId: 'a', version: 1, expires: there });
    t.is(put({ ...computed, nodeId: 'b', version: 2, expires: here }, true), expected, `${there} there, ${here} here`);
  }
});

test('directory: a page of a version far ahead is refused, and named; the others of its batch are taken', (t) => {
  const ahead: string[] = [];
  const seen: number[] = [];
  const versions = {
    now: () => 0,
    see: (version: number) => seen.push(version),
    isAhead: (version: number, expires: number) => version > 1_000 || expires > 2_000,
  };
  const shard = new DirectoryShard({ versions });
  shard.ahead.listen((nodeId) => ahead.push(nodeId));
  const locations = columnsOf(
    locationOf({ ...named, nodeId: 'a', version: 5 }),
    locationOf({ ...named, nodeId: 'b', version: 1_001 }),
    locationOf({ ...named, nodeId: 'c', version: 6, expires: 2_001 }),
    locationOf({ ...named, nodeId: 'd', version: 7 }),
  );
  t.deepEqual(
    [...shard.put(['1', '2', '3', '4'], locations)],
    [Taken.taken, Taken.refused, Taken.refused, Taken.taken],
  );
  t.deepEqual(ahead, ['b', 'c']);
  t.is(shard.newestVersion, 7);
  shard.removeAll(['1'], 1_001);
  t.is(getOne(shard, '1')?.nodeId, 'a', 'nor does it delete');
  t.is(shard.newestVersion, 7);
});
