import type { ClusterReport } from '../../metrics/node-report.js';
import { type Counts, countsBetween, countsOf } from './counts.js';
import { amount, type LooseReport } from './loose.js';
import type { Past } from './past.js';
import { type Fill, type Point, sumOf } from './points.js';

/** Milliseconds of history that are kept. */
export const HISTORY_MS = 5 * 60_000;
/** Most points that are kept, for polls that come faster than once a second. */
export const HISTORY_MAX_POINTS = 600;
/** Longest time between two reports of a node that gives a rate. */
const GAP_MAX_MS = 10_000;
/** A report that is older than the last point by less than this was late; by more, the clock went back. */
const LATE_MAX_MS = 5_000;

interface Sample {
  readonly timeMs: number;
  readonly incarnation: number;
  readonly counts: Counts;
}

/** The last minutes of every node, and of all nodes together: what they have kept, and then every poll. */
export class History {
  #cluster: Point[] = [];
  readonly #nodes = new Map<string, Point[]>();
  readonly #last = new Map<string, Sample>();
  #lastMs: number | undefined;

  /** Begins with what the nodes have kept. Points of nodes that are not in it stay, as these may be gone. */
  begin({ nodes, cluster, ends }: Past): void {
    this.#cluster = cluster;
    for (const [nodeId, points] of nodes) this.#nodes.set(nodeId, points);
    for (const [nodeId, end] of ends) this.#last.set(nodeId, end);
    this.#lastMs = cluster.at(-1)?.timeMs;
  }

  /** Whether points are missing between the last one and `timeMs`. */
  isBehind(timeMs: number): boolean {
    return this.#lastMs === undefined || timeMs - this.#lastMs > GAP_MAX_MS;
  }

  /** Adds a report. False for a report that was seen before. A clock that went back starts the history anew. */
  record(report: ClusterReport): boolean {
    const timeMs = report.time_ms;
    const lastMs = this.#lastMs;
    if (lastMs !== undefined && timeMs <= lastMs && timeMs > lastMs - LATE_MAX_MS) return false;
    if (lastMs !== undefined && timeMs < lastMs) this.#clear();
    const seconds = lastMs === undefined ? 0 : Math.max(0, timeMs - lastMs) / 1000;
    const points: Point[] = [];
    for (const node of report.nodes) {
      if (node.state !== 'up') continue;
      const point = this.#pointOf(node.node_id, node.report, timeMs);
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

  #pointOf(nodeId: string, report: LooseReport, timeMs: number): Point {
    const sample = { timeMs, incarnation: amount(report.incarnation), counts: countsOf(report) };
    const before = this.#last.get(nodeId);
    this.#last.set(nodeId, sample);
    const sinceMs = before === undefined ? 0 : timeMs - before.timeMs;
    const isNext = before?.incarnation === sample.incarnation && sinceMs > 0 && sinceMs <= GAP_MAX_MS;
    return {
      timeMs,
      seconds: Math.max(0, sinceMs) / 1000,
      counts: isNext && before !== undefined ? countsBetween(before.counts, sample.counts) : null,
      poolPages: amount(report.pool?.entries),
      pool: fillOf(report.pool),
      disk: fillOf(report.disk ?? undefined),
      loopP99S: amount(report.event_loop_delay?.p99_s),
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

export function fillOf(report: { readonly used_bytes?: number; readonly capacity_bytes?: number } | undefined): Fill {
  return { usedBytes: amount(report?.used_bytes), capacityBytes: amount(report?.capacity_bytes) };
}

function pruned(points: Point[], beforeMs: number): Point[] {
  const first = points.findIndex(({ timeMs }) => timeMs >= beforeMs);
  if (first < 0) return [];
  return points.slice(Math.max(first, points.length - HISTORY_MAX_POINTS));
}
