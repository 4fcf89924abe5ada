import { assert, assertAtMost } from '../base/assert.js';
import { DIRECTORY_LOCATIONS_MAX_COUNT } from '../base/limits.js';
import { COPY, NAMED } from './location-columns.js';
import type { LocationLists } from './location-lists.js';
import { NO_SLOT } from './location-slab.js';

/** Throws `InvariantError` unless the locations of a key are few, of different nodes, not void, and of one content. */
export function verifyLocations(
  key: string,
  lists: LocationLists,
  isVoid: (key: string, version: number, isCopy: boolean) => boolean,
): void {
  const { slab } = lists;
  const slots: number[] = [];
  for (let slot = lists.keys.get(key) ?? NO_SLOT; slot !== NO_SLOT; slot = slab.nextOf(slot)) slots.push(slot);
  assertAtMost(`shard: locations of ${JSON.stringify(key)}`, slots.length, DIRECTORY_LOCATIONS_MAX_COUNT);
  for (const [i, slot] of slots.entries()) {
    const version = slab.versionOf(slot);
    const isGone = version !== 0 && isVoid(key, version, (slab.flagsOf(slot) & COPY) !== 0);
    assert(!isGone, () => `shard: ${JSON.stringify(key)} has the void version ${version}`);
    for (const other of slots.slice(0, i)) verifyPair(key, lists, [slot, other]);
  }
}

function verifyPair(key: string, lists: LocationLists, [slot, other]: readonly [number, number]): void {
  const { slab } = lists;
  const [a, b] = [lists.recordAt(slab.nodeOf(slot)), lists.recordAt(slab.nodeOf(other))];
  if (a.nodeId === b.nodeId) {
    assert(a.dropped || b.dropped, () => `shard: ${JSON.stringify(key)} has two locations of ${a.nodeId}`);
    return;
  }
  if (slab.versionOf(slot) === 0 || slab.versionOf(other) === 0) return;
  const isNamed = ((slab.flagsOf(slot) | slab.flagsOf(other)) & NAMED) !== 0;
  const isSame =
    slab.lengthOf(slot) === slab.lengthOf(other) && (!isNamed || slab.checksumOf(slot) === slab.checksumOf(other));
  assert(isSame, () => `shard: ${JSON.stringify(key)} has different contents of ${a.nodeId} and ${b.nodeId}`);
}
