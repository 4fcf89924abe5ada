import type { HostRegion } from '../../memory/host-region.js';

/**
 * A registered range as it crosses from the transport's thread to the serving thread. The views
 * and flags are shared memory: the serving thread sends out of the very segments of the region.
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
  readonly segments: readonly Uint8Array[];
  /** One element: 1 until the range is deregistered. */
  readonly registeredFlag: Int32Array;
  /** One element: 1 until the region is freed. */
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

/** What peers may read, by rkey. */
export class Registrations {
  readonly #byRkey = new Map<number, Registration>();
  readonly #catchUp: () => void;

  /** `catchUp` takes in the registrations that have been made but not been added yet. */
  constructor(catchUp: () => void) {
    this.#catchUp = catchUp;
  }

  add(registration: Registration): void {
    this.#byRkey.set(registration.rkey, registration);
  }

  remove(rkey: number): void {
    this.#byRkey.delete(rkey);
  }

  /**
   * The registration that allows `length` bytes from `addr` on to be read by who shows `rkey`.
   * Undefined when there is none: unknown rkey, out of bounds, deregistered or freed.
   */
  find(rkey: number, addr: number, length: number): Registration | undefined {
    let found = this.#byRkey.get(rkey);
    if (found === undefined) {
      this.#catchUp();
      found = this.#byRkey.get(rkey);
      if (found === undefined) return undefined;
    }
    if (addr < found.start || addr + length > found.start + found.length) return undefined;
    const isLive = Atomics.load(found.registeredFlag, 0) === 1 && Atomics.load(found.liveFlag, 0) === 1;
    return isLive ? found : undefined;
  }
}
