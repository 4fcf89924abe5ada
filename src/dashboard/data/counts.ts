import { amount, type LooseReport } from './loose.js';

/** Calls by bucket: one for each upper bound in seconds, and a last one for longer calls. */
export interface Buckets {
  readonly boundsS: readonly number[];
  readonly counts: readonly number[];
}

/** Counts of a node since its start, or between two of its reports; pages unless the name says otherwise. */
export interface Counts {
  readonly local: number;
  readonly remote: number;
  readonly disk: number;
  readonly misses: number;
  readonly readBytes: number;
  readonly writes: number;
  readonly writtenBytes: number;
  readonly asked: number;
  readonly found: number;
  /** Latency of read calls, over all sources. */
  readonly readLatency: Buckets;
}

type Plain = Exclude<keyof Counts, 'readLatency'>;
const PLAIN: readonly Plain[] = [
  'local',
  'remote',
  'disk',
  'misses',
  'readBytes',
  'writes',
  'writtenBytes',
  'asked',
  'found',
];

export const NO_BUCKETS: Buckets = { boundsS: [], counts: [] };
export const NO_COUNTS: Counts = {
  local: 0,
  remote: 0,
  disk: 0,
  misses: 0,
  readBytes: 0,
  writes: 0,
  writtenBytes: 0,
  asked: 0,
  found: 0,
  readLatency: NO_BUCKETS,
};

export function countsOf(report: LooseReport): Counts {
  const { reads, read_bytes, writes, lookups, latency } = report;
  const boundsS = (latency?.bounds_s ?? []).map(amount);
  const bySource = [latency?.read?.local, latency?.read?.remote, latency?.read?.disk];
  return {
    local: amount(reads?.local),
    remote: amount(reads?.remote),
    disk: amount(reads?.disk),
    misses: amount(reads?.misses),
    readBytes: amount(read_bytes?.local) + amount(read_bytes?.remote) + amount(read_bytes?.disk),
    writes: amount(writes?.pages),
    writtenBytes: amount(writes?.bytes),
    asked: amount(lookups?.asked),
    found: amount(lookups?.found),
    readLatency: bySource.reduce<Buckets>(
      (sum, source) => addBuckets(sum, { boundsS, counts: (source?.buckets ?? []).map(amount) }),
      NO_BUCKETS,
    ),
  };
}

export function addCounts(a: Counts, b: Counts): Counts {
  return combine(a, b, (x, y) => x + y, addBuckets(a.readLatency, b.readLatency));
}

/** Counts from `earlier` to `later`; null if a count fell, as the node was restarted. */
export function countsBetween(earlier: Counts, later: Counts): Counts | null {
  if (PLAIN.some((name) => later[name] < earlier[name])) return null;
  const calls = later.readLatency.counts.map((count, i) => count - (earlier.readLatency.counts[i] ?? 0));
  if (calls.some((count) => count < 0)) return null;
  return combine(earlier, later, (x, y) => y - x, { boundsS: later.readLatency.boundsS, counts: calls });
}

/** Adds buckets. If the bounds differ (another version), the result is `a`. */
export function addBuckets(a: Buckets, b: Buckets): Buckets {
  if (a.counts.length === 0) return b;
  if (b.counts.length === 0 || !isSame(a.boundsS, b.boundsS)) return a;
  return { boundsS: a.boundsS, counts: a.counts.map((count, i) => count + (b.counts[i] ?? 0)) };
}

/** Pages that were read. */
export function hitsOf(counts: Counts): number {
  return counts.local + counts.remote + counts.disk;
}

/** `part` relative to `whole`; null if `whole` is 0. */
export function shareOf(part: number, whole: number): number | null {
  return whole > 0 ? part / whole : null;
}

/**
 * Seconds that the share `quantile` of all calls did not exceed, assuming an even spread within a bucket. At most the
 * largest bound; null without calls.
 */
export function quantileOf({ boundsS, counts }: Buckets, quantile: number): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0 || boundsS.length === 0) return null;
  const rank = quantile * total;
  let below = 0;
  for (const [i, upper] of boundsS.entries()) {
    const count = counts[i] ?? 0;
    if (count > 0 && below + count >= rank) {
      const lower = i === 0 ? 0 : (boundsS[i - 1] as number);
      return lower + (upper - lower) * ((rank - below) / count);
    }
    below += count;
  }
  return boundsS.at(-1) as number;
}

function combine(a: Counts, b: Counts, merge: (x: number, y: number) => number, readLatency: Buckets): Counts {
  const plain = Object.fromEntries(PLAIN.map((name) => [name, merge(a[name], b[name])])) as Record<Plain, number>;
  return { ...plain, readLatency };
}

function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a === b || (a.length === b.length && a.every((value, i) => value === b[i]));
}
