import type { HostRegion } from './host-region.js';
import { RegionTable } from './region-table.js';

/**
 * The host addresses of this process (in a worker thread: of that thread), and which region has them.
 *
 *     0          2^47                                                   2^53
 *     | real pointers | region | guard | region | guard | ... never reused |
 *
 * With the native addon every address is a real pointer. Without it addresses are synthetic: above
 * every real user-space pointer and below 2^53, so that a number holds them exactly. A synthetic region
 * starts at a multiple of 2 MiB, at least 2 MiB after the end of the one before it: an address that runs
 * off the end of one region never lands in another. The synthetic addresses of a freed region stay dead.
 *
 * This registry is process-wide on purpose: an address must mean one thing in a process, whoever
 * hands it on. Like malloc's heap it holds every region until `HostRegion.free()`.
 */
const FIRST_ADDRESS = 2 ** 47;
const END_ADDRESS = 2 ** 53;
const ALIGNMENT_BYTES = 2 ** 21;

/** Regions with memory of their own, which is disjoint, and wrapped ones, which may lie within any other. */
const allocated = new RegionTable();
const wrapped = new RegionTable();
/** What the next synthetic region gets. */
let nextAddress = FIRST_ADDRESS;

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
  (region.isWrapped ? wrapped : allocated).add(region);
}

/** Makes a region's addresses dead. Only `HostRegion` calls this. */
export function removeRegion(region: HostRegion): void {
  (region.isWrapped ? wrapped : allocated).remove(region);
}

/**
 * A live region that has all of `length` bytes (0 is allowed) from `addr` on; null when there is none.
 * Of several the one with memory of its own, so that wrapping a part of it for a while changes nothing.
 */
export function regionOf(addr: number, length: number): HostRegion | null {
  if (!(length >= 0)) return null;
  return allocated.find(addr, length) ?? wrapped.find(addr, length);
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
