import { assert } from './assert.js';
import {
  CLIENT_BODY_MAX_BYTES,
  CLIENT_CLOSE_TIMEOUT_MS,
  CLIENT_FINISH_TIMEOUT_MS,
  CLIENT_IN_FLIGHT_MAX_COUNT,
  CLIENT_REQUEST_MAX_KEYS,
  CLIENT_SENT_MAX_COUNT,
  CLIENT_SMALL_BODIES_MAX_BYTES,
  CLIENT_SMALL_BODY_BYTES,
  CLIENTS_BODIES_MAX_BYTES,
} from './client-limits.js';
import {
  CALL_MAX_KEY_BYTES,
  CALL_MAX_KEYS,
  KEY_MAX_BYTES,
  KEY_PREFIX_BYTES,
  QUARANTINE_POOL_FRACTION,
  READ_REPORT_DELAY_MS,
} from './core-limits.js';
import {
  DISK_ALIGNMENT_BYTES,
  DISK_DRAIN_TIMEOUT_MS,
  DISK_END_TIMEOUT_MS,
  DISK_HELD_POOL_FRACTION,
  DISK_PIECE_MAX_BYTES,
  DISK_QUEUE_POOL_FRACTION,
  DISK_STALL_MS,
  DISK_WRITE_WAIT_MAX_MS,
  JOURNAL_LIVE_FRACTION,
  JOURNAL_REWRITE_FRACTION,
  PROMOTE_ANSWER_MAX_MS,
  PROMOTE_LEASE_MS,
  PROMOTE_POOL_FRACTION,
  PROMOTE_ROUND_MAX_KEYS,
} from './disk-limits.js';

export * from './client-limits.js';
export * from './core-limits.js';
export * from './disk-limits.js';

/**
 * Every limit of the system in one place, unit last in the name. The relations between them are
 * checked when this module loads.
 */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** A page's length. */
export const PAGE_MAX_BYTES = 1 * GIB;

/** One contiguous view of host memory: Node 20 has no view of more than 4 GiB. */
export const SEGMENT_MAX_BYTES = 2 * GIB;
/** A node's pool. */
export const POOL_MIN_BYTES = 64;
export const POOL_MAX_BYTES = 16 * 1024 * GIB;

/** Bytes that a store copies before it lets other work have its turn. */
export const COPY_SLICE_MAX_BYTES = 32 * MIB;
/** A peer that vanishes without a word while its connection is idle is noticed by probes of the kernel after about this long. */
export const KEEP_ALIVE_DELAY_MS = 30_000;
/** The same for the readers of a node, which are many and mostly idle. */
export const READERS_KEEP_ALIVE_DELAY_MS = 60_000;
/** Rings of earlier members that a node remembers; when members change faster than rings expire, it leaves further ones out. */
export const FORMER_RINGS_MAX_COUNT = 16;
/** Node ids in one record of the log; the rest is a number. */
export const LOGGED_IDS_MAX_COUNT = 8;
/** Calls that need no I/O may follow each other for so long before timers and I/O have their turn. */
export const FAIR_TURN_MS = 1;

export const RPC_FRAME_MAX_BYTES = 16 * MIB;
export const RPC_IN_FLIGHT_MAX_COUNT = 1024;
/** Bytes of the requests of these. */
export const RPC_IN_FLIGHT_MAX_BYTES = 64 * MIB;
/** What one server works on for all its peers, and what each may have of that however many others there are. */
export const RPC_SERVER_IN_FLIGHT_MAX_COUNT = 16_384;
export const RPC_SERVER_IN_FLIGHT_MAX_BYTES = 256 * MIB;
export const RPC_GRANTED_COUNT = 8;
export const RPC_GRANTED_BYTES = 256 * KIB;
/** Answers of one server that wait for peers to read them: above, who lets more than RPC_PAUSE_AT_BYTES wait is dropped. */
export const RPC_SERVER_BUFFERED_MAX_BYTES = 256 * MIB;
/** What one server has of requests that have not come whole, beside RPC_GRANTED_BYTES of each peer. */
export const RPC_SERVER_HELD_MAX_BYTES = 256 * MIB;
export const RPC_CONNECTIONS_MAX_COUNT = 4096;
export const RPC_CALL_TIMEOUT_MS = 2_000;
export const RPC_CONNECT_TIMEOUT_MS = 1_000;
export const RPC_HANDSHAKE_TIMEOUT_MS = 2_000;

/** Accepted connections of one server whose peers have not proved yet that they belong to the cluster; the oldest gives way. */
export const HANDSHAKES_PENDING_MAX_COUNT = 1024;
/**
 * Connections whose peers have not proved that they belong to the cluster, which one server takes up in a second and at once: from
 * one address, and from all. One that is turned away counts for a half; when there are more, the server does not listen
 * for the pause.
 */
export const STRANGERS_PER_ADDRESS_PER_S = 50;
export const STRANGERS_PER_ADDRESS_BURST_COUNT = 256;
export const STRANGERS_PER_S = 200;
export const STRANGERS_BURST_COUNT = 1024;
export const STRANGERS_PAUSE_MS = 100;
/** Addresses whose strangers a server counts; of more, the one that connected longest ago is forgotten. */
export const STRANGERS_ADDRESSES_MAX_COUNT = 4096;
/** For the TLS handshake of an accepted connection. */
export const TLS_HANDSHAKE_TIMEOUT_MS = 5_000;
/** Secrets that a node accepts at a time: two while they are being changed. */
export const SECRETS_MAX_COUNT = 2;
export const SECRET_MAX_CHARACTERS = 1024;
/** A shorter secret may be found by trying: a warning. */
export const SECRET_ADVISED_CHARACTERS = 16;
/** Between two log records on failed authentication for the same reason. */
export const AUTH_LOG_INTERVAL_MS = 10_000;

/** A peer that could not be reached is not tried again for this long. */
export const RPC_RETRY_AFTER_MS = 1_000;
/** Answers that wait for a peer to read them: from the first on no new calls are read, at the second the peer is dropped. */
export const RPC_PAUSE_AT_BYTES = 1 * MIB;
export const RPC_BUFFERED_MAX_BYTES = 64 * MIB;
/** A peer that takes nothing of what waits for it for this long is dropped. */
export const RPC_STALL_TIMEOUT_MS = 10_000;
/** A connection on which nothing has arrived for this long while an answer is overdue is given up. */
export const RPC_SILENCE_MAX_MS = 2_000;
export const RPC_METHOD_MAX_BYTES = 128;
export const RPC_MESSAGE_MAX_DEPTH = 16;
export const RPC_MESSAGE_MAX_ELEMENTS = 1 << 18;

/** Operations and payload of one TCP read request; a larger batch is several requests. */
export const READ_REQUEST_MAX_OPS = 1024;
export const READ_REQUEST_TARGET_BYTES = 16 * MIB;
/** Payload asked for and not yet received on one data connection. */
export const READ_IN_FLIGHT_MAX_BYTES = 64 * MIB;
/** A data connection that delivers nothing for this long while something is due is given up. */
export const READ_STALL_TIMEOUT_MS = 3_000;
export const READ_CONNECT_TIMEOUT_MS = 1_000;
/**
 * An aborted read whose memory is next to be received into waits so long for more bytes of its peer; then the connection is closed,
 * so that none can come.
 */
export const READ_ABORT_GRACE_MS = 100;
export const READ_RETRY_AFTER_MS = 1_000;
/** After so long a page that could not be read is not looked for on other nodes any more. */
export const READ_AGAIN_WITHIN_MS = 5_000;
export const DATA_CONNECTIONS_MAX_COUNT = 4096;
/** A peer may take the stall timeout and a second for so many bytes to answer a request; a slower one is given up. */
export const READ_MIN_BYTES_PER_S = 1 * MIB;
/** Requests sent and not yet answered on one data connection. */
export const READ_IN_FLIGHT_MAX_COUNT = 64;
/**
 * Longest time for a data connection's hello, or for one request, to arrive whole once it has begun.
 * Generous: it is the reader's main thread that sends them, and that may be busy for seconds.
 */
export const READ_HANDSHAKE_TIMEOUT_MS = 10_000;
/** A reader that has not taken one whole response after this long is given up. */
export const READ_DRAIN_TIMEOUT_MS = 120_000;
/** Of an answer over TLS, at a time: it is encrypted by the thread that writes it. Without TLS the kernel takes all of it from where it lies. */
export const READ_TLS_WRITE_MAX_BYTES = 1 * MIB;
/** When serving ends, peers have this long to take the answers that are under way. */
export const READ_FINISH_TIMEOUT_MS = 500;

/** Queue pairs to one peer on each RDMA device: two keep it busy while one waits for its turn. */
export const RDMA_QUEUE_PAIRS_PER_PEER_COUNT = 2;
/** Work requests posted and not completed on one queue pair. */
export const RDMA_QUEUE_DEPTH_COUNT = 32;
/** Largest single RDMA READ; a longer one is several. */
export const RDMA_READ_MAX_BYTES = 4 * MIB;
/** Memory that reads land in is registered in windows of this size: locking one takes a fraction of a second. */
export const RDMA_DESTINATION_WINDOW_BYTES = 256 * MIB;
/** Several round trips of the connection manager, and of name resolution before them. */
export const RDMA_CONNECT_TIMEOUT_MS = 2_000;
/** An accepted RDMA connection is probed after so long without a sign of life. */
export const RDMA_IDLE_PROBE_MS = 30_000;
/** The poller looks for completions so long before it sleeps. */
export const RDMA_SPIN_US = 20;
/** Threads that take checksums of what has been read, at most. */
export const RDMA_VERIFY_THREADS_MAX_COUNT = 4;
/** The pause after a failed connection doubles up to this. */
export const RDMA_RETRY_MAX_MS = 60_000;
/** Between two log records of the same kind on the same peer. */
export const RDMA_LOG_INTERVAL_MS = 10_000;

/** Keys of one directory request; a larger batch is several requests. */
export const DIRECTORY_REQUEST_MAX_KEYS = 1024;
/** UTF-8 bytes of keys in one directory request. */
export const DIRECTORY_REQUEST_MAX_KEY_BYTES = 4 * MIB;
/** UTF-8 bytes of one object key: a program's key and its namespace. */
export const DIRECTORY_KEY_MAX_BYTES = KEY_MAX_BYTES + 1 * KIB;
/** Keys that wait for one owner; further requests fail, as if it did not answer. */
export const DIRECTORY_QUEUE_MAX_KEYS = 2 * CALL_MAX_KEYS;
/** Answers of the directory that one node may use again, and the longest keys among them: a kilobyte each at the most. */
export const KNOWN_LOCATIONS_MAX_COUNT = 16_384;
export const KNOWN_LOCATION_KEY_MAX_CHARACTERS = 256;
/** Pages and bytes of a read that is joined with others of the same turn of the event loop, and pages of such reads together. */
export const JOINED_READ_MAX_PAGES = 16;
export const JOINED_READ_MAX_BYTES = 1 * MIB;
export const JOINED_READS_MAX_PAGES = 256;
/** Requests of one call that are under way to one owner. */
export const DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT = 4;
/** A search that has taken longer asks the owners again, after the former ones. */
export const DIRECTORY_SEARCH_LATE_MS = 250;
/** Keys that one shard holds; new ones are refused beyond it. */
export const DIRECTORY_SHARD_MAX_KEYS = 8_000_000;
/** Locations that a shard has room for, for each key that it may hold: one key may have many, all have so many on average at most. */
export const DIRECTORY_LOCATIONS_PER_KEY_COUNT = 4;
/** Nodes whose locations a reader wants only when there is no other. */
export const DIRECTORY_AVOIDED_MAX_COUNT = 16;
/** A read waits so long for directory owners to forget a location that it has found stale. */
export const DISCARD_WAIT_MAX_MS = 100;
/** Locations of one key that readers are handed in turn; there may be more. */
export const DIRECTORY_CHOICE_MAX_COUNT = 16;
/** Keys under which nothing is left, whose versions a shard remembers so that nothing older comes back: so many, twice, for one to two turns. */
export const REMOVALS_MAX_KEYS = 65_536;
export const REMOVALS_TURN_MS = 600_000;

/** Keys that one directory owner has not taken and that a node remembers to tell it again; beyond that it tells it everything. */
export const OWED_STATEMENTS_MAX_KEYS = 65_536;
/** Keys that one node has not dropped yet though it was told, and is told again. */
export const DROPS_MAX_KEYS = 65_536;
/** The pause before a node is told again what it has not taken doubles from the first to the second of these. */
export const STATEMENT_RETRY_MIN_MS = 250;
export const STATEMENT_RETRY_MAX_MS = 4_000;
/** Setting a page waits so long for the holders of the content that it replaces; they are told on. */
export const DROP_WAIT_MAX_MS = 1_000;
/** Attempts to set a named page whose owners know of a newer one: each is newer than what they know. */
export const SET_ATTEMPTS_MAX_COUNT = 4;
/** Attempts to read a page of unknown length: it may get another one before it is read. */
export const COPY_ATTEMPTS_MAX_COUNT = 8;
/** Keys of one call that every node is told to delete at a time. */
export const DELETION_SLICE_MAX_KEYS = 16_384;
/** Nodes that have gone and are remembered: one that returns is told what was set and dropped meanwhile. */
export const GONE_NODES_MAX_COUNT = 1024;
/** Keys whose pages a node has set, or was told to drop, and remembers, so that a copy that was on its way does not come back. */
export const DROPPED_KEYS_MAX_COUNT = 32_768;

/** In this time a node states all its pages to their directory owners again, at the least, unless it has more than the rate below allows. */
export const ANTI_ENTROPY_ROUND_MS = 300_000;
/** Keys that it states again in a second, at most; each to one owner. */
export const ANTI_ENTROPY_MAX_KEYS_PER_S = 2000;
/** Keys of one such statement. */
export const ANTI_ENTROPY_BATCH_MAX_KEYS = 256;
/** Keys whose owners it looks up before it lets other work have its turn. */
export const ANTI_ENTROPY_SLICE_KEYS = 4096;
/** A shard looks so often for what it need not keep any more. */
export const SHARD_UPKEEP_INTERVAL_MS = 60_000;
/** So many nodes may tell new owners of their pages at once; of more, each waits for up to this much longer per further one. */
export const ANNOUNCE_AT_ONCE_NODES_COUNT = 8;
export const ANNOUNCE_SPREAD_PER_NODE_MS = 2;
/** The pause before an owner that has not taken what it was told is told again, at the most. */
export const ANNOUNCE_RETRY_MAX_MS = 8_000;
/** An owner that asks for everything again gets it so often, at the most. */
export const ANNOUNCE_ASKED_GAP_MS = 5_000;
/** With `wait_for_directory`, a node waits so long for the others to announce their pages to it; it asks them so often, so many at once. */
export const SHARD_FILLING_TIMEOUT_MS = 30_000;
export const SHARD_FILLING_POLL_MS = 50;
export const SHARD_FILLING_IN_FLIGHT_MAX_COUNT = 32;

export const MEMBERS_MAX_COUNT = 4096;
/** `host:port`: a domain name has at most 253 characters. */
export const NODE_ENDPOINT_MAX_CHARACTERS = 320;

/** Departures that a discovery master tells of by name, beside the list of who is there. */
export const DISCOVERY_DEPARTURES_MAX_COUNT = 1024;
/** Changes of the membership that a discovery master remembers, so that it need not send the whole list to who has an older one. */
export const DISCOVERY_CHANGES_MAX_COUNT = 1024;
/** Discovery addresses of one node. */
export const DISCOVERY_MASTERS_MAX_COUNT = 16;
/** Masters whose hosts have gone without a good-bye and that a node still tries to reach: they may be behind a partition. */
export const DISCOVERY_FORMER_MASTERS_MAX_COUNT = 16;
/** For so long; a partition that lasts longer heals by the listed addresses alone. */
export const DISCOVERY_FORMER_MASTERS_KEPT_MS = 24 * 3_600_000;
/** `start()` of a node waits so long for a master before it goes on alone. */
export const DISCOVERY_START_TIMEOUT_MS = 3_000;
export const DISCOVERY_LEAVE_TIMEOUT_MS = 500;
/** First pause after a master was not reached; doubles up to the heartbeat interval. */
export const DISCOVERY_RETRY_MIN_MS = 50;
/** Between two log records that say that no master is reachable. */
export const DISCOVERY_LOG_INTERVAL_MS = 60_000;
/** Nodes with other settings that a discovery master remembers to have refused. */
export const DISCOVERY_REFUSED_MAX_COUNT = 64;
/** For so long since each was refused last; one that works alone asks again every heartbeat interval. */
export const DISCOVERY_REFUSED_KEPT_MS = 60_000;
/** A node whose own master has answered waits so long for the other listed ones before its start is over. */
export const DISCOVERY_OTHER_MASTERS_TIMEOUT_MS = 1_000;
/** A changed membership is spread, and taken over, at once, but not more often than this and per member this much more; while changes go on, up to this much. */
export const DISCOVERY_CHANGE_GAP_MS = 20;
export const DISCOVERY_CHANGE_GAP_PER_MEMBER_MS = 0.1;
export const DISCOVERY_CHANGE_GAP_MAX_PER_MEMBER_MS = 1;

/** An owner is told of reads of its pages as soon as so many keys wait for it; else READ_REPORT_DELAY_MS after the first. */
export const READ_REPORT_FULL_KEYS = 512;
/** A node that is drained waits so long for what others tell it of their reads, the way included. */
export const READ_REPORTS_LATE_MAX_MS = 2_500;
/** One message to an owner; a longer read is several. */
export const READ_REPORT_MAX_KEYS = 1024;
export const READ_REPORT_MAX_CHARACTERS = 1 * MIB;
/** What waits for all owners; the oldest reads are dropped. */
export const READ_REPORTS_WAITING_MAX_KEYS = 65_536;
export const READ_REPORTS_WAITING_MAX_CHARACTERS = 8 * MIB;

/** Pages of a node that it remembers to have been read by others: they are handed over when it is drained. */
export const WANTED_PAGES_MAX_COUNT = 16_384;
/** Of their keys together. */
export const WANTED_PAGES_MAX_CHARACTERS = 16 * MIB;
/** Keys that a node is asked to copy at a time. */
export const COPY_REQUEST_MAX_KEYS = 128;
/** Bytes of their pages; a larger page is a request of its own. */
export const COPY_REQUEST_TARGET_BYTES = 16 * MIB;
export const COPY_CALL_TIMEOUT_MS = 5_000;
/** Requests to copy that one node works on or has waiting; further ones are refused. */
export const COPY_REQUESTS_MAX_COUNT = 8;
/** Part of a pool that copies of other nodes' pages may take. */
export const COPIES_POOL_FRACTION = 1 / 4;
/** With `promote_hot_reads` a page that this node has read from others so often, within the time below, is copied. */
export const HOT_READS_MIN_COUNT = 3;
/** A page is not copied for this again within that time, whatever became of it. */
export const HOT_READS_WINDOW_MS = 60_000;
/** Pages whose reads are counted, those that were read last: 400 bytes each with keys of 64 characters. */
export const HOT_READS_MAX_KEYS = 16_384;
/** Characters of their keys together; 10 MB in all at the most. */
export const HOT_READS_MAX_KEY_CHARACTERS = 4 * MIB;
/** Requests to copy that a node which is drained has under way. */
export const HANDOVERS_IN_FLIGHT_MAX_COUNT = 4;
/** A node that is drained hands pages over for so long, at most, unless it is told otherwise. */
export const DRAIN_TIMEOUT_MS = 30_000;
export const DRAIN_TIMEOUT_MAX_MS = 3_600_000;
/** A node that has left goes on serving for a heartbeat interval, but not less than the first and not more than the second. */
export const DRAIN_LINGER_MIN_MS = 500;
export const DRAIN_LINGER_MAX_MS = 5_000;

/** All that `close()` waits for, together. */
export const CLOSE_TIMEOUT_MS = 3_000;

/** What found no room in the queue to the disk is written when a store is closed, for this long; then the queue has its own time. */
export const DISK_WAITING_CLOSE_TIMEOUT_MS = 1_000;
/** A disk that has failed is shown as failing for this long, unless it is written again. */
export const DISK_FAILURE_SHOWN_MS = 60_000;

/** Ports that a metrics server tries, from `metrics_port` on. */
export const METRICS_PORTS_MAX_COUNT = 128;
/** HTTP connections that a metrics server has open. */
export const METRICS_MAX_CONNECTIONS = 64;
/** Requests of one of them, after which it is closed. */
export const METRICS_CONNECTION_MAX_REQUESTS = 1024;
/** Of them, those that ask for nothing now; a further one takes the place of the oldest. */
export const METRICS_IDLE_CONNECTIONS_MAX_COUNT = 56;
/** An HTTP request that has not come whole after this long is given up. */
export const METRICS_REQUEST_TIMEOUT_MS = 5_000;
/** Events that a node keeps for its dashboard. */
export const NODE_EVENTS_MAX_COUNT = 100;
/** A member that has not reported after this long is shown as unreachable. */
export const CLUSTER_REPORT_TIMEOUT_MS = 1_000;
/** The event loop is looked at this often; what it was late by is told of one to two turns. */
export const EVENT_LOOP_SAMPLE_MS = 20;
export const EVENT_LOOP_TURN_MS = 10_000;
/** A report of the cluster is given to whoever asks within this time. */
export const CLUSTER_REPORT_MAX_AGE_MS = 500;
/** Events of each member in a report of the cluster. */
export const CLUSTER_REPORT_EVENTS_MAX_COUNT = 20;
/** Members that are asked for their reports at a time. */
export const CLUSTER_REPORT_IN_FLIGHT_MAX_COUNT = 32;

/** A program that ends waits no longer for its node. */
export const NODE_CLOSE_TIMEOUT_MS = 4_500;

function relation(holds: boolean, text: string): void {
  assert(holds, () => `limits: ${text} does not hold`);
}

relation(HANDSHAKES_PENDING_MAX_COUNT < RPC_CONNECTIONS_MAX_COUNT, 'handshakes leave room for members');
relation(HANDSHAKES_PENDING_MAX_COUNT < DATA_CONNECTIONS_MAX_COUNT, 'handshakes leave room for readers');
relation(RPC_FRAME_MAX_BYTES <= RPC_IN_FLIGHT_MAX_BYTES, 'a request fits in what one peer may have in flight');
relation(RPC_IN_FLIGHT_MAX_BYTES <= RPC_SERVER_IN_FLIGHT_MAX_BYTES, 'one peer fits in what all may have in flight');
relation(RPC_FRAME_MAX_BYTES * 2 <= RPC_SERVER_HELD_MAX_BYTES, 'a request that has not come whole fits');
relation(RPC_GRANTED_BYTES * RPC_CONNECTIONS_MAX_COUNT <= 1 * GIB, 'what every peer is granted fits in memory');
relation(RPC_BUFFERED_MAX_BYTES <= RPC_SERVER_BUFFERED_MAX_BYTES, 'what waits for one peer fits in what waits for all');
relation(STRANGERS_PER_ADDRESS_PER_S < STRANGERS_PER_S, 'one address leaves room for others');
relation(STRANGERS_PER_ADDRESS_BURST_COUNT < STRANGERS_BURST_COUNT, 'one address leaves room for others at once');
relation(PAGE_MAX_BYTES <= SEGMENT_MAX_BYTES, 'a page fits in a segment');
relation(RPC_FRAME_MAX_BYTES <= RPC_BUFFERED_MAX_BYTES, 'an answer fits in what may wait for a peer');
relation(DIRECTORY_REQUEST_MAX_KEY_BYTES * 2 <= RPC_FRAME_MAX_BYTES, 'a directory request fits in a frame');
relation(CLIENT_REQUEST_MAX_KEYS <= CALL_MAX_KEYS, 'the keys of a client fit in a call');
relation(
  CLIENT_SENT_MAX_COUNT <= CLIENT_IN_FLIGHT_MAX_COUNT &&
    CLIENT_SENT_MAX_COUNT * CLIENT_SMALL_BODY_BYTES <= CLIENT_SMALL_BODIES_MAX_BYTES,
  'a node takes as much at once as a client sends',
);
relation(CLIENT_FINISH_TIMEOUT_MS <= CLIENT_CLOSE_TIMEOUT_MS, 'a client that closes waits for a node that does');
relation(CLIENT_BODY_MAX_BYTES <= CLIENTS_BODIES_MAX_BYTES, 'there is room for the body of a client');
relation(KEY_MAX_BYTES + KEY_PREFIX_BYTES <= CALL_MAX_KEY_BYTES, 'a key fits in a call');
relation(DIRECTORY_KEY_MAX_BYTES <= DIRECTORY_REQUEST_MAX_KEY_BYTES, 'a key fits in a directory request');
relation(
  READ_CONNECT_TIMEOUT_MS + READ_STALL_TIMEOUT_MS < READ_AGAIN_WITHIN_MS,
  'a peer that stalls leaves time for another',
);
relation(READ_ABORT_GRACE_MS < READ_STALL_TIMEOUT_MS, 'an aborted read ends before its peer counts as stalled');
relation(READ_RETRY_AFTER_MS <= RDMA_RETRY_MAX_MS, 'the pause after a failed connection may grow');
relation(PROMOTE_ROUND_MAX_KEYS <= DIRECTORY_REQUEST_MAX_KEYS, 'the keys to promote fit in a request');
relation(READ_REPORT_MAX_KEYS <= DIRECTORY_REQUEST_MAX_KEYS, 'the keys of reads to report fit in a request');
relation(READ_REPORT_DELAY_MS < READ_REPORTS_LATE_MAX_MS, 'a node that is drained hears of reads before its start');
relation(READ_REPORT_FULL_KEYS <= READ_REPORT_MAX_KEYS, 'as many keys as reports wait for fit in a message');
relation(READ_REPORT_MAX_CHARACTERS * 3 <= RPC_FRAME_MAX_BYTES, 'the keys of reads to report fit in a frame');
relation(READ_REPORT_MAX_CHARACTERS <= READ_REPORTS_WAITING_MAX_CHARACTERS, 'a message may wait');
relation(WANTED_PAGES_MAX_CHARACTERS * 3 <= CALL_MAX_KEY_BYTES, 'the keys of wanted pages fit in a call');
relation(COPY_REQUEST_MAX_KEYS <= DIRECTORY_REQUEST_MAX_KEYS, 'the keys to copy fit in a request');
relation(PROMOTE_ANSWER_MAX_MS * 2 <= RPC_CALL_TIMEOUT_MS, 'a request to promote is answered before its deadline');
relation(PROMOTE_ANSWER_MAX_MS < PROMOTE_LEASE_MS, 'a promoted page stays until the request is answered');
relation(
  JOURNAL_LIVE_FRACTION + JOURNAL_REWRITE_FRACTION < 1,
  'a journal and the one that replaces it fit in the limit',
);
relation(DELETION_SLICE_MAX_KEYS <= DROPS_MAX_KEYS, 'what is deleted at a time can be remembered');
relation(DROP_WAIT_MAX_MS * 2 <= RPC_CALL_TIMEOUT_MS, 'a put is answered before its deadline');
relation(2 * DROPPED_KEYS_MAX_COUNT <= DROPS_MAX_KEYS, 'a node that returns is told of all drops that are remembered');
relation(RPC_RETRY_AFTER_MS <= ANNOUNCE_RETRY_MAX_MS, 'the pause before announcing again may grow');
relation(ANTI_ENTROPY_BATCH_MAX_KEYS <= DIRECTORY_REQUEST_MAX_KEYS, 'keys stated again fit in a request');
relation(READ_FINISH_TIMEOUT_MS < CLOSE_TIMEOUT_MS, 'serving ends before it is made to');
relation(
  DISK_WAITING_CLOSE_TIMEOUT_MS + DISK_DRAIN_TIMEOUT_MS + DISK_END_TIMEOUT_MS < NODE_CLOSE_TIMEOUT_MS,
  'a disk tier is closed before the program gives up',
);
relation(METRICS_IDLE_CONNECTIONS_MAX_COUNT < METRICS_MAX_CONNECTIONS, 'silent clients leave room for a scrape');
relation(DISK_QUEUE_POOL_FRACTION <= DISK_HELD_POOL_FRACTION, 'what the disk has queued fits in what may wait for it');
relation(
  DISK_HELD_POOL_FRACTION + PROMOTE_POOL_FRACTION + QUARANTINE_POOL_FRACTION < 1,
  'pages that wait for the disk and promoted pages leave room in a pool',
);
relation(DISK_STALL_MS < DISK_WRITE_WAIT_MAX_MS, 'a disk that does not answer is given up before a call is');
relation(PROMOTE_LEASE_MS < DISK_WRITE_WAIT_MAX_MS, 'setting a page outlasts the lease of a promoted one');
relation(READ_REQUEST_TARGET_BYTES <= READ_IN_FLIGHT_MAX_BYTES, 'a read request fits in the window');
relation(DISK_PIECE_MAX_BYTES % DISK_ALIGNMENT_BYTES === 0, 'pieces of a page on disk are aligned');
