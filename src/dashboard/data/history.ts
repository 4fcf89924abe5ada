import type { ClusterReport } from '../../metrics/node-report.js';
import { addCounts, type Counts, countsBetween, countsOf, NO_COUNTS } from './counts.js';
import { amount, type LooseReport } from './loose.js';

/** Milliseconds of history that are kept and shown in the charts. */
export const HISTORY_MS = 5 * 60_000;
/** Most points that are kept, for polls that come faster than once a second. */
export const HISTORY_MAX_POINTS = 600;

export interface Fill {
  readonly usedBytes: number;
  readonly capacityBytes: number;
}

/** The figures of one poll. */
export interface Point {
  /** Wall clock of the answering node. */
  readonly timeMs: number;
  /** Seconds since the poll before. */
  readonly seconds: number;
  /** Counts since the poll before; null after a gap or a restart. */
  readonly counts: Counts | null;
  readonly pool: Fill;
  /** Fill of the disk tier; capacity 0: no disk tier. */
  readonly disk: Fill;
}

/** Counts over some seconds up to now. */
export interface Recent {
  readonly seconds: number;
  readonly counts: Counts;
}

interface Sample {
  readonly timeMs: number;
  readonly incarnation: number;
  readonly counts: Counts;
}

/** The last minutes of every node, and of all nodes together. */
export class History {
  #cluster: Point[] = [];
  readonly #nodes = new Map<string, Point[]>();
  readonly #last = new Map<string, Sample>();
  #lastMs: number | undefined;

  /** Adds a report. False for a report that was seen before. A clock that went back starts the history anew. */
  record(report: ClusterReport): boolean {
    const timeMs = report.time_ms;
    const lastMs = this.#lastMs;
    if (timeMs === lastMs) return false;
    if (lastMs !== undefined && timeMs < lastMs) this.#clear();
    const seconds = lastMs === undefined ? 0 : Math.max(0, timeMs - lastMs) / 1000;
    const points: Point[] = [];
    for (const node of report.nodes) {
      if (node.state !== 'up') continue;
      const point = this.#pointOf(node.node_id, node.report, { timeMs, seconds });
      const history = this.#nodes.get(node.node_id) ?? [];
      history.push(point);
      this.#nodes.set(node.node_id, history);
      points.push(point);
    }
    this.#cluster.push(sumOf(points, { timeMs, seconds }));
    this.#lastMs = timeMs;
    this.#prune(timeMs - HISTORY_MS);
    return true;
  }

  /** Points of one node, or of all nodes; oldest first. */
  points(nodeId: string | null): readonly Point[] {
    return nodeId === null ? this.#cluster : (this.#nodes.get(nodeId) ?? []);
  }

  #pointOf(nodeId: string, report: LooseReport, at: { timeMs: number; seconds: number }): Point {
    const sample = { timeMs: at.timeMs, incarnation: amount(report.incarnation), counts: countsOf(report) };
    const before = this.#last.get(nodeId);
    this.#last.set(nodeId, sample);
    // Only polls that follow each other give a rate for the time between them.
    const isNext = before !== undefined && before.timeMs === this.#lastMs && before.incarnation === sample.incarnation;
    return {
      ...at,
      counts: isNext ? countsBetween(before.counts, sample.counts) : null,
      pool: fillOf(report.pool),
      disk: fillOf(report.disk ?? undefined),
    };
  }

  #prune(beforeMs: number): void {
    this.#cluster = pruned(this.#cluster, beforeMs);
    for (const [nodeId, points] of this.#nodes) {
      const rest = pruned(points, beforeMs);
      if (rest.length > 0) this.#nodes.set(nodeId, rest);
      else {
        this.#nodes.delete(nodeId);
        this.#last.delete(nodeId);
      }
    }
  }

  #clear(): void {
    this.#cluster = [];
    this.#nodes.clear();
    this.#last.clear();
    this.#lastMs = undefined;
  }
}

/** The newest points before `end` that make up at least `seconds`, or all there are; they do not reach across a gap. */
export function recentOf(points: readonly Point[], seconds: number, end = points.length): Recent {
  let counts = NO_COUNTS;
  let covered = 0;
  for (let i = end - 1; i >= 0 && covered < seconds; i--) {
    const point = points[i] as Point;
    if (point.counts === null) break;
    counts = addCounts(counts, point.counts);
    covered += point.seconds;
  }
  return { seconds: covered, counts };
}

export function fillShare({ usedBytes, capacityBytes }: Fill): number | null {
  return capacityBytes > 0 ? Math.min(1, usedBytes / capacityBytes) : null;
}

export function fillOf(report: { readonly used_bytes?: number; readonly capacity_bytes?: number } | undefined): Fill {
  return { usedBytes: amount(report?.used_bytes), capacityBytes: amount(report?.capacity_bytes) };
}

function sumOf(points: readonly Point[], at: { timeMs: number; seconds: number }): Point {
  const counted = points.flatMap(({ counts }) => (counts === null ? [] : [counts]));
  return {
    ...at,
    counts: counted.length === 0 ? null : counted.reduce(addCounts),
    pool: addFills(points.map(({ pool }) => pool)),
    disk: addFills(points.map(({ disk }) => disk)),
  };
}

function addFills(fills: readonly Fill[]): Fill {
  return {
    usedBytes: fills.reduce((sum, { usedBytes }) => sum + usedBytes, 0),
    capacityBytes: fills.reduce((sum, { capacityBytes }) => sum + capacityBytes, 0),
  };
}

function pruned(points: Point[], beforeMs: number): Point[] {
  const first = points.findIndex(({ timeMs }) => timeMs >= beforeMs);
  if (first < 0) return [];
  return points.slice(Math.max(first, points.length - HISTORY_MAX_POINTS));
}
