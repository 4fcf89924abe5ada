import { quantileOf } from '../../base/quantile.js';
import type { Point } from './points.js';

/** Two points further apart than this many seconds are not joined by a line, as the time between them is unknown. */
const GAP_MIN_S = 15;

/** Values over time, one column per line of a chart; null where nothing is known. */
interface Columns {
  /** Wall-clock seconds, ascending. */
  readonly timesS: readonly number[];
  readonly columns: readonly (readonly (number | null)[])[];
}

/**
 * One column for each of `valuesOf`, with an unknown point in every gap. `stepS` is the usual number of seconds between
 * two points.
 */
export function columnsOf(
  points: readonly Point[],
  stepS: number,
  valuesOf: readonly ((point: Point, index: number) => number | null)[],
): Columns {
  const timesS: number[] = [];
  const columns = valuesOf.map((): (number | null)[] => []);
  for (const [i, point] of points.entries()) {
    const timeS = point.timeMs / 1000;
    const lastS = timesS.at(-1);
    if (lastS !== undefined && timeS - lastS > Math.max(GAP_MIN_S, 2 * stepS)) {
      timesS.push(lastS + 1);
      for (const column of columns) column.push(null);
    }
    timesS.push(timeS);
    for (const [c, read] of valuesOf.entries()) columns[c]?.push(read(point, i));
  }
  return { timesS, columns };
}

/** Aligns the values of several nodes to the times of the points `of`; null where a node has no point. */
export function onTimesOf(
  of: readonly Point[],
  nodes: readonly { points: readonly Point[]; values: readonly (number | null)[] }[],
): Columns {
  const byTime = nodes.map(({ points, values }) => new Map(points.map(({ timeMs }, i) => [timeMs, values[i] ?? null])));
  const times = of.map(({ timeMs }) => timeMs);
  return {
    timesS: times.map((timeMs) => timeMs / 1000),
    columns: byTime.map((values) => times.map((timeMs) => values.get(timeMs) ?? null)),
  };
}

/**
 * For each point, a quantile of the latency of read calls in the `windowS` seconds before it. Windows do not extend
 * across gaps; the quantile is null where there were no calls.
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
    // Scaled counts are fractions, which do not cancel out exactly.
    return quantileOf({ boundsS, counts: sums.map((sum) => (sum < 1e-6 ? 0 : sum)) }, quantile);
  });
}

function add(sums: number[], counts: readonly number[], sign: 1 | -1): void {
  for (const [i, count] of counts.entries()) if (i < sums.length) sums[i] = (sums[i] as number) + sign * count;
}

/** Time spans that the page can show. The nodes keep each of them in steps of its own. */
export const RANGES = [
  { minutes: 5, stepS: 2, label: '5 min', words: 'last 5 min' },
  { minutes: 30, stepS: 10, label: '30 min', words: 'last 30 min' },
  { minutes: 60, stepS: 60, label: '1 h', words: 'last hour' },
] as const;

export type Range = (typeof RANGES)[number];
