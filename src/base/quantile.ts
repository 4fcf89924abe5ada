/**
 * Number of calls by duration: one count for each upper bound in seconds, ascending, and a last one for longer calls.
 */
export interface Buckets {
  readonly boundsS: readonly number[];
  readonly counts: readonly number[];
}

/**
 * Seconds that the share `quantile` of all calls did not exceed, assuming an even spread within a bucket. At most the
 * largest bound; null if there were no calls.
 */
export function quantileOf({ boundsS, counts }: Buckets, quantile: number): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0 || boundsS.length === 0) return null;
  const rank = quantile * total;
  let below = 0;
  for (const [i, upper] of boundsS.entries()) {
    const count = counts[i] ?? 0;
    if (count > 0 && below + count >= rank) {
      const lower = i === 0 ? 0 : (boundsS[i - 1] as number);
      return lower + (upper - lower) * ((rank - below) / count);
    }
    below += count;
  }
  return boundsS.at(-1) as number;
}
