import { type LocationColumns, NAMED } from '../messages/location-columns.js';
import type { LocationSlab } from './location-slab.js';

/**
 * Whether the contents of a slot and of position `i` of `locations`, of one key, do not go together: of a named entry there is one; computed
 * ones may differ in their bytes, not in their length. Locations without versions go together with everything.
 */
export function conflicts(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): boolean {
  if (slab.versionOf(slot) === 0) return false;
  if (slab.lengthOf(slot) !== locations.length[i]) return true;
  return isEitherNamed(slab, slot, locations, i) && slab.checksumOf(slot) !== locations.checksum[i];
}

export function isEitherNamed(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): boolean {
  return ((slab.flagsOf(slot) | (locations.flags[i] as number)) & NAMED) !== 0;
}

/** Whether a node states what is older than a named page that it has stated before, in that slot: after a crash its disk may have no newer one. */
export function isOutlived(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): boolean {
  const isNamed = (slab.flagsOf(slot) & NAMED) !== 0;
  if (!isNamed || slab.versionOf(slot) <= (locations.version[i] as number)) return false;
  return ((locations.flags[i] as number) & NAMED) === 0 || conflicts(slab, slot, locations, i);
}
