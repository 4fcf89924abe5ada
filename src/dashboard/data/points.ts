import { addCounts, type Counts, NO_COUNTS } from './counts.js';

export interface Fill {
  readonly usedBytes: number;
  readonly capacityBytes: number;
}

/** What is so at one time, and is not counted. */
interface Gauges {
  readonly poolPages: number;
  readonly pool: Fill;
  /** Fill of the disk tier; capacity 0: no disk tier. */
  readonly disk: Fill;
  /** Delay of the event loop that 99 of 100 turns keep below; the longest of several nodes. */
  readonly loopP99S: number;
  /** Members of the cluster that the node knew; absent for several nodes, and 0 for a node that did not note it. */
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
   * True for the sum of several nodes if the counts of some are not known: it is too small then, while shares are as
   * good as ever.
   */
  readonly isPartial?: boolean;
}

/** Counts over some seconds. */
interface Recent {
  readonly seconds: number;
  readonly counts: Counts;
}

/** The newest points before `end` that make up at least `seconds`, or all there are; they do not reach across a gap. */
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

/** All counts of the points, also of those before a gap. */
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

/** The point of several nodes together, over the same interval. */
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
