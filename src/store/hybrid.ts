import type { HostIndices } from './host-pool.js';

/** Pages of one pool of a hybrid model that move together with the KV pages. */
export interface PoolTransfer {
  readonly name: string;
  readonly keys: readonly string[] | null;
  readonly hostIndices: HostIndices | null;
  /**
   * `all_pages` (default): the pool is needed for every page of the prefix. `trailing_pages`: only
   * for the last pages before the prefix's end, as many as `keys` has, at least one.
   */
  readonly hitPolicy?: 'all_pages' | 'trailing_pages';
}

export interface HybridHits {
  /** Pages of the longest prefix that every pool can serve. */
  readonly kvHitPages: number;
  /** The same boundary as each further pool's own. */
  readonly extraPoolHitPages: Record<string, number>;
}

/** One further pool: which of its pages exist, aligned with the KV keys. */
export interface PoolPresence {
  readonly name: string;
  readonly present: readonly boolean[];
  /** Pages needed before the boundary; undefined: all of them. */
  readonly trailingCount: number | undefined;
}

/** Index of the first false, or the length. */
export function prefixLength(present: readonly boolean[]): number {
  const gap = present.indexOf(false);
  return gap < 0 ? present.length : gap;
}

/**
 * The greatest boundary that is legal for every pool at once. Taking each pool's own boundary and
 * then the least of them is not enough: a pool that needs its trailing pages may have a gap just there.
 */
export function hybridBoundary(kvHitPages: number, pools: readonly PoolPresence[]): number {
  const whole = pools.filter((pool) => pool.trailingCount === undefined);
  const longest = whole.reduce((least, pool) => Math.min(least, prefixLength(pool.present)), kvHitPages);
  const trailing = pools.filter((pool) => pool.trailingCount !== undefined);
  for (let boundary = longest; boundary > 0; boundary--) {
    const isLegal = trailing.every((pool) => {
      const first = Math.max(0, boundary - (pool.trailingCount as number));
      return prefixLength(pool.present.slice(first, boundary)) === boundary - first;
    });
    if (isLegal) return boundary;
  }
  return 0;
}
