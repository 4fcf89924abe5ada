import { assert } from '../../base/assert.js';
import { NAMED } from '../messages/location-columns.js';
import type { LocationLists } from './location-lists.js';
import { type LocationSlab, NO_SLOT } from './location-slab.js';
import type { VoidVersions } from './void-versions.js';

/** Throws `InvariantError` unless no location of the key is void, and all pairs of them are compatible. */
export function verifyLocations(key: string, lists: LocationLists, voids: VoidVersions): void {
  const { slab } = lists;
  const slots: number[] = [];
  for (let slot = lists.keys.get(key) ?? NO_SLOT; slot !== NO_SLOT; slot = slab.nextOf(slot)) slots.push(slot);
  for (const [i, slot] of slots.entries()) {
    const version = slab.versionOf(slot);
    const isVoid = !voids.isTaking && voids.isVoid(key, version);
    assert(version === 0 || !isVoid, () => `shard: ${JSON.stringify(key)} has the void version ${version}`);
    for (const other of slots.slice(0, i)) verifyPair(key, lists, slot, other);
  }
}

/**
 * Throws `InvariantError` if a start of a node has two locations, or if versioned locations of different nodes differ
 * in content.
 */
function verifyPair(key: string, lists: LocationLists, slot: number, other: number): void {
  const [a, b] = [lists.recordAt(lists.slab.nodeOf(slot)), lists.recordAt(lists.slab.nodeOf(other))];
  if (a.nodeId === b.nodeId) {
    assert(a.dropped || b.dropped, () => `shard: ${JSON.stringify(key)} has two locations of ${a.nodeId}`);
    return;
  }
  assert(
    isOneContent(lists.slab, slot, other),
    () => `shard: ${JSON.stringify(key)} has different contents of ${a.nodeId} and ${b.nodeId}`,
  );
}

/**
 * Whether two locations have one content: a named entry has exactly one, and one expiry; computed pages may differ in
 * bytes but not in length.
 */
function isOneContent(slab: LocationSlab, slot: number, other: number): boolean {
  if (slab.versionOf(slot) === 0 || slab.versionOf(other) === 0) return true;
  if (slab.lengthOf(slot) !== slab.lengthOf(other)) return false;
  const isNamed = ((slab.flagsOf(slot) | slab.flagsOf(other)) & NAMED) !== 0;
  if (!isNamed) return true;
  return slab.checksumOf(slot) === slab.checksumOf(other) && slab.expiresOf(slot) === slab.expiresOf(other);
}
