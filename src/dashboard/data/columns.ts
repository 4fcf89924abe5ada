import type { Point } from './points.js';

/** Seconds between two points above which they are not joined, as nothing is known of the time between. */
const GAP_MIN_S = 15;

/** Values over time, a column for each line of a chart; null where nothing is known. */
export interface Columns {
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
