import type { PageEventSource } from './event-stream.js';
import type { ClusterHistory } from './history-report.js';
import type { PageAdvice } from './page-advice.js';

/*
 * The report of a node about itself, for the dashboard, for `meshcache status` and for other nodes. Reports are plain
 * records that survive JSON and msgpack, in snake_case, with base units in the names. Fields are only ever added, and
 * readers treat absent ones as unknown, so that versions can be mixed. Counts are since the node's start.
 */

/** Latencies of one kind of call: their count, their sum, and the count per bucket. */
export interface LatencyReport {
  readonly count: number;
  readonly sum_s: number;
  /** Calls per bucket, not cumulative: one bucket for each bound of `bounds_s`, and a last one for longer calls. */
  readonly buckets: readonly number[];
}

/** Counts by the location of the other node: on this node's host, in its zone, or in another zone. */
export interface ByDistance {
  readonly host: number;
  readonly zone: number;
  readonly other: number;
}

/** Counts of `Metrics` itself. */
export interface MetricsReport {
  /** Pages read, by source. */
  readonly reads: {
    readonly local: number;
    readonly remote: number;
    readonly disk: number;
    readonly object: number;
    readonly misses: number;
  };
  readonly read_bytes: {
    readonly local: number;
    readonly remote: number;
    readonly disk: number;
    readonly object: number;
  };
  readonly writes: { readonly pages: number; readonly bytes: number };
  /** Pages of `batchExists`: how many were looked up, and how many were found before the first miss. */
  readonly lookups: { readonly asked: number; readonly found: number };
  readonly latency: {
    /** Upper bounds of the buckets, seconds, ascending. */
    readonly bounds_s: readonly number[];
    readonly read: {
      readonly local: LatencyReport;
      readonly remote: LatencyReport;
      readonly disk: LatencyReport;
      readonly object: LatencyReport;
    };
    readonly write: LatencyReport;
  };
  /** Pages whose bytes did not match their checksum; each was reported as a miss. */
  readonly checksum_failures: number;
  /** Pages that could not be read where the directory listed them. */
  readonly stale_reads: number;
  /**
   * Pages that were not published, because there was no room, they were too large, or no directory owner accepted them.
   */
  readonly skipped_writes: number;
  /**
   * Pages and bytes read from other nodes, and keys that directory owners were asked for. Absent while all are 0, as on
   * a node without a zone.
   */
  readonly by_distance?: {
    readonly read_pages: ByDistance;
    readonly read_bytes: ByDistance;
    readonly directory_keys: ByDistance;
  };
  readonly event_loop_delay: { readonly p50_s: number; readonly p99_s: number; readonly max_s: number };
}

/** An event that an operator may want to know about: a warning, or a member that joined or left. */
export interface NodeEvent {
  /** Number of the event, from 1 on, so that readers can recognize new ones. */
  readonly id: number;
  /** Wall clock of the node, milliseconds. */
  readonly time_ms: number;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number | boolean>>;
}

/** Whether a node is working properly. */
export interface HealthReport {
  readonly status: 'ok' | 'degraded';
  /** Reasons in words for an operator; empty if the status is ok. */
  readonly reasons: readonly string[];
}

/** A process that is attached to the client socket of a node. Counts are since it attached. */
export interface ClientReport {
  /** Name that the client chose; several clients may have the same name. */
  readonly name: string;
  /** Process id in the client's own PID namespace. */
  readonly pid: number;
  /** How the client's pages travel: `direct`, `staged` or `bytes`. */
  readonly mode: string;
  readonly requests: number;
  /** Requests that were refused or failed. */
  readonly errors: number;
  /** Requests that have not been answered yet. */
  readonly in_flight: number;
  /**
   * Pages that the client looked up, and how many were found before the first miss of their lookup (`found`). Absent
   * from earlier versions.
   */
  readonly lookups?: number;
  readonly found?: number;
  /** Pages that the client read, or tried to read. */
  readonly hits: number;
  readonly misses: number;
  readonly pages_written: number;
  /** Bytes of the pages that the client has read (`read_bytes`) and written (`written_bytes`). */
  readonly read_bytes: number;
  readonly written_bytes: number;
  /** Memory that the node has mapped for the client, including staging memory. */
  readonly mapped_bytes: number;
}

/** A namespace of attached clients. Texts that a client omitted are empty. */
export interface NamespaceReport {
  /** 32 hexadecimal characters. Namespaces with the same digest share their pages, on all nodes. */
  readonly digest: string;
  readonly model_name: string;
  readonly dtype: string;
  readonly layout: string;
  readonly tag: string;
  readonly fingerprint: string;
  /** With `is_mla`, the pages of all tensor-parallel ranks are the same, so the rank does not matter. */
  readonly tp_rank: number;
  readonly tp_size: number;
  readonly pp_rank: number;
  readonly pp_size: number;
  readonly is_mla: boolean;
  /** Number of attached clients, and their distinct names; at most NODE_REPORT_CLIENTS_MAX_COUNT names. */
  readonly attached: number;
  readonly clients: readonly string[];
}

/** The client socket of a node, and its attached clients. */
export interface ClientsReport {
  /** Path of the socket, on the node's host. */
  readonly socket: string;
  /** Number of attached clients. */
  readonly attached: number;
  /** Clients with the most bytes first; at most NODE_REPORT_CLIENTS_MAX_COUNT. */
  readonly busiest: readonly ClientReport[];
  /** Namespaces of the attached clients; at most NODE_REPORT_NAMESPACES_MAX_COUNT. Absent from earlier versions. */
  readonly namespaces?: readonly NamespaceReport[];
}

/** What a node has read from its object store and sent there since its start. */
export interface ObjectStoreReport {
  readonly read_pages: number;
  readonly read_bytes: number;
  readonly sent_pages: number;
  readonly sent_bytes: number;
  /** Pages that wait to be sent or are being sent. */
  readonly queue_pages: number;
  /** Failed requests. */
  readonly errors: number;
  /**
   * Why the last request failed, until a request of its kind (reading or writing) succeeds; null if none has failed
   * since.
   */
  readonly failure: string | null;
}

/** The door of a node for Redis clients. Counts are since the node's start. */
export interface RedisReport {
  /** Addresses at which clients reach it: `host:port`, the path of a Unix socket, or both. */
  readonly addresses: readonly string[];
  /** Number of open connections. */
  readonly connections: number;
  /** Commands that were executed or refused. */
  readonly commands: number;
}

/** Space that the pages of a namespace tag take in a tier, and the tag's quota there. Bytes include padding. */
export interface QuotaUse {
  readonly entries: number;
  readonly used_bytes: number;
  /** Bytes that are reserved for the tag: pages of other tags do not displace them. */
  readonly min_bytes: number;
  /** Most bytes that the tag may take. */
  readonly max_bytes: number;
  /** Pages of the tag that were evicted since the node's start. */
  readonly evictions: number;
}

/** A namespace tag with a quota on a node, or `other` for all tags without one. */
export interface QuotaReport {
  readonly namespace: string;
  readonly pool: QuotaUse;
  /** Disk tier; null without one. */
  readonly disk: QuotaUse | null;
  /** Namespaces and pools of the tag that the node knows, and failed uses of further ones; absent for `other`. */
  readonly prefixes?: { readonly known: number; readonly refused: number };
}

/** Pages that were brought into the pool of a node before they were read, since its start. */
export interface PrefetchedReport {
  readonly brought: number;
  readonly used: number;
  /** Pages that have left the pool unread, or were not read in time. */
  readonly wasted: number;
  /** Bytes of pages that have not been read yet. */
  readonly unread_bytes: number;
}

/** Pages that are pinned on a node until somebody ends their pin by its name. */
export interface NamedPinReport {
  /** Digest of the namespace, as object keys begin with it. */
  readonly namespace: string;
  readonly name: string;
  readonly pages: number;
  readonly bytes: number;
}

/** What a node did in the last seconds, so that nodes can be compared; null if there is nothing to measure. */
export interface RecentReport {
  /** Seconds that the figures cover, except for the page lifetime. */
  readonly window_s: number;
  readonly read_p50_s: number | null;
  readonly read_p99_s: number | null;
  readonly read_bytes_per_s: number;
  readonly written_bytes_per_s: number;
  readonly evictions_per_s: number;
  /** Pages of `batchExists`: how many were looked up, and how many were found before the first miss. */
  readonly lookups: { readonly asked: number; readonly found: number };
  /**
   * Estimated seconds until a page is evicted: pages in the pool divided by the eviction rate of the last minutes; null
   * while none is evicted.
   */
  readonly page_lifetime_s: number | null;
}

/** Source from which a node learns the addresses of the others. */
export interface DiscoveryReport {
  /** The source, as named in `discovery_addr`. */
  readonly source: string;
  /** Number of addresses in its last answer. */
  readonly found: number;
  /** Seconds since its last answer; null if it has not answered yet. */
  readonly answered_ago_s: number | null;
  /** Why the source does not answer or rejects what this node registers; empty if all is well. */
  readonly trouble: string;
}

/** A node that was a member and no longer is. */
export interface DepartedNode {
  readonly node_id: string;
  readonly incarnation: number;
  readonly control_endpoint: string;
  /**
   * How it left. `lost`: its heartbeats stopped, as after a crash. `left`: it said goodbye, because it was stopped or
   * drained.
   */
  readonly how: 'lost' | 'left';
  /** Wall-clock milliseconds at which the reporting node noticed. */
  readonly time_ms: number;
}

/** A node that joined or went away. */
export interface MemberEvent {
  readonly node_id: string;
  /** Incarnation of the node that joined or went away. */
  readonly incarnation: number;
  readonly change: 'joined' | 'restarted' | 'left' | 'lost';
  /** Wall-clock milliseconds at which the reporting node noticed. */
  readonly time_ms: number;
}

/** Pages and bytes that a node has placed on storage nodes since its start. */
export interface PlacementReport {
  readonly placed_pages: number;
  readonly placed_bytes: number;
  readonly failed_pages: number;
  /** Pages that wait to be placed or are on their way. */
  readonly unplaced_pages: number;
  /** Pages of its pool that a storage node also has, and their bytes. */
  readonly pool_placed_pages: number;
  readonly pool_placed_bytes: number;
}

/** The complete report of a node about itself. */
export interface NodeReport extends MetricsReport {
  readonly node_id: string;
  readonly version: string;
  /** Wall-clock milliseconds of the node's start. */
  readonly incarnation: number;
  readonly uptime_s: number;
  /** Rack or zone of the node's host; absent if it has none. */
  readonly zone?: string;
  readonly vnodes: number;
  /** Whether this node runs the discovery head. */
  readonly is_meta: boolean;
  /** `host:port` of the discovery masters that hold a seat, as this node sees it. */
  readonly masters: readonly string[];
  /** Ids of nodes whose pages this node cannot read now, at most 16; absent if there are none. */
  readonly unreachable?: readonly string[];
  readonly protocols: readonly string[];
  readonly control_endpoint: string;
  readonly data_endpoint: string;
  /** Transport of this node's reads (`rdma` or `tcp`), if the other side supports it, too. */
  readonly data_protocol: string;
  /** The requested transport, and why another one is in use; the reason is empty otherwise. */
  readonly transport: { readonly wanted: string; readonly reason: string };
  /** `host:port` of the metrics server; empty if there is none. */
  readonly metrics_endpoint: string;
  /** Whether the metrics server uses HTTPS; absent if it uses HTTP. */
  readonly metrics_tls?: boolean;
  /** The DNS or etcd source where this node finds the others; absent with a list of addresses. */
  readonly discovery?: DiscoveryReport;
  /** Live nodes that this node knows, including itself. */
  readonly members: number;
  /**
   * Seconds by which its machine's clock is ahead of the median of the members; negative if behind. Absent from nodes
   * that do not know it.
   */
  readonly clock_offset_s?: number;
  readonly health: HealthReport;
  readonly directory: { readonly keys: number };
  readonly pool: {
    readonly entries: number;
    readonly used_bytes: number;
    readonly capacity_bytes: number;
    readonly quarantined_bytes: number;
    readonly evictions: number;
    /**
     * Only with `pool_path`: pages from before the restart that were found again, their bytes, and pages that were not
     * reused.
     */
    readonly found_pages?: number;
    readonly found_bytes?: number;
    readonly refused_pages?: number;
  };
  /** Disk tier; null if there is none. */
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
  /** Whether the node accepts pages of others, and where it keeps its own; absent from earlier versions. */
  readonly role?: string;
  /**
   * Settings that are usually the same on all nodes, by their configuration keys; objects and lists are JSON. Absent
   * from earlier versions.
   */
  readonly settings?: Readonly<Record<string, string | number | boolean>>;
  readonly write_policy?: string;
  /** What the node has placed on storage nodes; absent if it keeps all pages itself. */
  readonly placement?: PlacementReport;
  /** Object store; absent without one. */
  readonly object_store?: ObjectStoreReport;
  /** Client socket; absent without one. */
  readonly clients?: ClientsReport;
  /** Door for Redis clients; absent without one. */
  readonly redis?: RedisReport;
  /** Quotas by namespace, `other` first; absent without any. */
  readonly quotas?: readonly QuotaReport[];
  /** Pages that were prefetched; absent without any. */
  readonly prefetched?: PrefetchedReport;
  /** Pins with names; absent without any. */
  readonly named_pins?: readonly NamedPinReport[];
  readonly rss_bytes: number;
  /** The most recent events, oldest first; at most NODE_EVENTS_MAX_COUNT. */
  readonly events: readonly NodeEvent[];
  /** Absent from nodes without a metrics server, and in the first seconds. */
  readonly recent?: RecentReport;
  /**
   * Nodes that this node has seen go and that have not come back: lost ones of the last day, and ones that left in the
   * last hour.
   */
  readonly departed?: readonly DepartedNode[];
  /** Nodes that joined or went away while this node was a member, oldest first; at most MEMBER_EVENTS_MAX_COUNT. */
  readonly member_events?: readonly MemberEvent[];
}

/** A member of the cluster as the answering node sees it now. */
export type ClusterNode = {
  readonly node_id: string;
  readonly control_endpoint: string;
  /** Share of the key space that this node owns, 0 to 1. */
  readonly ring_share: number;
} & (
  | { readonly state: 'up'; readonly report: NodeReport }
  /** The node is still a member, but does not answer. */
  | { readonly state: 'unreachable'; readonly error: string }
);

/** All members as the answering node sees them. */
export interface ClusterReport {
  /** Id of the answering node. */
  readonly node_id: string;
  /** Wall-clock milliseconds of the answering node. */
  readonly time_ms: number;
  readonly heartbeat_interval_s: number;
  /** Seconds without a heartbeat after which a node is lost. */
  readonly member_ttl_s?: number;
  /** Nodes that some member has seen go and that have not come back, each once. */
  readonly departed?: readonly DepartedNode[];
  /** Nodes that joined or went away, as the first member noticed it; each change once, oldest first. */
  readonly member_events?: readonly MemberEvent[];
  /** Members by node id, including the answering node. */
  readonly nodes: readonly ClusterNode[];
}

/** The metrics server's view of a node. */
export interface NodeView {
  /** Returns the node's current health without asking other nodes. */
  health(): HealthReport;
  /** Returns the report of this node alone. */
  report(): Promise<NodeReport>;
  /** Asks all members. Those that do not answer within a second are unreachable. Never rejects. */
  cluster(): Promise<ClusterReport>;
  /** Returns the figures of all members over time, in steps of HISTORY_STEPS_S. */
  history?(stepS: number): Promise<ClusterHistory>;
  /** Returns the events of this node's pages; undefined while the node is starting. */
  events?(): PageEventSource | undefined;
  /** Returns who takes advice about pages that will be read soon; undefined while the node is starting. */
  advice?(): PageAdvice | undefined;
}

/** Parts of a report that describe other members. */
interface MemberNews {
  readonly departed?: readonly DepartedNode[];
  readonly member_events?: readonly MemberEvent[];
}

/**
 * Merges the departed nodes of these reports: each node once, with the earliest time that any report has, the last to
 * go first. If one node heard a goodbye, it counts, even if others only missed heartbeats. `members` are the ids of
 * live nodes, which have come back.
 */
export function mergeDeparted(reports: readonly MemberNews[], members: ReadonlySet<string>): DepartedNode[] {
  const byNode = new Map<string, DepartedNode>();
  for (const one of reports.flatMap(({ departed = [] }) => departed)) {
    if (members.has(one.node_id)) continue;
    const known = byNode.get(one.node_id);
    const isSameStart = known?.incarnation === one.incarnation;
    if (known !== undefined && !isSameStart && known.incarnation > one.incarnation) continue;
    if (known === undefined || !isSameStart) byNode.set(one.node_id, one);
    else {
      const how = known.how === 'left' || one.how === 'left' ? 'left' : 'lost';
      byNode.set(one.node_id, { ...known, how, time_ms: Math.min(known.time_ms, one.time_ms) });
    }
  }
  return [...byNode.values()].sort((a, b) => b.time_ms - a.time_ms);
}

/**
 * Merges the member events of these reports: each change once, with the earliest time that any report has, oldest
 * first.
 */
export function mergeMemberEvents(reports: readonly MemberNews[]): MemberEvent[] {
  const byChange = new Map<string, MemberEvent>();
  for (const event of reports.flatMap(({ member_events = [] }) => member_events)) {
    const isGone = event.change === 'left' || event.change === 'lost';
    const key = JSON.stringify([event.node_id, event.incarnation, isGone]);
    const known = byChange.get(key);
    if (known === undefined) byChange.set(key, event);
    else {
      const change = known.change === 'lost' || known.change === 'joined' ? event.change : known.change;
      byChange.set(key, { ...known, change, time_ms: Math.min(known.time_ms, event.time_ms) });
    }
  }
  return [...byChange.values()].sort((a, b) => a.time_ms - b.time_ms);
}
