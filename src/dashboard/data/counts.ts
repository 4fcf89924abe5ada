import type { Buckets } from '../../base/quantile.js';
import type { ClusterReport, NodeReport } from '../../metrics/node-report.js';

/** A report in which any field may be absent, because nodes of other versions may report less. */
export type Loose<T> = T extends readonly (infer Item)[]
  ? readonly Loose<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]?: Loose<T[Key]> }
    : T;

export type LooseReport = Loose<NodeReport>;

/** Whether the value can be used as a report. Only a few fields are checked. */
export function isClusterReport(value: unknown): value is ClusterReport {
  if (typeof value !== 'object' || value === null) return false;
  const { time_ms, nodes } = value as Partial<ClusterReport>;
  return Number.isFinite(time_ms) && Array.isArray(nodes);
}

/** The value if it is a finite number from 0 up, else 0. */
export function amount(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0;
}

/** Counts of a node since its start, or between two of its reports. They are pages unless the name says otherwise. */
export interface Counts {
  readonly local: number;
  readonly remote: number;
  readonly disk: number;
  readonly misses: number;
  readonly localBytes: number;
  readonly remoteBytes: number;
  readonly diskBytes: number;
  readonly writes: number;
  readonly writtenBytes: number;
  readonly asked: number;
  readonly found: number;
  readonly evictions: number;
  /** Latency of read calls, over all sources. */
  readonly readLatency: Buckets;
}

type Plain = Exclude<keyof Counts, 'readLatency'>;
const PLAIN: readonly Plain[] = [
  'local',
  'remote',
  'disk',
  'misses',
  'localBytes',
  'remoteBytes',
  'diskBytes',
  'writes',
  'writtenBytes',
  'asked',
  'found',
  'evictions',
];

const NO_BUCKETS: Buckets = { boundsS: [], counts: [] };
export const NO_COUNTS: Counts = {
  local: 0,
  remote: 0,
  disk: 0,
  misses: 0,
  localBytes: 0,
  remoteBytes: 0,
  diskBytes: 0,
  writes: 0,
  writtenBytes: 0,
  asked: 0,
  found: 0,
  evictions: 0,
  readLatency: NO_BUCKETS,
};

export function countsOf(report: LooseReport): Counts {
  const { reads, read_bytes, writes, lookups, latency, pool } = report;
  const boundsS = (latency?.bounds_s ?? []).map(amount);
  const bySource = [latency?.read?.local, latency?.read?.remote, latency?.read?.disk];
  return {
    local: amount(reads?.local),
    remote: amount(reads?.remote),
    disk: amount(reads?.disk),
    misses: amount(reads?.misses),
    localBytes: amount(read_bytes?.local),
    remoteBytes: amount(read_bytes?.remote),
    diskBytes: amount(read_bytes?.disk),
    writes: amount(writes?.pages),
    writtenBytes: amount(writes?.bytes),
    asked: amount(lookups?.asked),
    found: amount(lookups?.found),
    evictions: amount(pool?.evictions),
    readLatency: bySource.reduce<Buckets>(
      (sum, source) => addBuckets(sum, { boundsS, counts: (source?.buckets ?? []).map(amount) }),
      NO_BUCKETS,
    ),
  };
}

export function addCounts(a: Counts, b: Counts): Counts {
  return combine(a, b, (x, y) => x + y, addBuckets(a.readLatency, b.readLatency));
}

/** Counts from `earlier` to `later`; null if a count fell, which means that the node was restarted. */
export function countsBetween(earlier: Counts, later: Counts): Counts | null {
  if (PLAIN.some((name) => later[name] < earlier[name])) return null;
  const calls = later.readLatency.counts.map((count, i) => count - (earlier.readLatency.counts[i] ?? 0));
  if (calls.some((count) => count < 0)) return null;
  return combine(earlier, later, (x, y) => y - x, { boundsS: later.readLatency.boundsS, counts: calls });
}

/** Adds buckets. If the bounds differ, as between versions, the result is `a`. */
export function addBuckets(a: Buckets, b: Buckets): Buckets {
  if (a.counts.length === 0) return b;
  if (b.counts.length === 0 || !isSame(a.boundsS, b.boundsS)) return a;
  return { boundsS: a.boundsS, counts: a.counts.map((count, i) => count + (b.counts[i] ?? 0)) };
}

/** Pages that were read. */
export function hitsOf(counts: Counts): number {
  return counts.local + counts.remote + counts.disk;
}

/** Bytes of the pages that were read, which need not be computed again. */
export function readBytesOf(counts: Counts): number {
  return counts.localBytes + counts.remoteBytes + counts.diskBytes;
}

/** A share (0 to 1) of the counts, for an interval that lies partly in another one. */
export function scaleCounts(counts: Counts, share: number): Counts {
  if (share === 1) return counts;
  const { boundsS, counts: calls } = counts.readLatency;
  return combine(counts, counts, (x) => x * share, { boundsS, counts: calls.map((count) => count * share) });
}

/** `part` relative to `whole`; null if `whole` is 0. */
export function shareOf(part: number, whole: number): number | null {
  return whole > 0 ? part / whole : null;
}

function combine(a: Counts, b: Counts, merge: (x: number, y: number) => number, readLatency: Buckets): Counts {
  const plain = Object.fromEntries(PLAIN.map((name) => [name, merge(a[name], b[name])])) as Record<Plain, number>;
  return { ...plain, readLatency };
}

function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a === b || (a.length === b.length && a.every((value, i) => value === b[i]));
}
