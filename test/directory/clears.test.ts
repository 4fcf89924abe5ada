import test from 'ava';
import { CLEAR_MAX_PREFIXES, CLEARED_ORIGINS_MAX_COUNT } from '../../src/base/limits.js';
import { Taken } from '../../src/directory/messages/taken.js';
import type { Displaced } from '../../src/directory/shard/displaced.js';
import { type Clear, KnownClears, UNDATED_VERSION } from '../../src/directory/shard/known-clears.js';
import { originOf } from '../../src/directory/shard/removals.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import type { DataLocationInit } from '../../src/types.js';
import { columnsOf, getOne, locationOf } from '../_support/directory/locations.js';

const [A, B] = [originOf('a'), originOf('b')];

function clearOf(origin: number, voidBelow: number, prefixes?: readonly string[]): Clear {
  return { origin, voidBelow, prefixes };
}

function knownOf(...clears: readonly Clear[]): KnownClears {
  const known = new KnownClears();
  for (const clear of clears) known.note(clear);
  return known;
}

test('clears: a node is named by a number that is never 0', (t) => {
  const origins = Array.from({ length: 1_000 }, (_, i) => originOf(`node-${i}`));
  t.true(origins.every((origin) => origin > 0 && origin < 2 ** 32 && Number.isInteger(origin)));
  t.is(new Set(origins).size, origins.length);
  t.is(originOf('node-1'), originOf('node-1'));
});

test('clears: copies of what one node has set before are void, by their keys', (t) => {
  const known = knownOf(clearOf(A, 10, ['x/', 'y/']), clearOf(B, 20));
  t.deepEqual(
    [known.isVoid('x/k', 9, A), known.isVoid('y/k', 9, A), known.isVoid('z/k', 9, A), known.isVoid('x/k', 10, A)],
    [true, true, false, false],
  );
  t.deepEqual([known.isVoid('z', 19, B), known.isVoid('z', 20, B), known.isVoid('z', 19, 0)], [true, false, false]);
  t.false(known.isVoid('z', UNDATED_VERSION, B), 'nobody knows when it was set');
  t.deepEqual(
    [known.note(clearOf(A, 10, ['x/'])), known.note(clearOf(B, 15)), known.note(clearOf(B, 21))],
    [false, false, true],
  );
  known.verify();
  known.clear();
  t.true(known.isEmpty);
  t.false(known.isVoid('z', 19, B));
});

test('clears: of too many, the earliest are joined to wider ones, and none is forgotten', (t) => {
  const known = new KnownClears();
  for (let i = 0; i <= CLEAR_MAX_PREFIXES; i++) known.note(clearOf(i < 2 ? A : B, 10 + i, [`${i}/`]));
  known.verify();
  t.deepEqual([known.isVoid('other', 9, A), known.isVoid('other', 10, A)], [true, false], 'for all keys');
  t.deepEqual([known.isVoid('1/k', 10, A), known.isVoid('2/k', 11, B)], [true, true]);
  t.false(known.isVoid('other', 9, B));
  for (let i = 0; i <= CLEARED_ORIGINS_MAX_COUNT; i++) known.note(clearOf(1_000 + i, 1_000 + i));
  known.verify();
  t.true(known.isVoid('k', 999, 7), 'a copy of any node');
  t.false(known.isVoid('k', 1_001, 7));
  t.true(known.isVoid('k', 1_000 + CLEARED_ORIGINS_MAX_COUNT - 1, 1_000 + CLEARED_ORIGINS_MAX_COUNT));
});

test('clears: a node that clears the same prefix again and again takes the place of one', (t) => {
  const known = new KnownClears();
  for (let i = 0; i < 2 * CLEAR_MAX_PREFIXES; i++) known.note(clearOf(A, 10 + i, ['x/']));
  t.deepEqual([...known], [clearOf(A, 9 + 2 * CLEAR_MAX_PREFIXES, ['x/'])]);
  t.false(known.note(clearOf(A, 10, ['x/'])));
  t.false(known.isVoid('y/k', 9, A));
  known.verify();
});

test('clears: who is told all that another one knows calls the same copies void', (t) => {
  const known = new KnownClears();
  for (let i = 0; i < 3 * CLEAR_MAX_PREFIXES; i++)
    known.note(clearOf(1 + (i % 7), 10 + 3 * i, i % 4 === 0 ? undefined : [`${i % 5}/`]));
  for (let i = 0; i <= CLEARED_ORIGINS_MAX_COUNT; i++) known.note(clearOf(1_000 + i, 5));
  const other = knownOf(...known);
  other.verify();
  t.deepEqual([...other], [...known]);
  for (let i = 0; i < 500; i++) {
    const asked = [`${i % 5}/k`, 3 * i, 1 + (i % 8)] as const;
    t.is(other.isVoid(...asked), known.isVoid(...asked), asked.join(' '));
  }
});

function shardOf() {
  const displaced: Displaced[] = [];
  const clears = new KnownClears();
  const shard = new DirectoryShard({ clears });
  shard.displaced.listen((each) => displaced.push(each));
  const put = (init: Partial<DataLocationInit>, unlessHeld = false) =>
    shard.put(['k'], columnsOf(locationOf(init)), { unlessHeld })[0];
  return { clears, shard, displaced, put };
}

test('clears: a shard neither hands out nor takes copies of what is cleared', (t) => {
  const { clears, shard, put } = shardOf();
  t.is(put({ nodeId: 'c', version: 5, setBy: A }), Taken.taken);
  t.is(put({ nodeId: 'd', version: 6, setBy: B }), Taken.taken);
  clears.note(clearOf(A, 10));
  t.deepEqual([getOne(shard, 'k')?.nodeId, getOne(shard, 'k')?.nodeId], ['d', 'd']);
  t.is(put({ nodeId: 'e', version: 9, setBy: A }), Taken.outdated);
  t.is(put({ nodeId: 'e', version: 9, setBy: B }), Taken.taken, 'of another node');
  t.is(put({ nodeId: 'f', version: 9 }), Taken.taken, 'its own');
  t.is(put({ nodeId: 'g', version: 10, setBy: A }), Taken.taken, 'set since');
  clears.note(clearOf(B, 10));
  t.is(put({ nodeId: 'c', version: 5, setBy: A, generation: 2 }), Taken.outdated);
  shard.verify();
  for (const nodeId of ['f', 'g']) shard.dropNode(nodeId);
  t.is(getOne(shard, 'k'), null);
  t.deepEqual([...shard.exists(['k'])], [0]);
});

test('clears: a page is not held by a copy of what is cleared', (t) => {
  const { clears, put } = shardOf();
  put({ nodeId: 'c', version: 5, setBy: A });
  t.is(put({ nodeId: 'd', version: 11 }, true), Taken.held);
  clears.note(clearOf(A, 10));
  t.is(put({ nodeId: 'd', version: 11 }, true), Taken.taken);
});

test('clears: undated copies go when their node clears, and are taken again', (t) => {
  const { shard, displaced, put } = shardOf();
  const undated = { nodeId: 'c', version: UNDATED_VERSION, setBy: A };
  put(undated);
  put({ nodeId: 'd', version: UNDATED_VERSION, setBy: B });
  put({ nodeId: 'e', version: 5, setBy: A });
  for (const _ of shard.voidLocations.dropUndated([clearOf(A, 10, ['other'])], 1)) t.pass();
  t.deepEqual(displaced, []);
  for (const _ of shard.voidLocations.dropUndated([clearOf(A, 10, ['k'])], 1)) t.pass();
  t.deepEqual(displaced, [{ nodeId: 'c', key: 'k', voidBelow: UNDATED_VERSION + 1 }]);
  t.is(shard.stats().locations, 2);
  t.is(put({ ...undated, generation: 2 }), Taken.taken);
  shard.verify();
});
