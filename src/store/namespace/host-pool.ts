import { ArgumentError } from '../../base/errors.js';
import { CALL_MAX_KEYS, PAGE_MAX_BYTES } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { regionOf } from '../../memory/address-space.js';
import { HostRegion } from '../../memory/host-region.js';
import { type CallerPage, RegionPage, ScatteredPage } from '../call/caller-page.js';

/** A framework's host KV buffer. Page i of a call starts at `hostIndices[i * pageSize]`. */
export interface HostMemPool {
  readonly region: HostRegion | readonly HostRegion[];
  /** Tokens of a page; default: 1. */
  readonly pageSize?: number;
  /** Addresses and sizes of c pieces per page, page after page: c = 1 (MLA), 2 (K and V), or one per layer. */
  getPageBufferMeta(hostIndices: ArrayLike<number | bigint>): {
    ptrs: readonly bigint[] | BigUint64Array;
    sizes: readonly number[];
  };
}

/** Positions in a host pool, in tokens; any array type of the framework. */
export type HostIndices = ArrayLike<number | bigint>;

/** The pages of a call on one pool, one per key. */
export interface HostPages {
  readonly pool: string;
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
}

/** Throws `ArgumentError` unless `pool` is a valid host buffer of a framework. */
export function checkHostPool(method: string, pool: HostMemPool): void {
  const regions = pool?.region instanceof HostRegion ? [pool.region] : pool?.region;
  if (!Array.isArray(regions) || !regions.every((region) => region instanceof HostRegion)) {
    throw new ArgumentError(`${method}: pool.region must be a HostRegion or an array of them`);
  }
  const freed = regions.findIndex((region) => !region.isLive);
  if (freed >= 0) throw new ArgumentError(`${method}: region ${freed} of the pool was freed; allocate it again first`);
  const pageSize = pool.pageSize ?? 1;
  if (!Number.isSafeInteger(pageSize) || pageSize < 1 || pageSize > CALL_MAX_KEYS) {
    throw new ArgumentError(
      `${method}: pool.pageSize must be a whole number of 1 to ${CALL_MAX_KEYS} tokens, got ${shown(pageSize)}`,
    );
  }
  if (typeof pool.getPageBufferMeta !== 'function') {
    throw new ArgumentError(
      `${method}: pool.getPageBufferMeta must be a function, got ${typeof pool.getPageBufferMeta}`,
    );
  }
}

/**
 * Copies `keys`, which the caller may change during the call. Throws `ArgumentError` unless it is an array of keys
 * within the limit.
 */
export function checkedKeys(method: string, keys: readonly string[]): readonly string[] {
  if (!Array.isArray(keys)) throw new ArgumentError(`${method}: keys must be an array of strings, got ${typeof keys}`);
  if (keys.length > CALL_MAX_KEYS) {
    throw new ArgumentError(`${method}: got ${keys.length} keys, at most ${CALL_MAX_KEYS} are allowed in a call`);
  }
  for (let i = 0; i < keys.length; i++) {
    if (typeof keys[i] !== 'string') {
      throw new ArgumentError(`${method}: key ${i} must be a string, got ${typeof keys[i]}`);
    }
  }
  return keys.slice();
}

/**
 * The pages of a host pool that `hostIndices` name, one for each of `keyCount` keys. Throws before anything is touched.
 */
export function hostPoolPages(
  method: string,
  pool: HostMemPool | undefined,
  keyCount: number,
  hostIndices: HostIndices,
): CallerPage[] {
  if (pool === undefined) {
    throw new ArgumentError(
      `${method}: no host memory pool is registered for these pages; call registerMemPoolHost first, or registerMemHostPoolV2`,
    );
  }
  const pageSize = pool.pageSize ?? 1;
  if (typeof hostIndices !== 'object') {
    throw new ArgumentError(`${method}: the host indices must be an array of numbers, got ${typeof hostIndices}`);
  }
  if (hostIndices?.length !== keyCount * pageSize) {
    throw new ArgumentError(
      `${method}: ${keyCount} keys with ${pageSize} tokens a page need ${keyCount * pageSize} host indices, got ${hostIndices?.length}`,
    );
  }
  if (keyCount === 0) return [];
  const { ptrs, sizes } = metaOf(method, pool, hostIndices);
  if (ptrs?.length === undefined || sizes?.length === undefined) {
    throw new ArgumentError(`${method}: getPageBufferMeta must give { ptrs, sizes }`);
  }
  if (ptrs.length !== sizes.length || ptrs.length === 0 || ptrs.length % keyCount !== 0) {
    throw new ArgumentError(
      `${method}: getPageBufferMeta gave ${ptrs.length} pointers and ${sizes.length} sizes for ${keyCount} pages; ` +
        'it must give as many of both, the same number for every page',
    );
  }
  const rangeCount = ptrs.length / keyCount;
  const pages = new Array<CallerPage>(keyCount);
  for (let i = 0; i < keyCount; i++) pages[i] = callerPage(method, i, { ptrs, sizes }, rangeCount);
  return pages;
}

/** The addresses and sizes of the pages. An error for a refused index names the method that was called. */
function metaOf(
  method: string,
  pool: HostMemPool,
  hostIndices: HostIndices,
): Partial<ReturnType<HostMemPool['getPageBufferMeta']>> {
  try {
    return pool.getPageBufferMeta(hostIndices) ?? {};
  } catch (error) {
    throw withMethod(method, error);
  }
}

/** Adds the name of the called method to an `ArgumentError`; returns other errors unchanged. */
export function withMethod(method: string, error: unknown): unknown {
  if (!(error instanceof ArgumentError) || error.message.startsWith(`${method}: `)) return error;
  return new ArgumentError(`${method}: ${error.message}`, { cause: error });
}

/** The pages at the given pointers, one per pointer. Throws before anything is touched. */
export function pointerPages(
  method: string,
  keyCount: number,
  ptrs: ArrayLike<bigint>,
  sizes: ArrayLike<number>,
): CallerPage[] {
  if (isMemory(ptrs?.[0])) {
    const single = method === 'batchSet' ? 'set each page by `set`' : 'read copies by `getMany`, or each page by `get`';
    throw new ArgumentError(
      `${method}: takes pointers into HostRegions (bigints) and sizes, got ${describe(ptrs[0])}; ${single}`,
    );
  }
  if (ptrs?.length !== keyCount || sizes?.length !== keyCount) {
    throw new ArgumentError(
      `${method}: got ${keyCount} keys, ${ptrs?.length} pointers and ${sizes?.length} sizes; the numbers must be the same`,
    );
  }
  const pages = new Array<CallerPage>(keyCount);
  for (let i = 0; i < keyCount; i++) pages[i] = regionPage(method, i, ptrs[i], sizes[i]);
  return pages;
}

/** Page memory that is not given as a pointer: a Buffer, any other typed array, a DataView, or a whole buffer. */
export type PageMemory = ArrayBuffer | SharedArrayBuffer | ArrayBufferView;

/** Runs `use` with the page at a pointer or in a caller's array, which has an address meanwhile. */
export async function withPage<T>(
  method: string,
  memory: bigint | PageMemory,
  size: number | undefined,
  use: (page: CallerPage) => Promise<T>,
): Promise<T> {
  if (typeof memory === 'bigint') return use(regionPage(method, 0, memory, size));
  const bytes = isMemory(memory) ? memory.byteLength : 0;
  if (bytes === 0 || (size !== undefined && size !== bytes)) {
    throw new ArgumentError(
      `${method}: give a pointer (bigint) and a size, or only a typed array, a DataView or a buffer of at least 1 byte; got ${describe(memory)}`,
    );
  }
  const region = HostRegion.wrap(memory);
  try {
    return await use(regionPage(method, 0, region.addr, region.length));
  } finally {
    region.free();
  }
}

function isMemory(value: unknown): value is PageMemory {
  return ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof SharedArrayBuffer;
}

/** Throws if destinations of one call overlap: the pages would overwrite each other, and all would seem correct. */
export function checkDistinct(method: string, pages: readonly CallerPage[]): void {
  if (isAscending(pages)) return;
  const starts: number[] = [];
  const ends: number[] = [];
  const pageOf: number[] = [];
  for (const [index, { ranges }] of pages.entries()) {
    for (const { addr, length } of ranges) {
      starts.push(Number(addr));
      ends.push(Number(addr) + length);
      pageOf.push(index);
    }
  }
  const order = starts.map((_, i) => i);
  order.sort((a, b) => (starts[a] as number) - (starts[b] as number));
  for (let k = 1; k < order.length; k++) {
    const [before, after] = [order[k - 1] as number, order[k] as number];
    if ((starts[after] as number) >= (ends[before] as number)) continue;
    throw new ArgumentError(
      `${method}: two destinations overlap: page ${pageOf[before]} from ${starts[before]} to ${ends[before]} and page ${pageOf[after]} from ${starts[after]}; give each page its own memory`,
    );
  }
}

/** Whether each page lies in one range after that of the page before, as is usual; then no pages overlap. */
function isAscending(pages: readonly CallerPage[]): boolean {
  let end = 0;
  for (const page of pages) {
    if (!(page instanceof RegionPage) || page.addr < end) return false;
    end = page.addr + page.length;
  }
  return true;
}

/** Page `index`, which is made of `count` pieces. */
function callerPage(
  method: string,
  index: number,
  { ptrs, sizes }: { readonly ptrs: ArrayLike<bigint>; readonly sizes: ArrayLike<number> },
  count: number,
): CallerPage {
  const first = index * count;
  if (count === 1) return regionPage(method, index, ptrs[first], sizes[first]);
  const ranges: RegionPage[] = [];
  let bytes = 0;
  for (let at = first; at < first + count; at++) {
    const range = regionPage(method, index, ptrs[at], sizes[at]);
    ranges.push(range);
    bytes += range.length;
  }
  if (bytes > PAGE_MAX_BYTES) {
    throw new ArgumentError(`${method}: page ${index} has ${bytes} bytes, at most ${PAGE_MAX_BYTES} are allowed`);
  }
  return new ScatteredPage(ranges, bytes);
}

function regionPage(method: string, index: number, ptr: bigint | undefined, size: number | undefined): RegionPage {
  if (!Number.isSafeInteger(size) || (size as number) < 1 || (size as number) > PAGE_MAX_BYTES) {
    throw new ArgumentError(
      `${method}: page ${index}: its size must be a whole number of 1 to ${PAGE_MAX_BYTES} bytes, got ${String(size)}`,
    );
  }
  if (typeof ptr !== 'bigint') {
    throw new ArgumentError(`${method}: page ${index}: its pointer must be a bigint, got ${typeof ptr}`);
  }
  // An address beyond 2^53 belongs to no region, so it need not be exact.
  const addr = Number(ptr);
  const region = regionOf(addr, size as number);
  if (region === null) {
    throw new ArgumentError(
      `${method}: page ${index}: ${size} bytes from address ${ptr} on are not within a live HostRegion; allocate or wrap that memory first`,
    );
  }
  return new RegionPage(region, addr, size as number);
}

function describe(value: unknown): string {
  if (isMemory(value)) return `${value.constructor.name} of ${value.byteLength} bytes`;
  if (typeof value === 'string') return 'text; encode it first, for example with Buffer.from(text)';
  return value === null ? 'null' : typeof value;
}
