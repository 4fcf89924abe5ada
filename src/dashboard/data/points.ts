import { addCounts, type Counts, NO_COUNTS } from './counts.js';

export interface Fill {
  readonly usedBytes: number;
  readonly capacityBytes: number;
}

/** Values at one point in time, as opposed to counts. */
interface Gauges {
  readonly poolPages: number;
  readonly pool: Fill;
  /** Fill of the disk tier; a capacity of 0 means no disk tier. */
  readonly disk: Fill;
  /** The 99th percentile of event loop delay in seconds; the highest one of several nodes. */
  readonly loopP99S: number;
  /** Number of members that the node knew; absent for sums of several nodes, 0 if the node did not record it. */
  readonly members?: number;
}

/** The figures of one interval. */
export interface Point extends Gauges {
  /** End of the interval by the wall clock of the answering node. */
  readonly timeMs: number;
  readonly seconds: number;
  /** Counts of the interval; null after a gap or a restart. */
  readonly counts: Counts | null;
  /**
   * True for a sum of several nodes if some of their counts are unknown. The sum is then too small, but shares are
   * still valid.
   */
  readonly isPartial?: boolean;
}

/** Counts over some seconds. */
interface Recent {
  readonly seconds: number;
  readonly counts: Counts;
}

/** Sums the newest points before `end` that cover at least `seconds`, or as many as there are up to the last gap. */
export function recentOf(points: readonly Point[], seconds: number, end = points.length): Recent {
  let counts = NO_COUNTS;
  let covered = 0;
  for (let i = end - 1; i >= 0 && covered < seconds; i--) {
    const point = points[i] as Point;
    if (point.counts === null || point.isPartial) break;
    counts = addCounts(counts, point.counts);
    covered += point.seconds;
  }
  return { seconds: covered, counts };
}

/** Sums the counts of all points, including those before gaps. */
export function totalOf(points: readonly Point[]): Recent {
  let counts = NO_COUNTS;
  let seconds = 0;
  for (const point of points) {
    if (point.counts === null) continue;
    counts = addCounts(counts, point.counts);
    seconds += point.seconds;
  }
  return { seconds, counts };
}

/** Sums the points of several nodes over the same interval. */
export function sumOf(points: readonly Point[], at: { timeMs: number; seconds: number }): Point {
  const counted = points.flatMap(({ counts }) => (counts === null ? [] : [counts]));
  return {
    ...at,
    counts: counted.length === 0 ? null : counted.reduce(addCounts),
    isPartial: counted.length < points.length,
    poolPages: points.reduce((sum, { poolPages }) => sum + poolPages, 0),
    pool: addFills(points.map(({ pool }) => pool)),
    disk: addFills(points.map(({ disk }) => disk)),
    loopP99S: Math.max(0, ...points.map(({ loopP99S }) => loopP99S)),
  };
}

export function fillShare({ usedBytes, capacityBytes }: Fill): number | null {
  return capacityBytes > 0 ? Math.min(1, usedBytes / capacityBytes) : null;
}

function addFills(fills: readonly Fill[]): Fill {
  return {
    usedBytes: fills.reduce((sum, { usedBytes }) => sum + usedBytes, 0),
    capacityBytes: fills.reduce((sum, { capacityBytes }) => sum + capacityBytes, 0),
  };
}
