import type { Labels, MetricsSink } from '../base/environment/metrics-sink.js';
import { DISTANCES } from '../net/distance.js';
import type { RpcFault } from '../rpc/server.js';

/*
 * All metrics of a node by name, with their help texts. Units are base units and come last in the name; only counters
 * end in `_total`. No help text contains a quotation mark, because OpenMetrics would require it to be escaped.
 */

interface CounterFamily {
  readonly help: string;
  /** Series that every node has from its start, at 0, so that their first increase is visible. */
  readonly series: readonly Labels[];
  /** Series for each client name, without the label `client`. They begin at 0 when a client with that name attaches. */
  readonly clientSeries?: readonly Labels[];
}

/** All kinds of control-plane errors; the type ensures that none is missing. */
const RPC_ERROR_KINDS: Readonly<Record<RpcFault | 'bad_answer', true>> = {
  bad_hello: true,
  bad_version: true,
  oversized: true,
  bad_frame: true,
  bad_message: true,
  bad_tag: true,
  truncated: true,
  unauthenticated: true,
  handshake_timeout: true,
  too_many_connections: true,
  too_many_calls: true,
  given_up: true,
  slow_peer: true,
  unknown_method: true,
  bad_params: true,
  denied: true,
  handler: true,
  bad_answer: true,
};

const ALONE: readonly Labels[] = [{}];

/** Reasons why requests of clients fail: the names of all statuses except `ok`. */
const CLIENT_ERROR_REASONS = [
  'bad_request',
  'no_region',
  'region_gone',
  'too_much',
  'closing',
  'refused',
  'unavailable',
  'failed',
  'absent',
  'too_late',
  'denied',
] as const;
const CLIENT_WAYS = ['direct', 'staged', 'bytes'] as const;

function each(label: string, values: readonly string[]): Labels[] {
  return values.map((value) => ({ [label]: value }));
}

/** Counters that every node has. */
export const COUNTERS: Readonly<Record<string, CounterFamily>> = {
  meshcache_reads_total: {
    help: 'Pages asked for, by result and by where they were looked for last',
    series: [
      { result: 'hit', source: 'local' },
      { result: 'hit', source: 'remote' },
      { result: 'hit', source: 'disk' },
      { result: 'hit', source: 'object' },
      { result: 'miss', source: 'local' },
      { result: 'miss', source: 'remote' },
    ],
  },
  meshcache_read_bytes_total: {
    help: 'Bytes of the pages that were read',
    series: each('source', ['local', 'remote', 'disk', 'object']),
  },
  meshcache_remote_read_pages_total: {
    help: 'Pages that a node with a zone has read from other nodes, by where those are: on its host, in its zone, in another zone',
    series: each('distance', DISTANCES),
  },
  meshcache_remote_read_bytes_total: {
    help: 'Bytes that a node with a zone has read from other nodes, by where those are',
    series: each('distance', DISTANCES),
  },
  meshcache_writes_total: { help: 'Pages published', series: ALONE },
  meshcache_written_bytes_total: { help: 'Bytes of the pages published', series: ALONE },
  meshcache_duplicate_pages_total: {
    help: 'Computed pages that were set and not kept, because another node has them',
    series: ALONE,
  },
  meshcache_expired_pages_total: {
    help: 'Pages removed from pool or disk because their time was over',
    series: ALONE,
  },
  meshcache_dropped_pages_total: {
    help: 'Pages that this node was told to drop: overwritten elsewhere, deleted, or copies of what was cleared',
    series: ALONE,
  },
  meshcache_skipped_writes_total: {
    help:
      'Pages that were not published: larger than the pool; no room in it, or its key was being written; ' +
      'no directory owner took them; the node is being drained',
    series: each('reason', ['too_large', 'no_room', 'directory', 'superseded', 'draining']),
  },
  meshcache_copied_pages_total: {
    help:
      'Pages of other nodes copied into the own pool: handed over by a draining node; read often; to be pinned; ' +
      'prefetched; placed on this storage node',
    // The reasons for copying pages are defined in `store/holding/hold-rules.ts`.
    series: each('reason', ['handover', 'hot', 'pin', 'placement', 'prefetch']),
  },
  meshcache_prefetched_pages_total: {
    help:
      'Pages that clients asked to have brought into the pool: brought; present before; absent everywhere, or without room; ' +
      'refused because too many requests waited; of those brought, used, or wasted',
    series: each('result', ['brought', 'present', 'absent', 'refused', 'used', 'wasted']),
  },
  meshcache_placed_pages_total: { help: 'Pages of this node that a storage node has taken', series: ALONE },
  meshcache_placed_bytes_total: {
    help: 'Bytes of the pages of this node that a storage node has taken',
    series: ALONE,
  },
  meshcache_placement_failures_total: {
    help:
      'Pages of this node that were not placed on a storage node, each time: there is none; none answers; it takes none now; ' +
      'it could not read the page, or had no room; it knows of a newer content; larger than its pool; too many pages wait; evicted or removed before',
    series: each('reason', [
      'no_node',
      'unreachable',
      'refused',
      'unread',
      'outdated',
      'too_large',
      'queue_full',
      'evicted',
    ]),
  },
  meshcache_pins_total: {
    help: 'Pages that clients asked to pin, each time that the pool was asked: pinned; not in it; above a limit of the node, or its client has gone',
    series: each('result', ['pinned', 'absent', 'refused']),
  },
  meshcache_reported_reads_total: {
    help:
      'Pages read from other nodes, by whether their owners were told, so that they keep what is read: told; could not be reached; ' +
      'dropped because too many waited',
    series: each('result', ['told', 'failed', 'dropped']),
  },
  meshcache_hinted_calls_total: {
    help: 'Reads and writes that told what becomes of their conversation, by hint',
    series: each('hint', ['open', 'closed', 'other']),
  },
  meshcache_hinted_pages_total: {
    help: 'Pages of the calls that told a hint, read or set',
    series: each('hint', ['open', 'closed', 'other']),
  },
  meshcache_lookup_pages_total: {
    help: 'Pages that programs have looked up, whether attached or not: found from the first on without a gap, and the others',
    series: each('result', ['found', 'missing']),
  },
  meshcache_stale_reads_total: {
    help:
      'Pages that were not where the directory said, once a read call and page: refused, changed or lost on the way; read too late; ' +
      'owner gone, or it does not answer; not brought back from its disk; older than what this node has set or was told to drop; expired',
    series: each('reason', ['void', 'expired', 'unreadable', 'late', 'owner_gone', 'unreachable', 'not_promoted']),
  },
  meshcache_checksum_failures_total: {
    help: 'Pages read whose bytes did not have their checksum: stale or damaged, a miss',
    series: each('source', ['local', 'remote', 'disk']),
  },
  meshcache_directory_lookups_total: {
    help: 'Keys that the directory was asked for, by whether it knows a live location',
    series: each('result', ['found', 'missing']),
  },
  meshcache_directory_asked_keys_total: {
    help: 'Keys that a node with a zone has asked directory owners for, by where those are; its own shard is on its host',
    series: each('distance', DISTANCES),
  },
  meshcache_directory_failures_total: {
    help: 'Requests to directory owners that were not answered',
    series: each('request', ['put', 'get', 'exists', 'delete', 'renounce']),
  },
  meshcache_reannounced_keys_total: { help: 'Keys announced to new directory owners', series: ALONE },
  meshcache_member_changes_total: {
    help:
      'Other nodes that came; left with a good-bye; were lost, as their heartbeats stopped; or came back as a new start or with another ' +
      'address',
    series: each('change', ['joined', 'left', 'lost', 'changed']),
  },
  meshcache_ahead_pages_refused_total: {
    help: 'Pages whose version is so far ahead that a wrong clock has given it out, and that this directory shard has refused',
    series: ALONE,
  },
  meshcache_discovery_failures_total: {
    help: 'Attempts to reach a discovery master that failed',
    series: ALONE,
  },
  meshcache_discovery_refusals_total: {
    help: 'Times that a discovery master of this node has refused a node, for its clock or for settings in which it differs',
    series: each('reason', ['clock', 'settings']),
  },
  meshcache_rpc_calls_total: {
    help: 'Control-plane calls to other nodes, by how they ended',
    series: each('result', ['ok', 'unreachable', 'timeout', 'overloaded', 'closed', 'refused']),
  },
  meshcache_rpc_served_calls_total: { help: 'Control-plane calls of other nodes', series: ALONE },
  meshcache_rpc_errors_total: {
    help: 'Control-plane connections or calls that failed, by kind',
    series: each('kind', Object.keys(RPC_ERROR_KINDS)),
  },
  meshcache_rpc_reconnects_total: {
    help: 'Control-plane connections opened again after one that had broken',
    series: ALONE,
  },
  meshcache_auth_failures_total: {
    help:
      'Connections that ended because two nodes do not agree on a secret or certificates: the peer has none; it wants one and this ' +
      'node has none; its proof is wrong; it took none of this node’s proofs; it means to ' +
      'reach another node; no TLS; and passwords and tokens at the client socket, of Redis clients and of readers of the metrics server that were wrong, or were not ' +
      'looked at after too many wrong ones',
    series: [
      ...['rpc', 'data', 'rdma'].flatMap((plane) =>
        ['missing', 'unexpected', 'wrong', 'refused', 'misdirected', 'tls'].map((reason) => ({ plane, reason })),
      ),
      ...['rpc', 'client', 'resp', 'metrics'].flatMap((plane) =>
        ['wrong_password', 'paused'].map((reason) => ({ plane, reason })),
      ),
    ],
  },
  meshcache_audit_lines_total: {
    help: 'Lines of the audit log that were written, and that were lost because too many waited while its file could not be written',
    series: each('result', ['written', 'lost']),
  },
  meshcache_listen_pauses_total: {
    help: 'Times that a port was closed for a moment, because unauthenticated peers opened more connections than it can refuse',
    series: each('plane', ['rpc', 'data']),
  },
  meshcache_client_requests_total: {
    help: 'Requests of attached processes, by client name',
    series: [],
    clientSeries: ALONE,
  },
  meshcache_client_errors_total: {
    help: 'Requests of attached processes that were refused or have failed, by client name and reason',
    series: [],
    clientSeries: each('reason', CLIENT_ERROR_REASONS),
  },
  meshcache_client_lookup_pages_total: {
    help: 'Pages that attached processes have looked up, by client name: found from the first on without a gap, and the others',
    series: [],
    clientSeries: each('result', ['found', 'missing']),
  },
  meshcache_client_reads_total: {
    help: 'Pages that attached processes have read or tried to read, by client name and result',
    series: [],
    clientSeries: each('result', ['hit', 'miss']),
  },
  meshcache_client_read_bytes_total: {
    help: 'Bytes of pages that attached processes have read, by client name and way: into their memory, by staging memory, on the socket',
    series: [],
    clientSeries: each('way', CLIENT_WAYS),
  },
  meshcache_client_writes_total: {
    help: 'Pages that attached processes have set, by client name',
    series: [],
    clientSeries: ALONE,
  },
  meshcache_client_written_bytes_total: {
    help: 'Bytes of pages that attached processes have set, by client name and way',
    series: [],
    clientSeries: each('way', CLIENT_WAYS),
  },
  meshcache_resp_commands_total: {
    help: 'Commands of Redis clients by name and result; nil: there was no value, or it was not stored',
    series: [],
  },
  meshcache_resp_bytes_total: {
    help: 'Bytes that Redis clients have sent and taken',
    series: [],
  },
  meshcache_resp_refused_connections_total: {
    help: 'Connections of Redis clients that were refused, because there were too many',
    series: [],
  },
  meshcache_transport_serving_restarts_total: {
    help: 'Times that a serving thread was started again',
    series: ALONE,
  },
  meshcache_transport_reading_restarts_total: {
    help: 'Times that a reading thread was started again',
    series: ALONE,
  },
};

/** Help texts of metrics that only some nodes have, and of gauges. */
const OTHER_HELP: Readonly<Record<string, string>> = {
  meshcache_build_info: 'Always 1; the version is a label',
  meshcache_transport_info: 'Data transport in use, what was wanted and why it differs',
  meshcache_healthy: '1 while /healthz says ok, 0 while it gives reasons',
  meshcache_members: 'Live nodes that this node knows, itself included',
  meshcache_lost_members: 'Nodes that were lost within the last day and have not come back',
  meshcache_uptime_seconds: 'Seconds since this node started',
  meshcache_discovery_reachable: '1 while a discovery master answers, else 0',
  meshcache_discovery_source_answers:
    '1 while the source of discovery addresses answers, else 0; 1 with a list of addresses',
  meshcache_clock_offset_seconds:
    'Seconds that the clock of this machine is ahead of the median of the members, as its discovery master knows them; negative: behind',
  meshcache_discovery_head: '1 while this node runs a discovery master, else 0',

  meshcache_audit_failing: '1 while the audit log cannot be written and its lines wait, else 0',
  meshcache_clients: 'Processes that are attached to this node',
  meshcache_clients_refused_total: 'Connections to the client socket, and descriptors, that were turned away',
  meshcache_resp_connections: 'Connections of Redis clients',
  meshcache_client_mapped_bytes:
    'Bytes of memory of attached processes that this node has mapped, staging memory included',
  meshcache_client_requests_in_flight: 'Requests of attached processes that have not been answered',

  meshcache_pool_used_bytes: 'Bytes of the pool that hold pages',
  meshcache_pool_capacity_bytes: 'Bytes of the pool',
  meshcache_pool_quarantined_bytes: 'Bytes of the pool that have been freed and must not be used again yet',
  meshcache_pool_copied_bytes: 'Bytes of the pool that hold copies of other nodes’ pages',
  meshcache_prefetched_unread_bytes: 'Bytes of the pool that hold prefetched pages which have not been read yet',
  meshcache_pool_placed_pages: 'Pages in the pool that a storage node has, too',
  meshcache_pool_placed_bytes: 'Bytes of the pages in the pool that a storage node has, too',
  meshcache_map_pages: 'Pages in the map of the cluster, once for each node that has them',
  meshcache_map_bytes: 'Bytes that the map of the cluster takes',
  meshcache_placements_waiting_pages: 'Pages that wait to be placed on storage nodes',
  meshcache_placements_in_flight_pages: 'Pages that storage nodes have been asked to take and have not answered for',
  meshcache_pool_entries: 'Pages in the pool',
  meshcache_pool_pinned_entries: 'Pages in the pool that clients have pinned',
  meshcache_pool_pinned_bytes: 'Bytes of the pool that hold pinned pages',
  meshcache_pool_evictions_total:
    'Pages that left the pool without being asked to: for want of space, or because their bytes were damaged',
  meshcache_pool_page_lifetime_seconds:
    'Seconds after which a page is evicted: pages in the pool by evictions of the last 5 minutes; NaN while none is evicted',
  meshcache_pool_early_reuses_total: 'Ranges of the pool used again before their quarantine was over',
  meshcache_pool_found_pages_total: 'Pages of before that were found again in the pool when the node started',
  meshcache_pool_found_bytes_total: 'Bytes of the pages that were found again in the pool when the node started',
  meshcache_pool_refused_pages_total:
    'Pages of before that were not taken into the pool again: their record or checksum is wrong, the disk has a newer content, or the pool or a quota has no room',
  meshcache_pool_unrecorded_pages_total:
    'Pages that no restart finds again, because the index of the pool was full when they were set',

  meshcache_namespace_used_bytes: 'Bytes that the pages of a namespace tag take of a tier, with padding',
  meshcache_namespace_min_bytes: 'Bytes of a tier that other tags leave a namespace tag',
  meshcache_namespace_max_bytes: 'Most bytes of a tier that the pages of a namespace tag take',
  meshcache_namespace_prefixes: 'Namespaces and pools of a tag with a quota that the node knows',
  meshcache_namespace_prefixes_refused_total: 'Uses of a further namespace or pool of a tag with a quota that failed',
  meshcache_namespace_evictions_total: 'Pages of a namespace tag that were evicted from a tier',

  meshcache_disk_bytes_used: 'Bytes of the pages in the disk tier',
  meshcache_disk_capacity_bytes: 'Bytes that pages can take in the disk tier',
  meshcache_disk_keys: 'Pages in the disk tier',
  meshcache_disk_queue_bytes: 'Bytes of pages that wait to be written to disk, or are being written',
  meshcache_disk_read_pages_total: 'Pages read from the disk, also to bring them back for other nodes',
  meshcache_disk_written_pages_total: 'Pages written to the disk',
  meshcache_disk_skipped_pages_total:
    'Pages that were not written to disk: too many were waiting, or writing had failed',
  meshcache_disk_write_wait_seconds_total:
    'Seconds in which setting pages waited for the disk, or for room in the pool; calls that wait at a time count once',
  meshcache_disk_corrupt_pages_total:
    'Pages that could not be read from disk, or not with their checksum: dropped, a miss',
  meshcache_disk_evictions_total: 'Pages that left the disk tier for want of space',
  meshcache_disk_write_errors_total: 'Reads, writes and syncs of the disk tier that failed',
  meshcache_disk_failed: '1 while the disk tier fails or does not answer, else 0',
  meshcache_disk_set_aside_total: 'Times that a disk store could not be used and was set aside for an empty one',
  meshcache_promoted_pages_total: 'Pages brought from disk back into the pool',
  meshcache_promote_failures_total: 'Pages that other nodes asked for and that could not be brought back from disk',
  meshcache_promote_announce_failures_total:
    'Times that the directory could not be told of pages brought back from disk',

  meshcache_object_reads_total:
    'Pages asked of the object store, by result; void: another page, or an expired or deleted one',
  meshcache_object_writes_total:
    'Pages that were to be sent to the object store, by result; present: it had them; gone: this node had not any more',
  meshcache_object_bytes_total: 'Bytes read from, and written to, the object store, headers of objects included',
  meshcache_object_requests_total: 'Requests to the object store, by operation',
  meshcache_object_seconds_total:
    'Seconds that requests to the object store took, by operation; requests at a time each count',
  meshcache_object_skipped_pages_total: 'Pages that were not queued for the object store, by reason',
  meshcache_object_errors_total: 'Requests to the object store that failed, by reason',
  meshcache_object_queue_pages: 'Pages that wait to be sent to the object store, or are being sent',

  meshcache_directory_keys: 'Keys in this node’s directory shard',
  meshcache_directory_owed_keys: 'Keys that directory owners have not taken yet, and that they are told again',
  meshcache_directory_length_conflicts_total:
    'Computed pages stated with another length than another node has under their key: configurations that share a namespace and should not',
  meshcache_directory_refused_keys_total:
    'Keys, or further locations of keys, that this node’s directory shard had no room for',
  meshcache_tls_certificate_expiry_seconds:
    'When the first of the certificates that are used there, and of their authorities, ends, as Unix time; infinite between nodes without TLS',
  meshcache_credential_files_failing:
    'Kinds of credentials, secret, certificate and users, whose files were wrong at the last look; the former ones stay in use',
  meshcache_rpc_connections: 'Open control-plane connections, by side and by what they are for',

  meshcache_transport_connections: 'Open data connections, both ways',
  meshcache_transport_read_pages_total: 'Pages read from other nodes’ memory',
  meshcache_transport_read_bytes_total: 'Bytes read from other nodes’ memory',
  meshcache_transport_served_pages_total: 'Pages that other nodes have read over TCP',
  meshcache_transport_served_bytes_total: 'Bytes that other nodes have read over TCP',
  meshcache_transport_failed_ops_total: 'Reads of other nodes’ memory that failed',
  meshcache_transport_refused_ops_total:
    'Reads of memory that is not registered, or out of its bounds, that were refused',
  meshcache_transport_protocol_errors_total: 'Connections closed because the peer did not speak the data protocol',
  meshcache_transport_reconnects_total: 'Data connections opened again after a failure',
  meshcache_transport_unreachable_peers:
    'Nodes that are not reached to read their pages: those are misses, or read elsewhere',
  meshcache_transport_unreachable_total: 'Times that a node began not to be reached to read its pages',

  meshcache_rdma_connections: 'Open RDMA connections to peers',
  meshcache_rdma_accepted_connections: 'Open RDMA connections of peers',
  meshcache_rdma_read_ops_total: 'Pages read by RDMA',
  meshcache_rdma_read_bytes_total: 'Bytes read by RDMA',
  meshcache_rdma_failed_ops_total: 'Reads by RDMA that failed',
  meshcache_rdma_checksum_failures_total: 'Pages read by RDMA whose bytes did not have their checksum',
  meshcache_rdma_posted_requests_total: 'Work requests posted to RDMA devices',
  meshcache_rdma_retried_ops_total: 'Reads by RDMA that were tried again on another connection',
  meshcache_rdma_connects_total: 'RDMA connections made',
  meshcache_rdma_reconnects_total: 'RDMA connections made again after a failure',
  meshcache_rdma_refused_connections_total: 'RDMA connections of peers that were turned away',
  meshcache_rdma_protocol_errors_total: 'RDMA connections ended because the peer did not speak the protocol',
  meshcache_rdma_region_table_reads_total: 'Times that a peer’s table of regions was fetched',
  meshcache_rdma_lost_connections_total: 'RDMA connections that broke',
  meshcache_rdma_dropped_events_total: 'Events of the RDMA engine that were not told, because there were too many',
};

/** Returns all series of one client, by name and labels. */
export function clientSeries(client: string): (readonly [name: string, labels: Labels])[] {
  return Object.entries(COUNTERS).flatMap(([name, family]) =>
    (family.clientSeries ?? []).map((labels) => [name, { client, ...labels }] as const),
  );
}

/** Returns the help text of a metric; for an unknown name, the name itself. */
export function helpOf(name: string): string {
  return COUNTERS[name]?.help ?? OTHER_HELP[name] ?? name;
}

/**
 * Counts a lookup of a program, whichever door it used: `asked` pages, and the `found` pages before the first miss.
 * Each lookup is counted once, because the other pools of a hybrid model are asked for the same pages.
 */
export function countLookup(metrics: MetricsSink, asked: number, found: number): void {
  if (found > 0) metrics.count('meshcache_lookup_pages_total', found, { result: 'found' });
  if (asked > found) metrics.count('meshcache_lookup_pages_total', asked - found, { result: 'missing' });
}
