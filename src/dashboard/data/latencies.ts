import { quantileOf } from '../../base/quantile.js';
import type { Point } from './points.js';

/**
 * At each point, a quantile of the read calls of the `windowS` seconds before it; null where there were none, and not
 * across gaps.
 */
export function slidingQuantile(points: readonly Point[], quantile: number, windowS: number): (number | null)[] {
  let boundsS: readonly number[] = [];
  let sums: number[] = [];
  let seconds = 0;
  let first = 0;
  return points.map((point, i) => {
    const latency = point.counts?.readLatency;
    if (latency === undefined || latency.boundsS.length !== boundsS.length) {
      boundsS = latency?.boundsS ?? [];
      sums = new Array(boundsS.length + 1).fill(0);
      seconds = 0;
      first = latency === undefined ? i + 1 : i;
    }
    if (latency === undefined) return null;
    add(sums, latency.counts, 1);
    seconds += point.seconds;
    while (first < i && seconds - (points[first] as Point).seconds >= windowS) {
      const oldest = points[first++] as Point;
      add(sums, oldest.counts?.readLatency.counts ?? [], -1);
      seconds -= oldest.seconds;
    }
    // Shares of calls do not cancel out exactly.
    return quantileOf({ boundsS, counts: sums.map((sum) => (sum < 1e-6 ? 0 : sum)) }, quantile);
  });
}

function add(sums: number[], counts: readonly number[], sign: 1 | -1): void {
  for (const [i, count] of counts.entries()) if (i < sums.length) sums[i] = (sums[i] as number) + sign * count;
}
