import type { LocatedPages } from '../../directory/messages/located-pages.js';
import { HostRegion } from '../../memory/host-region.js';
import { imageBytes, imageChecksum, NO_STAMP, STAMP_BYTES } from '../../memory/page-stamp.js';
import type { ReadOp } from '../../transport/contract/transport.js';
import { type CallerPage, RegionPage, restoreTail } from '../call/caller-page.js';

/** Distance in bytes between scratch places, where the stamps of pages shorter than a stamp land. */
const SCRATCH_STRIDE_BYTES = 8;

/**
 * The read operations for a batch of pages, which turn the images that they bring into pages (see
 * `memory/page-stamp.ts`). An operation succeeds only if the image has the stamp that its location names;
 * {@link finish} then puts the page's own last bytes in the stamp's place. Use it once, and {@link release} it when the
 * operations have ended.
 */
export class ImageReads {
  readonly ops: ReadOp[] = [];
  readonly #isVerified: boolean;
  readonly #maxCount: number;
  readonly #pages: CallerPage[] = [];
  readonly #tails: number[] = [];
  #scratch: HostRegion | undefined;

  /** Creates room for at most `maxCount` pages. `isVerified`: the images must match their checksums. */
  constructor({ isVerified, maxCount }: { readonly isVerified: boolean; readonly maxCount: number }) {
    this.#isVerified = isVerified;
    this.#maxCount = maxCount;
  }

  /** Adds the page at position `k`, which must be in memory there and have this page's length. */
  add(remoteEndpoint: string, { rows, columns }: LocatedPages, k: number, page: CallerPage): void {
    const row = rows[k] as number;
    const stamp = columns.stamp[row] as number;
    const tail = columns.tail[row] as number;
    const isStamped = stamp !== NO_STAMP;
    const { length } = page;
    let checksum: number | undefined;
    if (this.#isVerified) {
      const sum = columns.checksum[row] as number;
      checksum = isStamped ? imageChecksum({ length, checksum: sum, stamp, tail }) : sum;
    }
    let localAddr: ReadOp['localAddr'];
    let scatter: ReadOp['scatter'];
    if (isStamped && length < STAMP_BYTES) {
      localAddr = this.#scratchAddr();
    } else if (page instanceof RegionPage) {
      localAddr = page.addr;
    } else {
      const { ranges } = page;
      localAddr = ranges[0]?.addr ?? 0;
      if (ranges.length > 1) scatter = ranges;
    }
    this.#pages.push(page);
    this.#tails.push(isStamped ? tail : -1);
    this.ops.push({
      remoteEndpoint,
      localAddr,
      remoteAddr: columns.addressAt(row),
      rkey: columns.rkey[row] as number,
      length: isStamped ? imageBytes(length) : length,
      scatter,
      checksum,
      stamp: isStamped ? stamp : undefined,
    });
  }

  /** Finishes operation `i`, which must have succeeded: from now on the caller's memory holds the page. */
  finish(i: number): void {
    const tail = this.#tails[i] as number;
    if (tail >= 0) restoreTail(this.#pages[i] as CallerPage, tail);
  }

  release(): void {
    this.#scratch?.free();
    this.#scratch = undefined;
  }

  #scratchAddr(): number {
    this.#scratch ??= HostRegion.wrap(new SharedArrayBuffer(this.#maxCount * SCRATCH_STRIDE_BYTES));
    return this.#scratch.start + this.ops.length * SCRATCH_STRIDE_BYTES;
  }
}
