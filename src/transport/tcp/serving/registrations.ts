import { regionOf } from '../../../memory/address-space.js';
import type { HostRegion } from '../../../memory/host-region.js';
import { nativeSegments } from '../../../memory/native-memory.js';
import { loadNative } from '../../../native/addon/loader.js';

/**
 * A registered range as it is posted from the transport's thread to the serving thread. Flags and views are shared memory: the
 * serving thread sends directly out of the region's segments.
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
  /** Views of the region's segments; undefined for memory of the native addon, of which the serving thread makes its own views. */
  readonly segments: readonly Uint8Array[] | undefined;
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
    segments: region.isNative ? undefined : region.segments,
    registeredFlag: new Int32Array(new SharedArrayBuffer(4)).fill(1),
    liveFlag: region.liveFlag,
  };
}

/** A registration with this thread's views of the memory. */
export interface ServedRange extends Registration {
  readonly segments: readonly Uint8Array[];
}

/** Memory that peers may read, by rkey. */
export class Registrations {
  readonly #byRkey = new Map<number, ServedRange>();
  readonly #catchUp: () => void;

  /** `catchUp` adds the registrations that were posted and not added yet. */
  constructor(catchUp: () => void) {
    this.#catchUp = catchUp;
  }

  /** Adds a registration, unless its region has been freed meanwhile. Throws if this thread cannot see the memory. */
  add(registration: Registration): void {
    if (!isLive(registration)) return;
    try {
      const segments = registration.segments ?? segmentsAt(registration);
      this.#byRkey.set(registration.rkey, { ...registration, segments });
    } catch (error) {
      // If the region was freed during the call, its memory is no longer known, which is no error.
      if (isLive(registration)) throw error;
    }
  }

  remove(rkey: number): void {
    this.#byRkey.delete(rkey);
  }

  /**
   * The registration that lets a peer with `rkey` read `length` bytes from `addr` on. Undefined: the rkey is unknown, the range is out of
   * bounds, or the memory was deregistered or freed.
   */
  find(rkey: number, addr: number, length: number): ServedRange | undefined {
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

/** Creates this thread's views of memory of the addon, which hold the memory until the registration is removed. */
function segmentsAt({ regionStart, start, length }: Registration): readonly Uint8Array[] {
  // The thread that created the region already has these views.
  const region = regionOf(start, length);
  if (region !== null) return region.segments;
  const { addon, reason } = loadNative();
  if (addon === null) throw new Error(`the serving thread has no native addon: ${reason}`);
  return nativeSegments(addon, regionStart);
}
