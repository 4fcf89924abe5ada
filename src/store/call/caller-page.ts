import type { HostRegion } from '../../memory/host-region.js';
import { PageCopies } from '../../memory/page-copies.js';
import { STAMP_BYTES, writeStamp, writeTail } from '../../memory/page-stamp.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PageBytes } from '../../pool/page-batch.js';
import type { LocalRange } from '../../transport/contract/transport.js';
import { indicesWhere } from './key-steps.js';

/** A page in the caller's memory: the pieces that it consists of, in order, as addresses and as bytes. */
export interface CallerPage extends PageBytes {
  readonly ranges: readonly LocalRange[];
}

/**
 * A page, or a piece of one, in one range of a region. Like a view, it keeps the region's memory alive even when the
 * region is freed.
 */
export class RegionPage implements CallerPage, LocalRange {
  readonly addr: number;
  /** Length in bytes. */
  readonly length: number;
  readonly #segments: readonly Uint8Array[];
  readonly #segmentBytes: number;
  readonly #offset: number;
  #views: Uint8Array[] | undefined;

  /** Takes `length` bytes from `addr` on, which must all lie in the region. */
  constructor(region: HostRegion, addr: number, length: number) {
    this.addr = addr;
    this.length = length;
    this.#segments = region.segments;
    this.#segmentBytes = region.segmentBytes;
    this.#offset = addr - region.start;
  }

  get ranges(): readonly LocalRange[] {
    return [this];
  }

  get views(): readonly Uint8Array[] {
    this.#views ??= this.#makeViews();
    return this.#views;
  }

  /** Replaces the page's stamp by its original last bytes. */
  writeTail(tail: number): void {
    const count = Math.min(this.length, STAMP_BYTES);
    const start = this.#offset + this.length - count;
    const segmentIndex = Math.floor(start / this.#segmentBytes);
    const segment = this.#segments[segmentIndex] as Uint8Array;
    const at = start - segmentIndex * this.#segmentBytes;
    if (at + count <= segment.length) writeStamp(segment, at, tail, count);
    else writeTail(this.views, this.length, tail);
  }

  #makeViews(): Uint8Array[] {
    const views: Uint8Array[] = [];
    for (let offset = this.#offset, rest = this.length; rest > 0; ) {
      const segmentIndex = Math.floor(offset / this.#segmentBytes);
      const segment = this.#segments[segmentIndex] as Uint8Array;
      const at = offset - segmentIndex * this.#segmentBytes;
      const take = Math.min(rest, segment.length - at);
      // If the caller's memory was detached meanwhile, it has no bytes, and the page is incomplete.
      if (take <= 0) break;
      views.push(segment.subarray(at, at + take));
      offset += take;
      rest -= take;
    }
    return views;
  }
}

/** A page that lies in several ranges, one after the other. */
export class ScatteredPage implements CallerPage {
  readonly ranges: readonly RegionPage[];
  readonly length: number;
  #views: readonly Uint8Array[] | undefined;

  constructor(ranges: readonly RegionPage[], length: number) {
    this.ranges = ranges;
    this.length = length;
  }

  get views(): readonly Uint8Array[] {
    this.#views ??= this.ranges.flatMap(({ views }) => views);
    return this.#views;
  }
}

/** Whether the page lies at addresses that a transport can read to. */
export function isAddressable(page: CallerPage): boolean {
  return page instanceof RegionPage || page.ranges.length > 0;
}

/** Copies bytes into a page, as many as fit; returns how many. */
export function fillPage({ views }: CallerPage, bytes: Uint8Array): number {
  let at = 0;
  for (const view of views) {
    const part = bytes.subarray(at, at + view.length);
    view.set(part);
    at += part.length;
  }
  return at;
}

/** Replaces a page's stamp by its original last bytes. */
export function restoreTail(page: CallerPage, tail: number): void {
  if (page instanceof RegionPage) page.writeTail(tail);
  else writeTail(page.views, page.length, tail);
}

/**
 * Copies each source to its target, if it has one. Resolves with one checksum per source, null if there is no target.
 */
export async function copyInto(
  copyThreads: CopyThreads,
  targets: readonly (PageBytes | null)[],
  sources: readonly PageBytes[],
): Promise<(number | null)[]> {
  const copies = new PageCopies();
  const vacant = indicesWhere(targets, (target) => target !== null);
  let bytes = 0;
  for (const i of vacant) {
    const source = sources[i] as PageBytes;
    copies.add(source.views, (targets[i] as PageBytes).views);
    bytes += source.length;
  }
  const isOffThread = copyThreads.take(vacant.length, bytes);
  const sums = isOffThread ? await copyThreads.copy(copies) : copies.run();
  const results = new Array<number | null>(targets.length).fill(null);
  vacant.forEach((i, j) => {
    results[i] = sums[j] as number;
  });
  return results;
}
