import { HostRegion } from '../memory/host-region.js';
import { imageBytes, imageChecksum, NO_STAMP, STAMP_BYTES, writeTail } from '../memory/page-stamp.js';
import type { LocalRange, ReadOp } from '../transport/contract/transport.js';
import type { DataLocation } from '../types.js';
import type { CallerPage } from './page-store.js';

/** Where the stamps of pages that are shorter than one land. */
const SCRATCH_STRIDE_BYTES = 8;

/**
 * The read operations for a batch of pages, and what makes pages of the images that they bring (see
 * `memory/page-stamp.ts`): an operation succeeds only with the stamp that its location names, and then {@link finish} puts the
 * page's own last bytes in the stamp's place. Used once; {@link release} it when the operations have ended.
 */
export class ImageReads {
  readonly ops: ReadOp[] = [];
  readonly #isVerified: boolean;
  readonly #maxCount: number;
  readonly #pages: CallerPage[] = [];
  readonly #locations: DataLocation[] = [];
  #scratch: HostRegion | undefined;

  /** `isVerified`: the images must have their checksums. At most `maxCount` pages. */
  constructor({ isVerified, maxCount }: { readonly isVerified: boolean; readonly maxCount: number }) {
    this.#isVerified = isVerified;
    this.#maxCount = maxCount;
  }

  /** The location is in memory and has the page's length. */
  add(remoteEndpoint: string, location: DataLocation, page: CallerPage): void {
    const { remoteAddr, rkey, stamp } = location;
    const isStamped = stamp !== NO_STAMP;
    const ranges = isStamped && page.length < STAMP_BYTES ? [this.#scratchRange()] : page.ranges;
    this.#pages.push(page);
    this.#locations.push(location);
    this.ops.push({
      remoteEndpoint,
      localAddr: (ranges[0] as LocalRange).addr,
      remoteAddr,
      rkey,
      length: isStamped ? imageBytes(page.length) : page.length,
      ...(ranges.length > 1 ? { scatter: ranges } : {}),
      ...(this.#isVerified ? { checksum: isStamped ? imageChecksum(location) : location.checksum } : {}),
      ...(isStamped ? { stamp } : {}),
    });
  }

  /** Operation `i` has ended true: from now on the caller's memory holds the page. */
  finish(i: number): void {
    const { stamp, tail } = this.#locations[i] as DataLocation;
    const { views, length } = this.#pages[i] as CallerPage;
    if (stamp !== NO_STAMP) writeTail(views, length, tail);
  }

  release(): void {
    this.#scratch?.free();
    this.#scratch = undefined;
  }

  #scratchRange(): LocalRange {
    this.#scratch ??= HostRegion.wrap(new SharedArrayBuffer(this.#maxCount * SCRATCH_STRIDE_BYTES));
    return { addr: this.#scratch.addr + BigInt(this.ops.length * SCRATCH_STRIDE_BYTES), length: STAMP_BYTES };
  }
}
