import { ArgumentError } from '../../base/errors.js';
import type { HostIndices } from './host-pool.js';

/** Pool of calls that name none. */
export const MAIN_POOL = 'kv';
const HIT_POLICIES: readonly string[] = ['all_pages', 'trailing_pages'];

/** Pages of one pool of a hybrid model that move together with the KV pages. */
export interface PoolTransfer {
  readonly name: string;
  readonly keys: readonly string[] | null;
  readonly hostIndices: HostIndices | null;
  /**
   * `all_pages` (default): the pool is needed for every page of the prefix. `trailing_pages`: it is needed only for the
   * last pages of the prefix, as many as `keys` has, at least one.
   */
  readonly hitPolicy?: 'all_pages' | 'trailing_pages';
}

/** Throws `ArgumentError` unless `transfers` is a list of transfers to pools of different names. */
export function checkTransfers(method: string, transfers: readonly PoolTransfer[]): void {
  if (!Array.isArray(transfers)) {
    throw new ArgumentError(
      `${method}: transfers must be an array of { name, keys, hostIndices }, got ${typeof transfers}`,
    );
  }
  const names = new Set<string>();
  for (const [i, transfer] of transfers.entries()) {
    const { name, keys, hitPolicy } = transfer ?? {};
    if (typeof name !== 'string' || name === '') {
      throw new ArgumentError(`${method}: transfer ${i}: name must be non-empty text, got ${String(name)}`);
    }
    if (keys !== null && keys !== undefined && !Array.isArray(keys)) {
      throw new ArgumentError(`${method}: transfer ${i}: keys must be an array or null, got ${typeof keys}`);
    }
    if (hitPolicy !== undefined && !HIT_POLICIES.includes(hitPolicy)) {
      throw new ArgumentError(
        `${method}: transfer ${i}: hitPolicy must be ${HIT_POLICIES.join(' or ')}, got ${String(hitPolicy)}`,
      );
    }
    names.add(name);
  }
  if (names.size !== transfers.length) {
    throw new ArgumentError(`${method}: two transfers have the same name; give each pool once`);
  }
}

/** Result of `batchExistsV2`. */
export interface HybridHits {
  /** Pages of the longest prefix that every pool can serve. */
  readonly kvHitPages: number;
  /** For each further pool, the pages of the longest prefix that it can serve by itself. */
  readonly extraPoolHitPages: Record<string, number>;
}

/** Which pages of one further pool exist, aligned with the KV keys. */
export interface PoolPresence {
  readonly name: string;
  readonly present: readonly boolean[];
  /** Pages needed before the boundary; undefined: all pages. */
  readonly trailingCount: number | undefined;
}

/**
 * Validates the transfers and returns what a lookup needs of the further pools; the caller may change `transfers`
 * during the call.
 */
export function furtherPools(
  method: string,
  transfers: readonly PoolTransfer[],
): Pick<PoolPresence, 'name' | 'trailingCount'>[] {
  checkTransfers(method, transfers);
  return transfers
    .filter(({ name }) => name !== MAIN_POOL)
    .map(({ name, keys, hitPolicy }) => ({
      name,
      trailingCount: hitPolicy === 'trailing_pages' ? Math.max(1, keys?.length ?? 0) : undefined,
    }));
}

/** Index of the first false, or the length. */
export function prefixLength(present: readonly boolean[]): number {
  const gap = present.indexOf(false);
  return gap < 0 ? present.length : gap;
}

/**
 * For each pool, the longest prefix that it can serve alone, and the longest that all pools can serve together. The
 * minimum of the former is not enough: a pool that needs its trailing pages may have a gap exactly there.
 */
export function hybridHits(kvHitPages: number, pools: readonly PoolPresence[]): HybridHits {
  const legal = pools.map((pool) => legalBoundaries(kvHitPages, pool));
  const isLegalForAll = (boundary: number): boolean => legal.every((flags) => flags[boundary] === 1);
  return {
    kvHitPages: greatest(kvHitPages, isLegalForAll),
    extraPoolHitPages: Object.fromEntries(
      pools.map(({ name }, i) => [name, greatest(kvHitPages, (boundary) => legal[i]?.[boundary] === 1)]),
    ),
  };
}

/** One byte for each prefix length from 0 to `kvHitPages`; 1: the pool can serve it. */
function legalBoundaries(kvHitPages: number, { present, trailingCount }: PoolPresence): Uint8Array {
  const legal = new Uint8Array(kvHitPages + 1);
  legal[0] = 1;
  let pagesSinceGap = 0;
  for (let boundary = 1; boundary <= kvHitPages; boundary++) {
    pagesSinceGap = present[boundary - 1] === true ? pagesSinceGap + 1 : 0;
    const neededPages = Math.min(boundary, trailingCount ?? boundary);
    if (pagesSinceGap >= neededPages) legal[boundary] = 1;
  }
  return legal;
}

function greatest(from: number, test: (boundary: number) => boolean): number {
  let boundary = from;
  while (boundary > 0 && !test(boundary)) boundary--;
  return boundary;
}
