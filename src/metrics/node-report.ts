import type { PageEventSource } from './event-stream.js';
import type { ClusterHistory } from './history-report.js';

/*
 * What a node says of itself: to the dashboard, to `meshcache status` and to other nodes. Plain records that survive JSON and
 * msgpack, snake_case, base units in the names. Fields are only ever added, and readers take absent ones for unknown, so that
 * versions can be mixed. Counts are since the node's start.
 */

/** One kind of call: how many, how long in sum, and how many within each bound. */
export interface LatencyReport {
  readonly count: number;
  readonly sum_s: number;
  /** Calls by bucket, not cumulative: one for each bound of `bounds_s`, and a last one for longer calls. */
  readonly buckets: readonly number[];
}

/** Counts by where another node is: on the host of this one, in its zone, or in another zone. */
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
  /** Pages of `batchExists`: looked up, and found from the first on without a gap. */
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
  /** Pages that were not published, as there was no room, they were too large, or no directory owner accepted them. */
  readonly skipped_writes: number;
  /**
   * Pages and bytes read from other nodes, and keys that directory owners were asked for; absent as long as all are 0,
   * as on a node without a zone.
   */
  readonly by_distance?: {
    readonly read_pages: ByDistance;
    readonly read_bytes: ByDistance;
    readonly directory_keys: ByDistance;
  };
  readonly event_loop_delay: { readonly p50_s: number; readonly p99_s: number; readonly max_s: number };
}

/** An event that an operator may want to know of: a warning, or a member that joined or left. */
export interface NodeEvent {
  /** Number of the event, from 1, so that readers can tell new ones. */
  readonly id: number;
  /** Wall clock of the node, milliseconds. */
  readonly time_ms: number;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number | boolean>>;
}

/** Whether a node works as it should. */
export interface HealthReport {
  readonly status: 'ok' | 'degraded';
  /** Reasons in words for an operator; empty when ok. */
  readonly reasons: readonly string[];
}

/** A process that is attached to the client socket of a node. Counts are since it attached. */
export interface ClientReport {
  /** Name that the client gave; several clients may have the same. */
  readonly name: string;
  /** Process id in the client's own PID namespace. */
  readonly pid: number;
  /** How the client's pages travel: `direct`, `staged` or `bytes`. */
  readonly mode: string;
  readonly requests: number;
  /** Requests that were refused or failed. */
  readonly errors: number;
  /** Requests that have not been answered. */
  readonly in_flight: number;
  /**
   * Pages that the client looked up, and those of them that were there from the first on without a gap; absent from
   * earlier versions.
   */
  readonly lookups?: number;
  readonly found?: number;
  /** Pages that the client read, or tried to read. */
  readonly hits: number;
  readonly misses: number;
  readonly pages_written: number;
  /** Bytes of the pages that the client has read; written ones follow. */
  readonly read_bytes: number;
  readonly written_bytes: number;
  /** Memory that the node has mapped for the client, staging memory included. */
  readonly mapped_bytes: number;
}

/** A namespace of attached clients. Texts that a client has left out are empty. */
export interface NamespaceReport {
  /** 32 hexadecimal characters; namespaces of one digest share their pages, on all nodes. */
  readonly digest: string;
  readonly model_name: string;
  readonly dtype: string;
  readonly layout: string;
  readonly tag: string;
  readonly fingerprint: string;
  /** With `is_mla` the pages of all tensor-parallel ranks are the same: the rank does not count. */
  readonly tp_rank: number;
  readonly tp_size: number;
  readonly pp_rank: number;
  readonly pp_size: number;
  readonly is_mla: boolean;
  /** Number of attached clients, and their names, each once; at most NODE_REPORT_CLIENTS_MAX_COUNT. */
  readonly attached: number;
  readonly clients: readonly string[];
}

/** The client socket of a node, and its attached clients. */
export interface ClientsReport {
  /** Path of the socket, on the node's host. */
  readonly socket: string;
  /** Number of attached clients. */
  readonly attached: number;
  /** Clients with the most bytes, the busiest first; at most NODE_REPORT_CLIENTS_MAX_COUNT. */
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
  /** Pages that wait to be sent, or are being sent. */
  readonly queue_pages: number;
  /** Requests that have failed. */
  readonly errors: number;
  /**
   * Why the last request has failed, until one of its kind, reading or writing, succeeds; null: none has failed since.
   */
  readonly failure: string | null;
}

/** The door of a node for Redis clients. Counts are since the node's start. */
export interface RedisReport {
  /** Where clients reach it: `host:port`, the path of a Unix socket, or both. */
  readonly addresses: readonly string[];
  /** Number of open connections. */
  readonly connections: number;
  /** Commands that were carried out or refused. */
  readonly commands: number;
}

/** What the pages of a namespace tag take of a tier, and its quota there. Bytes of pages are with their padding. */
export interface QuotaUse {
  readonly entries: number;
  readonly used_bytes: number;
  /** Bytes that the pages of other tags leave it. */
  readonly min_bytes: number;
  /** Most bytes that it takes. */
  readonly max_bytes: number;
  /** Pages of the tag that were evicted since the node's start. */
  readonly evictions: number;
}

/** A namespace tag with a quota on a node, or `other`: all tags without one. */
export interface QuotaReport {
  readonly namespace: string;
  readonly pool: QuotaUse;
  /** Disk tier; null without one. */
  readonly disk: QuotaUse | null;
  /** Namespaces and pools of the tag that the node knows, and uses of further ones that failed; absent for `other`. */
  readonly prefixes?: { readonly known: number; readonly refused: number };
}

/** What a node did in the last seconds, so that nodes can be compared; null where there is nothing to measure. */
export interface RecentReport {
  /** Seconds that the figures cover, but for the page lifetime. */
  readonly window_s: number;
  readonly read_p50_s: number | null;
  readonly read_p99_s: number | null;
  readonly read_bytes_per_s: number;
  readonly written_bytes_per_s: number;
  readonly evictions_per_s: number;
  /** Pages of `batchExists`: looked up, and found from the first on without a gap. */
  readonly lookups: { readonly asked: number; readonly found: number };
  /**
   * Seconds after which a page is evicted: pages in the pool by evictions of the last minutes; null while none is
   * evicted.
   */
  readonly page_lifetime_s: number | null;
}

/** Where a node learns at which addresses the others are. */
export interface DiscoveryReport {
  /** The source, as `discovery_addr` names it. */
  readonly source: string;
  /** Number of addresses in its last answer. */
  readonly found: number;
  /** Seconds since its last answer; null if it has not answered yet. */
  readonly answered_ago_s: number | null;
  /** Why it does not answer, or does not take what this node registers; empty if it does. */
  readonly trouble: string;
}

/** A node that was a member and is none now. */
export interface DepartedNode {
  readonly node_id: string;
  readonly incarnation: number;
  readonly control_endpoint: string;
  /** `lost`: its heartbeats stopped, as after a crash. `left`: it said good-bye, as when it is stopped or drained. */
  readonly how: 'lost' | 'left';
  /** Wall-clock milliseconds at which the reporting node noticed. */
  readonly time_ms: number;
}

/** A node that came or went. */
export interface MemberEvent {
  readonly node_id: string;
  /** The start of the node that came or went. */
  readonly incarnation: number;
  readonly change: 'joined' | 'restarted' | 'left' | 'lost';
  /** Wall-clock milliseconds at which the reporting node noticed. */
  readonly time_ms: number;
}

/** What a node has placed on storage nodes: pages, and bytes, since its start. */
export interface PlacementReport {
  readonly placed_pages: number;
  readonly placed_bytes: number;
  readonly failed_pages: number;
  /** Pages that wait to be placed, or are on their way. */
  readonly unplaced_pages: number;
  /** Pages of its pool that a storage node has, too, and their bytes. */
  readonly pool_placed_pages: number;
  readonly pool_placed_bytes: number;
}

/** The whole report of a node about itself. */
export interface NodeReport extends MetricsReport {
  readonly node_id: string;
  readonly version: string;
  /** Wall-clock milliseconds of the node's start. */
  readonly incarnation: number;
  readonly uptime_s: number;
  /** Rack or zone of the node's host; absent without one. */
  readonly zone?: string;
  readonly vnodes: number;
  /** Whether this node runs the discovery head. */
  readonly is_meta: boolean;
  /** `host:port` of the discovery masters that have a seat, as this node sees it. */
  readonly masters: readonly string[];
  /** Ids of nodes whose pages this node cannot read now, at most 16; absent: none. */
  readonly unreachable?: readonly string[];
  readonly protocols: readonly string[];
  readonly control_endpoint: string;
  readonly data_endpoint: string;
  /** Transport of this node's reads if the other side speaks it too: `rdma` or `tcp`. */
  readonly data_protocol: string;
  /** The transport that was asked for, and the reason if another one is in use, else an empty text. */
  readonly transport: { readonly wanted: string; readonly reason: string };
  /** `host:port` of the metrics server; empty if there is none. */
  readonly metrics_endpoint: string;
  /** Whether the metrics server speaks HTTPS; absent: it speaks HTTP. */
  readonly metrics_tls?: boolean;
  /** DNS or etcd, where this node finds the others; absent with a list of addresses. */
  readonly discovery?: DiscoveryReport;
  /** Live nodes that this one knows, itself included. */
  readonly members: number;
  /**
   * Seconds that the clock of its machine is ahead of the median of the members; negative: behind. Absent from nodes
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
     * With `pool_path`: pages of before that were found again when the node started, their bytes, and pages that were
     * not taken again.
     */
    readonly found_pages?: number;
    readonly found_bytes?: number;
    readonly refused_pages?: number;
  };
  /** Disk tier; null without one. */
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
  /** Whether the node takes pages of others, and where it keeps its own; absent from earlier versions. */
  readonly role?: string;
  /**
   * Settings that nodes have alike as a rule, by their configuration keys; objects and lists are JSON. Absent from
   * earlier versions.
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
  readonly rss_bytes: number;
  /** The most recent events, oldest first; at most NODE_EVENTS_MAX_COUNT. */
  readonly events: readonly NodeEvent[];
  /** Absent from nodes without a metrics server, and in the first seconds. */
  readonly recent?: RecentReport;
  /**
   * Nodes that this one has seen go and not come back: lost ones of the last day, and ones that left in the last hour.
   */
  readonly departed?: readonly DepartedNode[];
  /** Nodes that came and went while this one was a member, oldest first; at most MEMBER_EVENTS_MAX_COUNT. */
  readonly member_events?: readonly MemberEvent[];
}

/** A member of the cluster as the answering node sees it now. */
export type ClusterNode = {
  readonly node_id: string;
  readonly control_endpoint: string;
  /** This node's part of the key space, 0 to 1. */
  readonly ring_share: number;
} & (
  | { readonly state: 'up'; readonly report: NodeReport }
  /** The node is still a member, but does not answer. */
  | { readonly state: 'unreachable'; readonly error: string }
);

/** All members as one of them sees them. */
export interface ClusterReport {
  /** Id of the node that answers. */
  readonly node_id: string;
  /** Wall-clock milliseconds of the node that answers. */
  readonly time_ms: number;
  readonly heartbeat_interval_s: number;
  /** Seconds without a heartbeat after which a node is lost. */
  readonly member_ttl_s?: number;
  /** Nodes that some member has seen go and that have not come back; each once. */
  readonly departed?: readonly DepartedNode[];
  /** Nodes that came and went, as the first member noticed it; each change once, oldest first. */
  readonly member_events?: readonly MemberEvent[];
  /** Members by node id, the answering node included. */
  readonly nodes: readonly ClusterNode[];
}

/** A node as the metrics server shows it. */
export interface NodeView {
  /** The node's present health, without asking other nodes. */
  health(): HealthReport;
  /** The report of this node alone. */
  report(): Promise<NodeReport>;
  /** Asks all members; those that do not answer within a second are unreachable. Never rejects. */
  cluster(): Promise<ClusterReport>;
  /** The figures of all members over time, in steps of HISTORY_STEPS_S. */
  history?(stepS: number): Promise<ClusterHistory>;
  /** The events of this node's pages; undefined while the node is starting. */
  events?(): PageEventSource | undefined;
}

/** Parts of a report that all nodes say something about. */
interface MemberNews {
  readonly departed?: readonly DepartedNode[];
  readonly member_events?: readonly MemberEvent[];
}

/**
 * Nodes that some of these reports say are gone, each once and as it was noticed first, the last to go first. A
 * good-bye that one node has heard counts, even if others have only missed heartbeats. `members` are the ids of live
 * nodes: they have come back.
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

/** What has happened to members by these reports: each change once, as it was noticed first, oldest first. */
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
