import { regionOf } from '../../../memory/address-space.js';
import type { HostRegion } from '../../../memory/host-region.js';
import { nativeSegments } from '../../../memory/native-memory.js';
import { loadNative } from '../../../native/addon/loader.js';

/**
 * A registered range as it crosses from the transport's thread to the serving thread. The flags are shared
 * memory, and so are the views: the serving thread sends out of the very segments of the region.
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
  /** Undefined for memory of the native addon, of which the serving thread makes its own views. */
  readonly segments: readonly Uint8Array[] | undefined;
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
    segments: region.isNative ? undefined : region.segments,
    registeredFlag: new Int32Array(new SharedArrayBuffer(4)).fill(1),
    liveFlag: region.liveFlag,
  };
}

/** A registration with the memory that this thread sends out of. */
export interface ServedRange extends Registration {
  readonly segments: readonly Uint8Array[];
}

/** What peers may read, by rkey. */
export class Registrations {
  readonly #byRkey = new Map<number, ServedRange>();
  readonly #catchUp: () => void;

  /** `catchUp` takes in the registrations that have been made but not been added yet. */
  constructor(catchUp: () => void) {
    this.#catchUp = catchUp;
  }

  /** Without effect when the region has been freed meanwhile. Throws when its memory cannot be seen in this thread. */
  add(registration: Registration): void {
    if (!isLive(registration)) return;
    try {
      const segments = registration.segments ?? segmentsAt(registration);
      this.#byRkey.set(registration.rkey, { ...registration, segments });
    } catch (error) {
      // Freed since the look at it: its memory is no longer known.
      if (isLive(registration)) throw error;
    }
  }

  remove(rkey: number): void {
    this.#byRkey.delete(rkey);
  }

  /**
   * The registration that allows `length` bytes from `addr` on to be read by who shows `rkey`.
   * Undefined when there is none: unknown rkey, out of bounds, deregistered or freed.
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

/** This thread's views of memory of the addon. They keep it until the registration is removed. */
function segmentsAt({ regionStart, start, length }: Registration): readonly Uint8Array[] {
  // In the thread that the region was made in there is one of each view.
  const region = regionOf(start, length);
  if (region !== null) return region.segments;
  const { addon, reason } = loadNative();
  if (addon === null) throw new Error(`the serving thread has no native addon: ${reason}`);
  return nativeSegments(addon, regionStart);
}
