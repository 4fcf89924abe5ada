/** Name of a count in a history. It counts pages unless the name says otherwise. */
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

/** Name of a value that a history records at the end of each interval. */
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

/** Counts and gauges of a node at one time. */
export interface HistorySample {
  /** Counts since the node's start. */
  readonly counts: Readonly<Record<HistoryCount, number>>;
  readonly gauges: Readonly<Record<HistoryGauge, number>>;
  /** Read calls by bucket of their latency, over all sources, since the node's start. */
  readonly readBuckets: readonly number[];
}

/**
 * Counts and gauges of a node over time: one column per name, one row per interval, oldest first. Times are ages (how
 * long before the answer), so that they mean the same to a reader with another clock. A column or bucket that is always
 * 0 is left out.
 */
export interface HistoryReport {
  readonly node_id: string;
  readonly incarnation: number;
  /** Age in milliseconds of the beginning of the first interval. */
  readonly from_age_ms: number;
  /** Age in milliseconds of the end of each interval. */
  readonly ages_ms: readonly number[];
  /** Increase of each count per interval. */
  readonly counts: { readonly [Name in HistoryCount]?: readonly number[] };
  /** Values at the end of each interval. */
  readonly gauges: { readonly [Name in HistoryGauge]?: readonly number[] };
  readonly read_latency: {
    readonly bounds_s: readonly number[];
    /** Calls per interval, by bucket number. The bucket after the last bound is for longer calls. */
    readonly buckets: Readonly<Record<string, readonly number[]>>;
  };
  /** The counts since the node's start at the end of the last interval, so that a reader can continue from them. */
  readonly totals: {
    readonly counts: { readonly [Name in HistoryCount]?: number };
    readonly read_buckets: readonly number[];
  };
}

/** The histories of all members that have one. */
export interface ClusterHistory {
  /** Id of the answering node. */
  readonly node_id: string;
  /** Wall-clock milliseconds of the answering node, from which ages are measured. */
  readonly time_ms: number;
  readonly step_s: number;
  readonly nodes: readonly HistoryReport[];
}
