import type { HostRegion } from '../../../memory/host-region.js';

/**
 * A registered range, as the transport's thread posts it to the serving thread. Flags and views are shared memory: the
 * serving thread sends directly from the region's segments.
 */
export interface Registration {
  readonly rkey: number;
  /** First registered address. */
  readonly start: number;
  /** Registered bytes. */
  readonly length: number;
  /** First address of the region, where segment 0 begins. */
  readonly regionStart: number;
  readonly segmentBytes: number;
  /** Views of the region's segments, which hold the memory. */
  readonly segments: readonly Uint8Array[];
  /** A flag in one element: 1 until the range is deregistered. */
  readonly registeredFlag: Int32Array;
  /** A flag in one element: 1 until the region is freed. */
  readonly liveFlag: Int32Array;
}

/** The registration of `length` bytes from `start` on, which must lie in `region`. */
export function registrationOf(region: HostRegion, rkey: number, start: number, length: number): Registration {
  return {
    rkey,
    start,
    length,
    regionStart: region.start,
    segmentBytes: region.segmentBytes,
    segments: region.segments,
    registeredFlag: new Int32Array(new SharedArrayBuffer(4)).fill(1),
    liveFlag: region.liveFlag,
  };
}

/** Memory that peers may read, by rkey. */
export class Registrations {
  readonly #byRkey = new Map<number, Registration>();
  readonly #catchUp: () => void;

  /** `catchUp` adds registrations that were posted but not added yet. */
  constructor(catchUp: () => void) {
    this.#catchUp = catchUp;
  }

  /** Adds a registration, unless its region has been freed in the meantime. */
  add(registration: Registration): void {
    if (isLive(registration)) this.#byRkey.set(registration.rkey, registration);
  }

  remove(rkey: number): void {
    this.#byRkey.delete(rkey);
  }

  /**
   * Returns the registration that lets a peer with `rkey` read `length` bytes from `addr` on. Undefined if the rkey is
   * unknown, the range is out of bounds, or the memory was deregistered or freed.
   */
  find(rkey: number, addr: number, length: number): Registration | undefined {
    let found = this.#byRkey.get(rkey);
    if (found === undefined) {
      this.#catchUp();
      found = this.#byRkey.get(rkey);
      if (found === undefined) return undefined;
    }
    if (addr < found.start || addr + length > found.start + found.length) return undefined;
    return isLive(found) ? found : undefined;
  }
}

function isLive({ registeredFlag, liveFlag }: Registration): boolean {
  return Atomics.load(registeredFlag, 0) === 1 && Atomics.load(liveFlag, 0) === 1;
}
