/** A count of a history; pages unless the name says otherwise. */
export type HistoryCount =
  | 'local'
  | 'remote'
  | 'disk'
  | 'misses'
  | 'local_bytes'
  | 'remote_bytes'
  | 'disk_bytes'
  | 'writes'
  | 'written_bytes'
  | 'asked'
  | 'found'
  | 'evictions';

/** A figure that a history notes at the end of each interval. */
export type HistoryGauge =
  | 'pool_pages'
  | 'pool_used_bytes'
  | 'pool_capacity_bytes'
  | 'disk_used_bytes'
  | 'disk_capacity_bytes'
  | 'loop_p99_s'
  | 'members';

/** All counts, in the order of their columns. */
export const HISTORY_COUNTS: readonly HistoryCount[] = [
  'local',
  'remote',
  'disk',
  'misses',
  'local_bytes',
  'remote_bytes',
  'disk_bytes',
  'writes',
  'written_bytes',
  'asked',
  'found',
  'evictions',
];

/** All gauges, in the order of their columns. */
export const HISTORY_GAUGES: readonly HistoryGauge[] = [
  'pool_pages',
  'pool_used_bytes',
  'pool_capacity_bytes',
  'disk_used_bytes',
  'disk_capacity_bytes',
  'loop_p99_s',
  'members',
];

/** A node's figures at one time. */
export interface HistorySample {
  /** Since the node's start. */
  readonly counts: Readonly<Record<HistoryCount, number>>;
  readonly gauges: Readonly<Record<HistoryGauge, number>>;
  /** Read calls by bucket of their latency, over all sources, since the node's start. */
  readonly readBuckets: readonly number[];
}

/**
 * A node's figures over time, a column each and an interval a row, oldest first. Times are ages: how long before the
 * answer. So they mean the same to a reader with another clock. A column or bucket without any count is left out.
 */
export interface HistoryReport {
  readonly node_id: string;
  readonly incarnation: number;
  /** Milliseconds ago at which the first interval began. */
  readonly from_age_ms: number;
  /** Milliseconds ago at which each interval ended. */
  readonly ages_ms: readonly number[];
  /** Counts of each interval. */
  readonly counts: { readonly [Name in HistoryCount]?: readonly number[] };
  /** Values at the end of each interval. */
  readonly gauges: { readonly [Name in HistoryGauge]?: readonly number[] };
  readonly read_latency: {
    readonly bounds_s: readonly number[];
    /** Calls of each interval by the number of their bucket; the bucket behind the last bound is for longer calls. */
    readonly buckets: Readonly<Record<string, readonly number[]>>;
  };
  /** The counts at the end of the last interval, since the node's start: what a reader counts on from. */
  readonly totals: {
    readonly counts: { readonly [Name in HistoryCount]?: number };
    readonly read_buckets: readonly number[];
  };
}

/** The histories of all members that have one. */
export interface ClusterHistory {
  /** Id of the node that answers. */
  readonly node_id: string;
  /** Wall-clock milliseconds of the node that answers, from which ages count. */
  readonly time_ms: number;
  readonly step_s: number;
  readonly nodes: readonly HistoryReport[];
}
