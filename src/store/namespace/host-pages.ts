import { ArgumentError } from '../../base/errors.js';
import { CALL_MAX_KEYS, PAGE_MAX_BYTES } from '../../base/limits.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import { HostRegion } from '../../memory/host-region.js';
import type { HostIndices, HostMemPool } from './host-pool.js';

/** Pages of equal length that lie one after the other in memory. */
export interface HostPagesOptions {
  /**
   * Memory of the pages. With several regions, each holds as many whole pages as fit into it, in the order of the
   * regions.
   */
  readonly region: HostRegion | readonly HostRegion[];
  /** Bytes of a page. */
  readonly pageBytes: number;
  /** Tokens of a page: page i has the tokens from i * pageTokens. Default: 1, so that host indices are page numbers. */
  readonly pageTokens?: number;
}

const OPTION_NAMES: ReadonlySet<string> = new Set(['region', 'pageBytes', 'pageTokens']);

/** The pages of one region; they begin at page number `firstPage`. */
interface Place {
  readonly addr: bigint;
  readonly firstPage: number;
  readonly pageCount: number;
}

/**
 * Describes a framework's host buffer with pages that lie one after the other, for `registerMemPoolHost`. Throws
 * `ArgumentError` for lengths that do not fit.
 *
 * @example
 * import { HostRegion, hostPages, MeshCacheStore } from 'meshcache';
 *
 * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
 * using region = HostRegion.allocate(8 << 20);
 * await store.registerMemPoolHost(hostPages({ region, pageBytes: 1 << 20 }));
 * const isSet: boolean[] = await store.batchSetV1(['page-a', 'page-b'], [0, 1]);
 */
export function hostPages(options: HostPagesOptions): HostMemPool {
  checkNames('hostPages', options ?? {}, OPTION_NAMES);
  const { region, pageBytes, pageTokens = 1 } = options ?? {};
  const regions = region instanceof HostRegion ? [region] : region;
  if (!Array.isArray(regions) || regions.length === 0 || !regions.every((each) => each instanceof HostRegion)) {
    throw new ArgumentError(`hostPages: region must be a HostRegion or an array of them, got ${shown(region)}`);
  }
  const freed = regions.findIndex((each) => !each.isLive);
  if (freed >= 0) throw new ArgumentError(`hostPages: region ${freed} was freed; allocate it again first`);
  checkWhole('pageBytes', pageBytes, PAGE_MAX_BYTES);
  checkWhole('pageTokens', pageTokens, CALL_MAX_KEYS);
  const places: Place[] = [];
  let pageCount = 0;
  for (const { addr, length } of regions as readonly HostRegion[]) {
    const place = { addr, firstPage: pageCount, pageCount: Math.floor(length / pageBytes) };
    places.push(place);
    pageCount += place.pageCount;
  }
  if (pageCount === 0) {
    throw new ArgumentError(
      `hostPages: no page of ${pageBytes} bytes fits into the region, of ${regions[0]?.length} bytes`,
    );
  }
  return {
    region,
    pageSize: pageTokens,
    getPageBufferMeta: (hostIndices) => {
      const count = Math.floor(hostIndices.length / pageTokens);
      const ptrs = new BigUint64Array(count);
      for (let i = 0; i < count; i++) {
        const page = pageNumber(hostIndices, i, { pageTokens, pageCount });
        const place = places.findLast(({ firstPage }) => firstPage <= page) as Place;
        ptrs[i] = place.addr + BigInt(page - place.firstPage) * BigInt(pageBytes);
      }
      return { ptrs, sizes: new Array<number>(count).fill(pageBytes) };
    },
  };
}

/** Page number that the host indices give for page `i` of a call. */
function pageNumber(
  hostIndices: HostIndices,
  i: number,
  { pageTokens, pageCount }: { readonly pageTokens: number; readonly pageCount: number },
): number {
  const token = Number(hostIndices[i * pageTokens]);
  const page = token / pageTokens;
  if (Number.isSafeInteger(page) && page >= 0 && page < pageCount) return page;
  const last = (pageCount - 1) * pageTokens;
  const step = pageTokens === 1 ? '' : ` in steps of ${pageTokens}`;
  throw new ArgumentError(
    `page ${i}: host index ${shown(hostIndices[i * pageTokens])} is no start of a page; allowed are 0 to ${last}${step}`,
  );
}

function checkWhole(name: string, value: number, max: number): void {
  if (Number.isSafeInteger(value) && value >= 1 && value <= max) return;
  throw new ArgumentError(`hostPages: ${name} must be a whole number of 1 to ${max}, got ${shown(value)}`);
}
