import { quantileOf } from '../../base/quantile.js';
import type { Point } from './points.js';

/** Seconds between two points above which they are not joined, as nothing is known of the time between. */
const GAP_MIN_S = 15;

/** Values over time, a column for each line of a chart; null where nothing is known. */
interface Columns {
  /** Wall-clock seconds, ascending. */
  readonly timesS: readonly number[];
  readonly columns: readonly (readonly (number | null)[])[];
}

/**
 * One column for each of `valuesOf`, with an unknown point wherever time is missing. `stepS`: seconds between two
 * points as a rule.
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

/** Brings columns of several nodes onto the times of `of`. */
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

/** Spans of time that the page can show; each is kept by the nodes in steps of its own. */
export const RANGES = [
  { minutes: 5, stepS: 2, label: '5 min', words: 'last 5 min' },
  { minutes: 30, stepS: 10, label: '30 min', words: 'last 30 min' },
  { minutes: 60, stepS: 60, label: '1 h', words: 'last hour' },
] as const;

export type Range = (typeof RANGES)[number];
