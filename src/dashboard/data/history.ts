import type { ClusterHistory, HistoryCount, HistoryReport } from '../../metrics/history-report.js';
import type { ClusterReport } from '../../metrics/node-report.js';
import {
  addCounts,
  amount,
  type Counts,
  countsBetween,
  countsOf,
  type Loose,
  type LooseReport,
  scaleCounts,
} from './counts.js';
import { type Fill, type Point, sumOf } from './points.js';

/** The history that the nodes have kept, with the same times for all nodes. */
export interface Past {
  /** Points of each node. */
  readonly nodes: ReadonlyMap<string, Point[]>;
  readonly cluster: Point[];
  /** The end of each node's points: its time, and the node's total counts by then. */
  readonly ends: ReadonlyMap<
    string,
    { readonly timeMs: number; readonly incarnation: number; readonly counts: Counts }
  >;
}

type LooseHistory = Loose<HistoryReport>;

/** Whether the value can be used as a history. Only a few fields are checked. */
export function isClusterHistory(value: unknown): value is ClusterHistory {
  if (typeof value !== 'object' || value === null) return false;
  const { time_ms, step_s, nodes } = value as Partial<ClusterHistory>;
  return Number.isFinite(time_ms) && amount(step_s) > 0 && Array.isArray(nodes);
}

/**
 * Aligns the intervals of all nodes, which begin at different times, to common times. The total counts stay the same.
 */
export function pastOf({ time_ms, step_s, nodes }: ClusterHistory): Past {
  const stepMs = step_s * 1000;
  const byNode = new Map<string, Point[]>();
  const ends = new Map<string, { timeMs: number; incarnation: number; counts: Counts }>();
  const bySlot = new Map<number, Point[]>();
  for (const node of nodes) {
    const rows = rowsOf(node, time_ms);
    const points = inSlots(rows, { endMs: time_ms, stepMs });
    byNode.set(node.node_id, points);
    const endMs = rows.at(-1)?.timeMs ?? time_ms - amount(node.from_age_ms);
    ends.set(node.node_id, { timeMs: endMs, incarnation: amount(node.incarnation), counts: totalsOf(node) });
    for (const point of points) bySlot.set(point.timeMs, [...(bySlot.get(point.timeMs) ?? []), point]);
  }
  return { nodes: byNode, cluster: clusterOf(bySlot, step_s), ends };
}

/**
 * The points of all nodes together. A node that was restarted, or is gone, has lost its history, which would look as if
 * the load had grown with each restart. A sum is therefore marked as partial if fewer nodes have a point than the other
 * nodes counted as members.
 */
function clusterOf(bySlot: ReadonlyMap<number, readonly Point[]>, seconds: number): Point[] {
  const slots = [...bySlot].sort(([a], [b]) => a - b);
  const missingOf = (points: readonly Point[]): number =>
    Math.max(...points.map(({ members }) => members ?? 0)) - points.length;
  // Nodes without a metrics server never have points.
  const never = Math.max(0, Math.min(...slots.map(([, points]) => missingOf(points))));
  return slots.map(([timeMs, points]) => {
    const sum = sumOf(points, { timeMs, seconds });
    return missingOf(points) > never ? { ...sum, isPartial: true } : sum;
  });
}

/** The intervals of a node as it has kept them, oldest first. */
function rowsOf(node: LooseHistory, timeMs: number): Point[] {
  const ages = node.ages_ms ?? [];
  const { gauges = {} } = node;
  return ages.map((age, i): Point => {
    const before = i === 0 ? node.from_age_ms : ages[i - 1];
    return {
      timeMs: timeMs - amount(age),
      seconds: Math.max(1, amount(before) - amount(age)) / 1000,
      counts: countsAt(node, (name) => amount(node.counts?.[name]?.[i]), i),
      poolPages: amount(gauges.pool_pages?.[i]),
      pool: { usedBytes: amount(gauges.pool_used_bytes?.[i]), capacityBytes: amount(gauges.pool_capacity_bytes?.[i]) },
      disk: { usedBytes: amount(gauges.disk_used_bytes?.[i]), capacityBytes: amount(gauges.disk_capacity_bytes?.[i]) },
      loopP99S: amount(gauges.loop_p99_s?.[i]),
      members: amount(gauges.members?.[i]),
    };
  });
}

/** Distributes the rows over slots of `stepMs`; the last slot ends at `endMs`. */
function inSlots(rows: readonly Point[], { endMs, stepMs }: { endMs: number; stepMs: number }): Point[] {
  const slots = new Map<number, Point>();
  for (const row of rows) {
    const [fromMs, toMs] = [row.timeMs - row.seconds * 1000, row.timeMs];
    const last = Math.floor((endMs - toMs) / stepMs);
    const first = Math.max(last, Math.ceil((endMs - fromMs) / stepMs) - 1);
    for (let slot = first; slot >= last; slot--) {
      const slotEndMs = endMs - slot * stepMs;
      const overlapMs = Math.min(toMs, slotEndMs) - Math.max(fromMs, slotEndMs - stepMs);
      if (overlapMs <= 0) continue;
      const counts = row.counts && scaleCounts(row.counts, overlapMs / (toMs - fromMs));
      const known = slots.get(slot);
      const both = known?.counts && counts ? addCounts(known.counts, counts) : counts;
      slots.set(slot, { ...row, timeMs: slotEndMs, seconds: (known?.seconds ?? 0) + overlapMs / 1000, counts: both });
    }
  }
  return [...slots.values()].sort((a, b) => a.timeMs - b.timeMs);
}

function totalsOf(node: LooseHistory): Counts {
  const { totals } = node;
  const calls = (totals?.read_buckets ?? []).map(amount);
  return {
    ...countsBy((name) => amount(totals?.counts?.[name])),
    readLatency: { boundsS: boundsOf(node), counts: calls },
  };
}

function countsAt(node: LooseHistory, of: (name: HistoryCount) => number, row: number): Counts {
  const boundsS = boundsOf(node);
  const buckets = node.read_latency?.buckets ?? {};
  const calls = Array.from({ length: boundsS.length + 1 }, (_, i) => amount(buckets[String(i)]?.[row]));
  return { ...countsBy(of), readLatency: { boundsS, counts: calls } };
}

function countsBy(of: (name: HistoryCount) => number): Omit<Counts, 'readLatency'> {
  return {
    local: of('local'),
    remote: of('remote'),
    disk: of('disk'),
    misses: of('misses'),
    localBytes: of('local_bytes'),
    remoteBytes: of('remote_bytes'),
    diskBytes: of('disk_bytes'),
    writes: of('writes'),
    writtenBytes: of('written_bytes'),
    asked: of('asked'),
    found: of('found'),
    evictions: of('evictions'),
  };
}

function boundsOf(node: LooseHistory): number[] {
  return (node.read_latency?.bounds_s ?? []).map(amount);
}

/** How long points are kept. */
export const HISTORY_MS = 5 * 60_000;
/** Most points that are kept, in case polls come faster than once a second. */
export const HISTORY_MAX_POINTS = 600;
/** Longest time between two reports of a node over which counts are compared. */
const GAP_MAX_MS = 10_000;
/** A report that is older than the last point by less than this was late. If it is older still, the clock went back. */
const LATE_MAX_MS = 5_000;

interface Sample {
  readonly timeMs: number;
  readonly incarnation: number;
  readonly counts: Counts;
}

/** The last minutes of each node and of all nodes together, from the nodes' own history and then from polls. */
export class History {
  #cluster: Point[] = [];
  readonly #nodes = new Map<string, Point[]>();
  readonly #last = new Map<string, Sample>();
  #lastMs: number | undefined;

  /** Starts with the history that the nodes have kept. Points of nodes that are not in it stay, as they may be gone. */
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

  /** Adds a report; false if it was seen before or is late. If the clock went back, the history starts anew. */
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
