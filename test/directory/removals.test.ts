import test from 'ava';
import { PartitionSet, partitionsOf } from '../../src/core/ring/partitions.js';
import { NoteColumns } from '../../src/directory/messages/note-columns.js';
import { Taken } from '../../src/directory/messages/taken.js';
import type { Displaced } from '../../src/directory/shard/displaced.js';
import { digestOf, type NoteVisitor, Removals } from '../../src/directory/shard/removals.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { columnsOf, getOne, locationOf } from '../_support/directory/locations.js';

test('removals: are bounded, the oldest are forgotten first', (t) => {
  const removals = new Removals(100);
  for (let i = 0; i < 1000; i++) removals.note(`k${i}`, 5);
  t.is(removals.versionOf('k999'), 5);
  t.is(removals.versionOf('k900'), 5);
  t.is(removals.versionOf('k0'), 0);
  removals.note('k999', 3);
  t.is(removals.versionOf('k999'), 5, 'never lower');
  removals.clear();
  t.is(removals.versionOf('k999'), 0);
});

/** What is noted of keys of these partitions. */
function notesIn(noted: { eachNote(visit: NoteVisitor): Iterable<void> }, wanted: PartitionSet): NoteColumns {
  const notes = new NoteColumns();
  const visit: NoteVisitor = (digest, version, partition) => {
    if (wanted.has(partition)) notes.add(digest, version, partition);
  };
  for (const _ of noted.eachNote(visit));
  return notes;
}

/** The keys among these that are noted, with their versions. */
function notedOf(removals: Removals, keys: readonly string[], wanted = partitionSetOf(keys)): [string, number][] {
  const { count, digests, versions } = notesIn(removals, wanted);
  const newest = new Map<number, number>();
  for (let i = 0; i < count; i++) {
    const digest = digests[i] as number;
    newest.set(digest, Math.max(newest.get(digest) ?? 0, versions[i] as number));
  }
  return keys.flatMap((key): [string, number][] => {
    const version = newest.get(digestOf(key));
    return version === undefined ? [] : [[key, version]];
  });
}

function partitionSetOf(keys: readonly string[]): PartitionSet {
  const set = new PartitionSet();
  for (const partition of partitionsOf(keys)) set.add(partition);
  return set;
}

test('removals: what is noted of some partitions can be handed over, each key with its newest version', (t) => {
  const removals = new Removals(3, { keepsPartitions: true });
  const keys = ['a', 'b', 'c', 'd'];
  removals.note('a', 1);
  removals.note('b', 2);
  removals.turn();
  removals.note('a', 3);
  removals.note('c', 4);
  removals.note('c', 2);
  const of = (...some: string[]): [string, number][] => notedOf(removals, keys, partitionSetOf(some));
  t.deepEqual(of(...keys), [
    ['a', 3],
    ['b', 2],
    ['c', 4],
  ]);
  t.deepEqual(of('c'), [['c', 4]]);
  t.deepEqual(of(), []);
  removals.turn();
  t.deepEqual(
    of(...keys).map(([key]) => key),
    ['a', 'c'],
    'the oldest are forgotten',
  );
  const notes = notesIn(removals, partitionSetOf(keys));
  const other = new Removals(100, { keepsPartitions: true });
  other.note('c', 9);
  t.is(other.take(NoteColumns.decode(notes.fields())), 1, 'the other one was known');
  t.deepEqual(notedOf(other, keys), [
    ['a', 3],
    ['c', 9],
  ]);
  t.deepEqual(notedOf(other, keys, partitionSetOf(['a'])), [['a', 3]], 'and can be handed on');
  other.verify();
});

test('removals: of thousands of keys each keeps its partition', (t) => {
  const removals = new Removals(10_000, { keepsPartitions: true });
  const keys = Array.from({ length: 5_000 }, (_, i) => `key-${i}`);
  for (const [i, key] of keys.entries()) removals.note(key, i + 1);
  const some = keys.filter((_, i) => i % 7 === 0);
  const wanted = partitionSetOf(some);
  const inWanted = keys.filter((_, i) => wanted.has(partitionsOf([keys[i] as string])[0] as number));
  t.deepEqual(
    notedOf(removals, keys, wanted).map(([key]) => key),
    inWanted,
  );
  t.true(inWanted.length < 2 * some.length);
});

/** What a shard hands over that was told to delete these keys. */
function notesOf(...deleted: [key: string, version: number][]): NoteColumns {
  const shard = new DirectoryShard();
  for (const [key, version] of deleted) shard.removeAll([key], version);
  return notesIn(shard, partitionSetOf(deleted.map(([key]) => key)));
}

test('notes: what another shard has noted is refused, and handed out no more, at once', (t) => {
  const displaced: Displaced[] = [];
  let called = 0;
  const shard = new DirectoryShard();
  shard.displaced.listen((each) => displaced.push(each));
  shard.noted.listen(() => called++);
  const put = (key: string, version: number, nodeId = 'a') =>
    shard.put([key], columnsOf(locationOf({ nodeId, version, generation: version, kind: 'named' })))[0];
  t.is(put('k', 5), Taken.taken);
  t.is(put('new', 50), Taken.taken);
  t.is(put('other', 5), Taken.taken);
  shard.takeNotes(notesOf(['k', 9], ['new', 9]));
  t.is(called, 1);
  t.deepEqual([getOne(shard, 'k'), shard.exists(['k'])[0]], [null, 0]);
  t.deepEqual(
    ['new', 'other'].map((key) => getOne(shard, key)?.version),
    [50, 5],
  );
  t.is(put('k', 8, 'b'), Taken.outdated);
  shard.verify();
  t.deepEqual([...shard.voidLocations.dropNoted(1)].length, 3);
  t.deepEqual(displaced, [{ nodeId: 'a', key: 'k', voidBelow: 9 }]);
  t.is(shard.stats().keys, 2);
  t.deepEqual([...shard.voidLocations.dropNoted(1)], [], 'once');
  t.is(put('k', 9, 'b'), Taken.taken, 'what was set with the version is good');
  shard.verify();
});

test('notes: while a walk is on, what is taken is looked for once more', (t) => {
  const displaced: string[] = [];
  const shard = new DirectoryShard();
  shard.displaced.listen(({ key }) => displaced.push(key));
  const keys = Array.from({ length: 10 }, (_, i) => `k${i}`);
  for (const key of keys) shard.put([key], columnsOf(locationOf({ version: 5, kind: 'named' })));
  shard.takeNotes(notesOf(['k9', 9]));
  const walk = shard.voidLocations.dropNoted(1);
  for (let i = 0; i < 5; i++) walk.next();
  shard.takeNotes(notesOf(['k0', 9]));
  t.is(getOne(shard, 'k0'), null);
  for (const _ of walk);
  t.deepEqual(displaced, ['k9', 'k0']);
  shard.verify();
});

test('notes: those that are known already cost no walk, and those that are too far ahead are not taken', (t) => {
  let called = 0;
  const versions = { now: () => 100, isAhead: (version: number) => version > 1_000, see: () => {} };
  const shard = new DirectoryShard({ versions });
  shard.noted.listen(() => called++);
  t.false(shard.hasNotes);
  shard.takeNotes(notesOf(['k', 2_000]));
  t.deepEqual([shard.hasNotes, shard.newestVersion, called], [false, 0, 0]);
  shard.removeAll(['k'], 9);
  shard.takeNotes(notesOf(['k', 9]));
  t.is(called, 0);
  shard.takeNotes(notesOf(['k', 10]));
  t.deepEqual([called, shard.newestVersion], [1, 10]);
});

test('removals: what was taken from others and is forgotten makes no page uncertain, what was noted here does', (t) => {
  // Cause: a node that had just joined forgot some of what it was handed over, and refused pages of all others for that.
  const removals = new Removals(100, { keepsPartitions: true });
  const notes = new NoteColumns();
  for (let i = 0; i < 1000; i++) notes.add(digestOf(`k${i}`), 1_000 + i, i);
  t.is(removals.take(notes), 1000);
  t.is(removals.versionOf('k0'), 0);
  t.false(removals.hasForgotten);
  // It is told of this one itself as well.
  removals.note('k999', 1_999);
  for (let i = 0; i < 300; i++) removals.note(`own ${i}`, 5);
  t.true(removals.hasForgotten);
  t.is(removals.forgottenAfter(Number.NEGATIVE_INFINITY), 1_999);
  removals.verify();
});
