import { ArgumentError } from '../base/errors.js';
import { regionOf } from '../memory/address-space.js';
import type { HostRegion } from '../memory/host-region.js';

/** The region that a pool of `capacity` bytes from `baseAddr` on lies in, and where in it. Throws `ArgumentError` for what can be no pool. */
export function poolRegion(
  baseAddr: bigint,
  capacity: number,
): { readonly region: HostRegion; readonly regionOffset: number } {
  if (typeof baseAddr !== 'bigint' || !Number.isSafeInteger(capacity)) {
    throw new ArgumentError(
      `pool: needs an address (bigint) and a number of bytes, got ${typeof baseAddr}, ${capacity}`,
    );
  }
  const region = regionOf(Number(baseAddr), capacity);
  if (region === null) {
    throw new ArgumentError(
      `pool: ${capacity} bytes from address ${baseAddr} on are not within a live HostRegion; allocate or wrap one first`,
    );
  }
  const regionOffset = Number(baseAddr - region.addr);
  if (regionOffset % region.segmentBytes !== 0 && region.segmentBytes < region.length) {
    throw new ArgumentError(`pool: starts ${regionOffset} bytes into a region of several segments; start it at one`);
  }
  return { region, regionOffset };
}
