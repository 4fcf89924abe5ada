import { assert, assertAtMost, assertEqual } from '../base/assert.js';
import type { HostRegion } from './host-region.js';

/**
 * Live regions by address. Wrapped regions may overlap, be nested and even be equal.
 *
 * The regions are sorted by start. `#reaches[i]` is the furthest end of regions 0 to i. The search walks back from an
 * address and stops at the first index where no earlier region reaches the end of the range. With disjoint regions it
 * stops at once.
 */
export class RegionTable {
  readonly #regions: HostRegion[] = [];
  readonly #starts: number[] = [];
  readonly #reaches: number[] = [];
  #lastHit: HostRegion | null = null;

  add(region: HostRegion): void {
    const at = this.#firstAfter(region.start);
    this.#regions.splice(at, 0, region);
    this.#starts.splice(at, 0, region.start);
    this.#reaches.splice(at, 0, 0);
    this.#updateReaches(at);
  }

  /** Removes a region; does nothing if it is not in the table. */
  remove(region: HostRegion): void {
    let at = this.#firstAfter(region.start) - 1;
    while (at >= 0 && this.#starts[at] === region.start && this.#regions[at] !== region) at--;
    if (this.#regions[at] !== region) return;
    this.#regions.splice(at, 1);
    this.#starts.splice(at, 1);
    this.#reaches.splice(at, 1);
    this.#updateReaches(at);
    if (this.#lastHit === region) this.#lastHit = null;
  }

  /** Returns a region that contains all of `length` bytes from `addr` on; null if there is none. */
  find(addr: number, length: number): HostRegion | null {
    const last = this.#lastHit;
    const end = addr + length;
    if (last !== null && addr >= last.start && end <= last.start + last.length) return last;
    for (let i = this.#firstAfter(addr) - 1; i >= 0 && (this.#reaches[i] as number) >= end; i--) {
      const region = this.#regions[i] as HostRegion;
      if (end > region.start + region.length) continue;
      this.#lastHit = region;
      return region;
    }
    return null;
  }

  #updateReaches(from: number): void {
    let reach = from === 0 ? 0 : (this.#reaches[from - 1] as number);
    for (let i = from; i < this.#regions.length; i++) {
      const region = this.#regions[i] as HostRegion;
      reach = Math.max(reach, region.start + region.length);
      // All further reaches depend only on this one, so they are correct, too.
      if (i > from && this.#reaches[i] === reach) return;
      this.#reaches[i] = reach;
    }
  }

  /** Index of the first region that starts after `addr`. */
  #firstAfter(addr: number): number {
    let low = 0;
    let high = this.#starts.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#starts[middle] as number) <= addr) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Throws `InvariantError` unless the regions are sorted, and starts and reaches match them. */
  verify(): void {
    assertEqual('region table: starts', this.#starts.length, this.#regions.length);
    assertEqual('region table: reaches', this.#reaches.length, this.#regions.length);
    let reach = 0;
    for (const [i, { start, length }] of this.#regions.entries()) {
      assertEqual(`region table: start of region ${i}`, this.#starts[i] as number, start);
      assertAtMost(`region table: start of region ${i}, and of the one before`, this.#starts[i - 1] ?? 0, start);
      reach = Math.max(reach, start + length);
      assertEqual(`region table: reach of region ${i}`, this.#reaches[i] as number, reach);
    }
    const last = this.#lastHit;
    assert(last === null || this.#regions.includes(last), 'region table: the last hit is there no more');
  }
}
