import type { HostRegion } from './host-region.js';

/**
 * The host addresses of this process (in a worker thread: of that thread), and which region has them.
 *
 *     0          2^47                                                   2^53
 *     | real pointers | region | guard | region | guard | ... never reused |
 *
 * Synthetic addresses lie above every real user-space pointer, so that both kinds can share the
 * table, and below 2^53, so that a number holds them exactly. A region starts at a multiple of
 * 2 MiB, at least 2 MiB after the end of the one before it: an address that runs off the end of one
 * region never lands in another. The addresses of a freed region stay dead.
 *
 * This registry is process-wide on purpose: an address must mean one thing in a process, whoever
 * hands it on. Like malloc's heap it holds every region until `HostRegion.free()`.
 */
const FIRST_ADDRESS = 2 ** 47;
const END_ADDRESS = 2 ** 53;
const ALIGNMENT_BYTES = 2 ** 21;

/** Live regions by address, and the address that the next one may have. */
const starts: number[] = [];
const regions: HostRegion[] = [];
let nextAddress = FIRST_ADDRESS;
let lastHit: HostRegion | null = null;

/** Takes an address range for `length` bytes out of circulation for good. Undefined when there is none left. */
export function reserveAddresses(length: number): number | undefined {
  const start = nextAddress;
  const end = Math.ceil((start + length) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES + ALIGNMENT_BYTES;
  if (end > END_ADDRESS) return undefined;
  nextAddress = end;
  return start;
}

/** Makes a region's addresses resolve to it. Only `HostRegion` calls this, once for each. */
export function addRegion(region: HostRegion): void {
  const at = firstAfter(region.start);
  starts.splice(at, 0, region.start);
  regions.splice(at, 0, region);
}

/** Makes a region's addresses dead. Only `HostRegion` calls this. */
export function removeRegion(region: HostRegion): void {
  const at = firstAfter(region.start) - 1;
  if (regions[at] !== region) return;
  starts.splice(at, 1);
  regions.splice(at, 1);
  if (lastHit === region) lastHit = null;
}

/** The live region that has all of `length` bytes (0 is allowed) from `addr` on; null when there is none. */
export function regionOf(addr: number, length: number): HostRegion | null {
  if (!(length >= 0)) return null;
  if (lastHit !== null && addr >= lastHit.start && addr + length <= lastHit.start + lastHit.length) return lastHit;
  const region = regions[firstAfter(addr) - 1];
  if (region === undefined || addr + length > region.start + region.length) return null;
  lastHit = region;
  return region;
}

/**
 * Views of `length` bytes from `addr` on, in order: one, or several where the range crosses a
 * boundary between segments. Null when they do not lie in one live region. The views are the
 * region's memory, not copies.
 */
export function resolve(addr: number, length: number): Uint8Array[] | null {
  const region = regionOf(addr, length);
  return region === null ? null : region.views(addr - region.start, length);
}

/** Index of the first region that starts after `addr`. */
function firstAfter(addr: number): number {
  let low = 0;
  let high = starts.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((starts[middle] as number) <= addr) low = middle + 1;
    else high = middle;
  }
  return low;
}
