import type { HostRegion } from './host-region.js';
import { RegionTable } from './region-table.js';

/**
 * The host addresses of this process (in a worker thread: of that thread), and the regions they belong to.
 *
 *       0          2^47                                                   2^53
 *       | real pointers | region | guard | region | guard | ... never reused |
 *
 * With the native addon, every address is a real pointer. Without it, addresses are synthetic: above every real
 * user-space pointer and below 2^53, so that a number holds them exactly. A synthetic region starts at a multiple of 2
 * MiB, at least 2 MiB after the end of the previous region, so that an address that runs off the end of one region
 * never falls into another. Synthetic addresses of freed regions are never reused.
 *
 * This registry is process-wide on purpose: an address must mean the same everywhere in a process. Like malloc's heap
 * it holds every region until `HostRegion.free()`.
 */
const FIRST_ADDRESS = 2 ** 47;
const END_ADDRESS = 2 ** 53;
const ALIGNMENT_BYTES = 2 ** 21;

/** Regions with their own memory, which never overlap. */
const allocated = new RegionTable();
/** Wrapped regions, which may lie within any other region. */
const wrapped = new RegionTable();
/** Start of the next synthetic region. */
let nextAddress = FIRST_ADDRESS;

/** Reserves an address range for `length` bytes forever. Returns undefined if no addresses are left. */
export function reserveAddresses(length: number): number | undefined {
  const start = nextAddress;
  const end = Math.ceil((start + length) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES + ALIGNMENT_BYTES;
  if (end > END_ADDRESS) return undefined;
  nextAddress = end;
  return start;
}

/** Makes a region's addresses resolve to it. Only `HostRegion` calls this, once for each region. */
export function addRegion(region: HostRegion): void {
  (region.isWrapped ? wrapped : allocated).add(region);
}

/** Ends the use of a region's addresses. Only `HostRegion` calls this. */
export function removeRegion(region: HostRegion): void {
  (region.isWrapped ? wrapped : allocated).remove(region);
}

/**
 * Returns a live region that contains all of `length` bytes (0 is allowed) from `addr` on; null if there is none.
 * Regions with their own memory are preferred, so that temporarily wrapping a part of one changes nothing.
 */
export function regionOf(addr: number, length: number): HostRegion | null {
  if (!(length >= 0)) return null;
  return allocated.find(addr, length) ?? wrapped.find(addr, length);
}

/**
 * Returns views of `length` bytes from `addr` on, in order: one, or several if the range crosses segment boundaries.
 * Returns null if the range does not lie in one live region. The views are the region's memory, not copies.
 */
export function resolve(addr: number, length: number): Uint8Array[] | null {
  const region = regionOf(addr, length);
  return region === null ? null : region.views(addr - region.start, length);
}
