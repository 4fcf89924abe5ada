import { laterExpiry } from '../../base/expiry.js';
import { type LocationColumns, NAMED } from '../messages/location-columns.js';
import type { LocationSlab } from './location-slab.js';

/**
 * Whether the location in `slot` and the one at position `i` of `locations`, both of one key, have conflicting
 * contents. A named entry has one content and one expiry; computed pages may differ in their bytes but not in their
 * length. A location without a version conflicts with none.
 */
export function conflicts(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): boolean {
  if (slab.versionOf(slot) === 0) return false;
  if (slab.lengthOf(slot) !== locations.length[i]) return true;
  if (!isEitherNamed(slab, slot, locations, i)) return false;
  return slab.checksumOf(slot) !== locations.checksum[i] || slab.expiresOf(slot) !== locations.expires[i];
}

export function isEitherNamed(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): boolean {
  return ((slab.flagsOf(slot) | (locations.flags[i] as number)) & NAMED) !== 0;
}

/**
 * The version below which pages are void once the location at position `i` replaces the one in `slot`. A computed page
 * does not make older computed pages void, because they are as good.
 */
export function replacedBelow(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): number {
  const version = locations.version[i] as number;
  const isNamed = ((locations.flags[i] as number) & NAMED) !== 0;
  return isNamed && slab.versionOf(slot) < version ? version : slab.versionOf(slot) + 1;
}

/** Whether the computed page in `slot` has the same length as another node's page, and does not expire earlier. */
export function isAsGood(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): boolean {
  if (slab.lengthOf(slot) !== locations.length[i]) return false;
  const expires = slab.expiresOf(slot);
  return laterExpiry(expires, locations.expires[i] as number) === expires;
}

/**
 * Whether a node announces an older page than the named one in `slot`, which it announced before. After a crash its
 * disk may not have the newer one.
 */
export function isOutlived(slab: LocationSlab, slot: number, locations: LocationColumns, i: number): boolean {
  const isNamed = (slab.flagsOf(slot) & NAMED) !== 0;
  if (!isNamed || slab.versionOf(slot) <= (locations.version[i] as number)) return false;
  return ((locations.flags[i] as number) & NAMED) === 0 || conflicts(slab, slot, locations, i);
}
