/*
 * What a node says of itself: to the dashboard, to `meshcache status` and to other nodes. Plain records that survive JSON and
 * msgpack, snake_case, base units in the names. Fields are only ever added, and readers take absent ones for unknown, so that
 * versions can be mixed. Counts are since the node's start.
 */

/** One kind of call: how many, how long in sum, and how many within each bound. */
export interface LatencyReport {
  readonly count: number;
  readonly sum_s: number;
  /** Calls by bucket, not cumulative: one for each bound of `bounds_s`, and a last one for what took longer. */
  readonly buckets: readonly number[];
}

/** What {@link Metrics} itself has counted. */
export interface MetricsReport {
  /** Pages. */
  readonly reads: { readonly local: number; readonly remote: number; readonly disk: number; readonly misses: number };
  readonly read_bytes: { readonly local: number; readonly remote: number; readonly disk: number };
  readonly writes: { readonly pages: number; readonly bytes: number };
  /** Pages of `batchExists`: asked for, and found from the first on without a gap. */
  readonly lookups: { readonly asked: number; readonly found: number };
  readonly latency: {
    /** Upper bounds of the buckets, seconds, ascending. */
    readonly bounds_s: readonly number[];
    readonly read: {
      readonly local: LatencyReport;
      readonly remote: LatencyReport;
      readonly disk: LatencyReport;
    };
    readonly write: LatencyReport;
  };
  /** Pages whose bytes did not have their checksum: caught, a miss. */
  readonly checksum_failures: number;
  /** Pages that could not be read where the directory said they were. */
  readonly stale_reads: number;
  /** Pages that were not published: no room, too large, or no directory owner took them. */
  readonly skipped_writes: number;
  readonly event_loop_delay: { readonly p50_s: number; readonly p99_s: number; readonly max_s: number };
}

/** Something that an operator may want to know of: a warning, or a member that came or went. */
export interface NodeEvent {
  /** Counted from 1, so that readers can tell new ones. */
  readonly id: number;
  /** Wall clock of the node, milliseconds. */
  readonly time_ms: number;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number | boolean>>;
}

/** Whether a node does what it is there for. */
export interface HealthReport {
  readonly status: 'ok' | 'degraded';
  /** Empty when ok; each says what is wrong in words for an operator. */
  readonly reasons: readonly string[];
}

/** A process that is attached to the client socket of a node. Counts are since it attached. */
export interface ClientReport {
  /** As it calls itself; several may have the same. */
  readonly name: string;
  /** In its own PID namespace. */
  readonly pid: number;
  /** How its pages go: `direct`, `staged` or `bytes`. */
  readonly mode: string;
  readonly requests: number;
  /** Requests that were refused or have failed. */
  readonly errors: number;
  /** Requests that have not been answered. */
  readonly in_flight: number;
  /** Pages. */
  readonly hits: number;
  readonly misses: number;
  readonly pages_written: number;
  /** Of the pages that it has read and written. */
  readonly read_bytes: number;
  readonly written_bytes: number;
  /** Memory that the node has mapped for it, staging memory included. */
  readonly mapped_bytes: number;
}

/** The client socket of a node, and who is attached to it. */
export interface ClientsReport {
  /** Path of the socket, on the node's host. */
  readonly socket: string;
  /** All that are attached. */
  readonly attached: number;
  /** Those that have moved most bytes, the first of them first; at most NODE_REPORT_CLIENTS_MAX_COUNT. */
  readonly busiest: readonly ClientReport[];
}

/** All that a node says of itself. */
export interface NodeReport extends MetricsReport {
  readonly node_id: string;
  readonly version: string;
  /** Wall-clock milliseconds of the node's start. */
  readonly incarnation: number;
  readonly uptime_s: number;
  readonly vnodes: number;
  /** Whether this node runs the discovery head. */
  readonly is_meta: boolean;
  /** `host:port` of the discovery masters that have a seat, as this node sees it. */
  readonly masters: readonly string[];
  readonly protocols: readonly string[];
  readonly control_endpoint: string;
  readonly data_endpoint: string;
  /** What this node reads by, where the other side speaks it too: `rdma` or `tcp`. */
  readonly data_protocol: string;
  /** What was asked for, and why something else is in use; the reason is empty when nothing else is. */
  readonly transport: { readonly wanted: string; readonly reason: string };
  /** `host:port` of the metrics server; empty when there is none. */
  readonly metrics_endpoint: string;
  /** Live nodes that this one knows, itself included. */
  readonly members: number;
  readonly health: HealthReport;
  readonly directory: { readonly keys: number };
  readonly pool: {
    readonly entries: number;
    readonly used_bytes: number;
    readonly capacity_bytes: number;
    readonly quarantined_bytes: number;
    readonly evictions: number;
  };
  /** Null without a disk tier. */
  readonly disk: {
    readonly entries: number;
    readonly used_bytes: number;
    readonly capacity_bytes: number;
    readonly queue_bytes: number;
    readonly skipped_pages: number;
    readonly corrupt_pages: number;
    readonly evictions: number;
    readonly write_errors: number;
  } | null;
  /** Absent without a client socket. */
  readonly clients?: ClientsReport;
  readonly rss_bytes: number;
  /** The most recent ones, oldest first; at most NODE_EVENTS_MAX_COUNT. */
  readonly events: readonly NodeEvent[];
}

/** A member of the cluster as the answering node sees it now. */
export type ClusterNode = {
  readonly node_id: string;
  readonly control_endpoint: string;
  /** This node's part of the key space, 0 to 1. */
  readonly ring_share: number;
} & (
  | { readonly state: 'up'; readonly report: NodeReport }
  /** Still a member, but it does not answer. */
  | { readonly state: 'unreachable'; readonly error: string }
);

/** All members as one of them sees them. */
export interface ClusterReport {
  /** Of the node that answers. */
  readonly node_id: string;
  /** Its wall clock, milliseconds. */
  readonly time_ms: number;
  readonly heartbeat_interval_s: number;
  /** By node id, the answering node included. */
  readonly nodes: readonly ClusterNode[];
}

/** A node as the metrics server shows it. */
export interface NodeView {
  /** Now, without asking anybody. */
  health(): HealthReport;
  /** Of this node alone. */
  report(): Promise<NodeReport>;
  /** Asks all members; those that do not answer within a second are unreachable. Never rejects. */
  cluster(): Promise<ClusterReport>;
}
