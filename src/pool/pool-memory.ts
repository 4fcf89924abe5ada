import { ArgumentError } from '../base/errors.js';
import { regionOf } from '../memory/address-space.js';
import type { HostRegion } from '../memory/host-region.js';

/** The range of a host region that holds the pages of one pool. */
export class PoolMemory {
  /** No page crosses a multiple of this many bytes. */
  readonly segmentBytes: number;
  readonly #region: HostRegion;
  /** Offset of the pool's start in its region. */
  readonly #regionOffset: number;

  /** Uses `capacity` bytes from `baseAddr`. Throws `ArgumentError` unless they lie in one live `HostRegion`. */
  constructor(baseAddr: bigint, capacity: number) {
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
    this.segmentBytes = Math.min(capacity, region.segmentBytes);
    this.#region = region;
    this.#regionOffset = regionOffset;
  }

  /** Bytes of the pool, starting at an offset. */
  bytes(offset: number, length: number): Uint8Array {
    return this.#region.bytes(this.#regionOffset + offset, length);
  }
}
