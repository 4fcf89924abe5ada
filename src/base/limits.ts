import { assert } from './assert.js';
import {
  CLIENT_BODY_MAX_BYTES,
  CLIENT_CLOSE_TIMEOUT_MS,
  CLIENT_EVENTS_MAX_KEYS,
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
} from './disk-limits.js';
import {
  DATA_CONNECTIONS_MAX_COUNT,
  HOLD_REQUEST_MAX_KEYS,
  PEER_PATIENCE_MIN_MS,
  PIN_SHARE_MAX,
  PLACEMENT_HELD_BESIDE_DISK_POOL_FRACTION,
  READ_ABORT_GRACE_MS,
  READ_AGAIN_WITHIN_MS,
  READ_CONNECT_TIMEOUT_MS,
  READ_FINISH_TIMEOUT_MS,
  READ_IN_FLIGHT_MAX_BYTES,
  READ_REPORT_FULL_KEYS,
  READ_REPORT_MAX_CHARACTERS,
  READ_REPORT_MAX_KEYS,
  READ_REPORTS_LATE_MAX_MS,
  READ_REPORTS_WAITING_MAX_CHARACTERS,
  READ_REQUEST_TARGET_BYTES,
  READ_RETRY_AFTER_MS,
  READ_RETRY_MAX_MS,
  READ_STALL_TIMEOUT_MS,
  WANTED_PAGES_MAX_CHARACTERS,
} from './peer-limits.js';
import {
  COPIED_POOL_FRACTION,
  POOL_SERVED_GRACE_MS,
  POOL_SERVED_WAIT_MS,
  RESP_ARGUMENT_MAX_BYTES,
  RESP_ARGUMENTS_BUDGET_BYTES,
  RESP_COMMAND_MAX_BYTES,
  RESP_FINISH_TIMEOUT_MS,
  RESP_VALUES_BUDGET_BYTES,
  SERVED_POOL_FRACTION,
} from './resp-limits.js';

export * from './client-limits.js';
export * from './core-limits.js';
export * from './disk-limits.js';
export * from './peer-limits.js';
export * from './resp-limits.js';

/**
 * Limits that several modules know or that bear relations to others, unit last in the name. The relations are checked
 * when this module loads.
 */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** The longest page. */
export const PAGE_MAX_BYTES = 1 * GIB;

/** Bytes of one contiguous view of host memory: Node 20 has no view of more than 4 GiB. */
export const SEGMENT_MAX_BYTES = 2 * GIB;
/** The smallest and the largest pool of a node. */
export const POOL_MIN_BYTES = 64;
export const POOL_MAX_BYTES = 16 * 1024 * GIB;

/** Bytes that a store copies before it lets other work have its turn. */
export const COPY_SLICE_MAX_BYTES = 32 * MIB;
/**
 * Rings of earlier members that a node remembers; when members change faster than rings expire, it leaves further ones
 * out.
 */
export const FORMER_RINGS_MAX_COUNT = 16;
/** Node ids in one log record; further ids are only counted. */
export const LOGGED_IDS_MAX_COUNT = 8;
/** Time for which calls without I/O may follow each other before timers and I/O have their turn. */
export const FAIR_TURN_MS = 1;

export const RPC_FRAME_MAX_BYTES = 16 * MIB;
export const RPC_IN_FLIGHT_MAX_COUNT = 1024;
/** Bytes of the requests in progress on one connection. */
export const RPC_IN_FLIGHT_MAX_BYTES = 64 * MIB;
/**
 * Requests, and their bytes, that one server works on for all peers together, and the share that is granted to every
 * peer.
 */
export const RPC_SERVER_IN_FLIGHT_MAX_COUNT = 16_384;
export const RPC_SERVER_IN_FLIGHT_MAX_BYTES = 256 * MIB;
export const RPC_GRANTED_COUNT = 8;
export const RPC_GRANTED_BYTES = 256 * KIB;
/**
 * Bytes of answers that wait for all peers of one server. Above this limit, the server drops peers that let more than
 * RPC_PAUSE_AT_BYTES wait.
 */
export const RPC_SERVER_BUFFERED_MAX_BYTES = 256 * MIB;
/** Bytes of incomplete requests that one server holds, in addition to RPC_GRANTED_BYTES of each peer. */
export const RPC_SERVER_HELD_MAX_BYTES = 256 * MIB;
export const RPC_CONNECTIONS_MAX_COUNT = 4096;
export const RPC_CALL_TIMEOUT_MS = 2_000;
export const RPC_CONNECT_TIMEOUT_MS = 1_000;
export const RPC_HANDSHAKE_TIMEOUT_MS = 2_000;

/** Accepted connections of unauthenticated peers on one server; a further one replaces the oldest. */
export const HANDSHAKES_PENDING_MAX_COUNT = 1024;
/**
 * Connections of unauthenticated peers that one server accepts per second and in a burst, from one address and from
 * all. A refused connection counts as one half. Beyond the total, the server stops listening for the pause.
 */
export const UNAUTHENTICATED_PER_ADDRESS_PER_S = 50;
export const UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT = 256;
export const UNAUTHENTICATED_PER_S = 200;
export const UNAUTHENTICATED_BURST_COUNT = 1024;
export const UNAUTHENTICATED_PAUSE_MS = 100;
/**
 * Addresses whose unauthenticated connections, or wrong passwords, a server counts; beyond it, the address that
 * connected longest ago is forgotten.
 */
export const UNAUTHENTICATED_ADDRESSES_MAX_COUNT = 4096;
/** Longest pause within the TLS handshake of an accepted connection, and the longest handshake. */
export const TLS_HANDSHAKE_TIMEOUT_MS = 5_000;
export const TLS_HANDSHAKE_MAX_MS = 10_000;
/** Secrets that a node accepts: two, so that the secret can be changed node by node. */
export const SECRETS_MAX_COUNT = 2;
export const SECRET_MAX_CHARACTERS = 1024;
/** A node warns of a shorter secret, because it might be guessed. */
export const SECRET_ADVISED_CHARACTERS = 16;
/**
 * Wrong passwords and tokens that are checked per second and in a burst, for one address; further ones are rejected
 * without a check.
 */
export const WRONG_PASSWORDS_PER_S = 1;
export const WRONG_PASSWORDS_BURST_COUNT = 10;
/**
 * Shortest time between two log lines of one kind that outsiders can cause, and how many such kinds one part of a node
 * distinguishes.
 */
export const LOG_LINE_INTERVAL_MS = 10_000;
export const LOG_KINDS_MAX_COUNT = 64;

/** A peer that could not be reached is not tried again for this long. */
export const RPC_RETRY_AFTER_MS = 1_000;
/**
 * Bytes of answers that wait for one peer: above the first limit its calls are not read, above the second it is
 * dropped.
 */
export const RPC_PAUSE_AT_BYTES = 1 * MIB;
export const RPC_BUFFERED_MAX_BYTES = 64 * MIB;
/** A peer is dropped when it reads none of the answers that wait for it for this long. */
export const RPC_STALL_TIMEOUT_MS = 10_000;
/** A connection on which nothing has arrived for this long while an answer is overdue is given up. */
export const RPC_SILENCE_MAX_MS = 2_000;
export const RPC_METHOD_MAX_BYTES = 128;
export const RPC_MESSAGE_MAX_DEPTH = 16;
export const RPC_MESSAGE_MAX_ELEMENTS = 1 << 18;

/** Queue pairs to one peer on each RDMA device: two keep it busy while one waits for its turn. */
export const RDMA_QUEUE_PAIRS_PER_PEER_COUNT = 2;
/** Work requests posted and not completed on one queue pair. */
export const RDMA_QUEUE_DEPTH_COUNT = 32;
/** Largest single RDMA READ; a longer one is several. */
export const RDMA_READ_MAX_BYTES = 4 * MIB;
/** Memory that reads land in is registered in windows of this size: locking one takes a fraction of a second. */
export const RDMA_DESTINATION_WINDOW_BYTES = 256 * MIB;
/** Longest time to connect to a peer: name resolution and several round trips of the connection manager. */
export const RDMA_CONNECT_TIMEOUT_MS = 2_000;
/** Time without a sign of life after which an accepted RDMA connection is probed. */
export const RDMA_IDLE_PROBE_MS = 30_000;
/** Time that the poller spins for completions before it sleeps. */
export const RDMA_SPIN_US = 20;
/** Most threads that compute checksums of pages that were read. */
export const RDMA_VERIFY_THREADS_MAX_COUNT = 4;
/** First and longest pause after a failed RDMA connection; the pause doubles with each failure. */
export const RDMA_RETRY_AFTER_MS = 1_000;
export const RDMA_RETRY_MAX_MS = 60_000;
/** Shortest time between two log records of the same kind about the same peer. */
export const RDMA_LOG_INTERVAL_MS = 10_000;

/** Keys of one directory request; a larger batch is several requests. */
export const DIRECTORY_REQUEST_MAX_KEYS = 1024;
/** Notes of void keys that one message hands over, 18 bytes each. */
export const DIRECTORY_NOTES_MAX_COUNT = 16_384;
/** UTF-8 bytes of keys in one directory request. */
export const DIRECTORY_REQUEST_MAX_KEY_BYTES = 4 * MIB;
/** UTF-8 bytes of one object key: a program's key and its namespace. */
export const DIRECTORY_KEY_MAX_BYTES = KEY_MAX_BYTES + 1 * KIB;
/** Keys that wait to be sent to one directory owner; further requests fail as if the owner did not answer. */
export const DIRECTORY_QUEUE_MAX_KEYS = 2 * CALL_MAX_KEYS;
/**
 * Milliseconds that a request may wait to be sent to a directory owner that answers late; then it fails as if the owner
 * did not answer.
 */
export const DIRECTORY_QUEUE_MAX_MS = 2_000;
/** Milliseconds after which an answer of a directory owner is late. */
export const DIRECTORY_LATE_ANSWER_MS = 1_000;
/**
 * Answers of the directory that a node keeps for reuse, and the longest key among them; each takes at most one
 * kilobyte.
 */
export const KNOWN_LOCATIONS_MAX_COUNT = 16_384;
export const KNOWN_LOCATION_KEY_MAX_CHARACTERS = 256;
/**
 * Pages and bytes of a read that may be joined with others of the same event loop turn, and pages of all joined reads
 * together.
 */
export const JOINED_READ_MAX_PAGES = 16;
export const JOINED_READ_MAX_BYTES = 1 * MIB;
export const JOINED_READS_MAX_PAGES = 256;
/** Fewest keys of each message when what one message could ask travels in two. */
export const SPLIT_MESSAGE_MIN_KEYS = 32;
/** Requests of one call that are in progress at one directory owner. */
export const DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT = 4;
/** Time after which a search that has asked former owners asks the present owners again. */
export const DIRECTORY_SEARCH_LATE_MS = 250;
/** Keys that one shard holds; it refuses further ones. */
export const DIRECTORY_SHARD_MAX_KEYS = 8_000_000;
/** Locations per key that a shard has room for on average; a single key may have more. */
export const DIRECTORY_LOCATIONS_PER_KEY_COUNT = 4;
/** Nodes that a reader may exclude unless no other node has the page. */
export const DIRECTORY_AVOIDED_MAX_COUNT = 16;
/** Longest time that a read waits for directory owners to forget a stale location. */
export const DISCARD_WAIT_MAX_MS = 100;
/** Locations of one key among which a shard alternates; a key may have more. */
export const DIRECTORY_CHOICE_MAX_COUNT = 16;
/** Locations of one key among which a shard looks for the nearest to a reader. */
export const DIRECTORY_NEAREST_MAX_COUNT = 64;
/**
 * Removed keys whose versions a shard remembers, so that no older content returns: keys per generation; generations.
 */
export const REMOVALS_MAX_KEYS = 65_536;
export const REMOVALS_GENERATIONS_COUNT = 9;
/** A node may be gone for at least this long before others notice; it has then missed all removals since. */
export const REMOVALS_MARGIN_MS = 60_000;

/**
 * Keys that a node owes to one directory owner that did not accept them; beyond this limit the node re-announces all
 * keys to it.
 */
export const OWED_STATEMENTS_MAX_KEYS = 65_536;
/** Keys that one node was told to drop and has not confirmed; it is told again. */
export const DROPS_MAX_KEYS = 65_536;
/** Pause before a node is told again what it did not accept; it doubles from the minimum to the maximum. */
export const STATEMENT_RETRY_MIN_MS = 250;
export const STATEMENT_RETRY_MAX_MS = 1_000;
/**
 * Longest time that setting a page waits for the holders of the replaced content to drop it; telling them goes on
 * afterwards.
 */
export const DROP_WAIT_MAX_MS = 1_000;
/** Attempts to set a named page whose owners know a newer content; each attempt uses a version newer than theirs. */
export const SET_ATTEMPTS_MAX_COUNT = 4;
/** Attempts to read a page of unknown length: the length may change before the page is read. */
export const COPY_ATTEMPTS_MAX_COUNT = 8;
/**
 * Keys that a node has set or was told to drop and that it remembers, so that a late copy does not bring back old
 * content.
 */
export const DROPPED_KEYS_MAX_COUNT = 32_768;
/** Longest time after which a page may expire: ten years. */
export const EXPIRY_MAX_MS = 315_576_000_000;
/** How often a node looks for expired pages, which nobody finds any more, to remove them. */
export const EXPIRY_SWEEP_INTERVAL_MS = 1_000;

/** Time between two searches of a shard for entries that it need not keep. */
export const SHARD_UPKEEP_INTERVAL_MS = 60_000;
/** Nodes that may re-announce at once, and the random delay that each further node adds. */
export const ANNOUNCE_AT_ONCE_NODES_COUNT = 8;
export const ANNOUNCE_SPREAD_PER_NODE_MS = 2;
/** Longest pause before announcements are sent again to an owner that did not accept them. */
export const ANNOUNCE_RETRY_MAX_MS = 8_000;
/** Shortest time between two complete announcements to an owner that asks for them. */
export const ANNOUNCE_ASKED_GAP_MS = 5_000;
/** Time after which pages are announced again to an owner that had no room for them. */
export const ANNOUNCE_FULL_MS = 300_000;
/** How long a node that joins waits until all members know it. */
export const INTRODUCTION_TIMEOUT_MS = 1_000;
/** With `wait_for_directory`: how long a node waits for announcements, and how often it asks the others. */
export const SHARD_FILLING_TIMEOUT_MS = 30_000;
export const SHARD_FILLING_POLL_MS = 50;
/** Members that a node which joins asks at once. */
export const JOINING_IN_FLIGHT_MAX_COUNT = 32;

export const MEMBERS_MAX_COUNT = 4096;
/** The longest `host:port` of a node; a domain name has at most 253 characters. */
export const NODE_ENDPOINT_MAX_CHARACTERS = 320;
/** The longest name of a rack or zone. */
export const ZONE_MAX_CHARACTERS = 64;

/** Departed nodes that a discovery master lists by name, beside the list of members. */
export const DISCOVERY_DEPARTURES_MAX_COUNT = 1024;
/**
 * Membership changes that a discovery master remembers, so that it can send only the changes to a node with an older
 * list.
 */
export const DISCOVERY_CHANGES_MAX_COUNT = 1024;
/** Discovery addresses of one node. */
export const DISCOVERY_MASTERS_MAX_COUNT = 16;
/**
 * Masters whose hosts vanished without leaving and that a node still tries to reach: they may be behind a partition.
 */
export const DISCOVERY_FORMER_MASTERS_MAX_COUNT = 16;
/** Time for which a node tries to reach vanished masters; after a longer partition only the listed addresses help. */
export const DISCOVERY_FORMER_MASTERS_KEPT_MS = 24 * 3_600_000;
/** Longest time that `start()` of a node waits for a master before the node works alone. */
export const DISCOVERY_START_TIMEOUT_MS = 3_000;
export const DISCOVERY_LEAVE_TIMEOUT_MS = 500;
/**
 * A node whose date is further ahead of the cluster's is refused as a member. Members' dates are within this limit;
 * versions that are twice as far ahead are not followed.
 */
export const CLOCK_AHEAD_MAX_MS = 300_000;
export const VERSION_AHEAD_MAX_MS = 2 * CLOCK_AHEAD_MAX_MS;
/** First pause after a master was not reached; the pause doubles up to the heartbeat interval. */
export const DISCOVERY_RETRY_MIN_MS = 50;
/** Shortest time between two log records saying that no master is reachable. */
export const DISCOVERY_LOG_INTERVAL_MS = 60_000;
/** Refused nodes, with other cluster settings, that a discovery master remembers. */
export const DISCOVERY_REFUSED_MAX_COUNT = 64;
/** Time for which a refused node is remembered; a node that works alone asks again every heartbeat interval. */
export const DISCOVERY_REFUSED_KEPT_MS = 60_000;
/** Longest time that a starting node whose own master has answered waits for the other listed masters. */
export const DISCOVERY_OTHER_MASTERS_TIMEOUT_MS = 1_000;
/**
 * Shortest time between two rounds of membership changes: a fixed part and a part per member, which grows to the
 * maximum while changes go on.
 */
export const DISCOVERY_CHANGE_GAP_MS = 20;
export const DISCOVERY_CHANGE_GAP_PER_MEMBER_MS = 0.1;
export const DISCOVERY_CHANGE_GAP_MAX_PER_MEMBER_MS = 1;

/** Longest time that `close()` takes in all. */
export const CLOSE_TIMEOUT_MS = 3_000;

/**
 * Time that a closing store spends on writing pages that had no room in the disk queue, before the queue itself is
 * written.
 */
export const DISK_WAITING_CLOSE_TIMEOUT_MS = 1_000;
/** Time for which a failed disk is shown as failing, unless a write succeeds. */
export const DISK_FAILURE_SHOWN_MS = 60_000;

/** Ports that a metrics server tries, from `metrics_port` on. */
export const METRICS_PORTS_MAX_COUNT = 128;
/** HTTP connections that a metrics server has open. */
export const METRICS_MAX_CONNECTIONS = 64;
/** Requests after which an HTTP connection to the metrics server is closed. */
export const METRICS_CONNECTION_MAX_REQUESTS = 1024;
/** Idle HTTP connections to the metrics server; a further one replaces the oldest. */
export const METRICS_IDLE_CONNECTIONS_MAX_COUNT = 56;
/** Longest time for an HTTP request to arrive completely. */
export const METRICS_REQUEST_TIMEOUT_MS = 5_000;
/** Changes of pages that a node keeps for readers that come back, and characters of their keys. */
export const EVENTS_KEPT_MAX_COUNT = 262_144;
export const EVENTS_KEPT_MAX_CHARACTERS = 64 * MIB;
/** Changes of pages of one event, and characters of their keys; a single key may be longer. */
export const EVENT_MAX_CHANGES = 1024;
export const EVENT_MAX_CHARACTERS = 256 * KIB;
/** Time in which a reader of page events may come back, when there is no other. */
export const EVENTS_KEPT_MS = 60_000;
/** Streams of page events that a metrics server has open. */
export const EVENT_STREAMS_MAX_COUNT = 16;
/** Events that a node keeps for its dashboard. */
export const NODE_EVENTS_MAX_COUNT = 100;
/** Nodes that came or went, and nodes that are gone, that a node remembers. */
export const MEMBER_EVENTS_MAX_COUNT = 100;
/** Seconds between two samples of a node's figures, for each length of its history. */
export const HISTORY_STEPS_S: readonly number[] = [2, 10, 60];
/** Intervals that a node's history keeps of each step: 5 minutes, half an hour, an hour. */
export const HISTORY_INTERVALS_COUNT: readonly number[] = [150, 180, 60];
/** A member that has not reported after this long is shown as unreachable. */
export const CLUSTER_REPORT_TIMEOUT_MS = 1_000;
/** Time between two samples of the event loop's delay, and the window that a report covers once or twice. */
export const EVENT_LOOP_SAMPLE_MS = 20;
export const EVENT_LOOP_TURN_MS = 10_000;
/** Age up to which a cluster report is reused for further requests. */
export const CLUSTER_REPORT_MAX_AGE_MS = 500;
/** Events of each member that a cluster report contains. */
export const CLUSTER_REPORT_EVENTS_MAX_COUNT = 20;
/** Members that are asked for their reports at a time. */
export const CLUSTER_REPORT_IN_FLIGHT_MAX_COUNT = 32;

/** Longest time that an ending program waits for its node to close. */
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
relation(UNAUTHENTICATED_PER_ADDRESS_PER_S < UNAUTHENTICATED_PER_S, 'one address leaves room for others');
relation(
  UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT < UNAUTHENTICATED_BURST_COUNT,
  'one address leaves room for others at once',
);
relation(PAGE_MAX_BYTES <= SEGMENT_MAX_BYTES, 'a page fits in a segment');
relation(RPC_FRAME_MAX_BYTES <= RPC_BUFFERED_MAX_BYTES, 'an answer fits in what may wait for a peer');
relation(DIRECTORY_REQUEST_MAX_KEY_BYTES * 2 <= RPC_FRAME_MAX_BYTES, 'a directory request fits in a frame');
relation(CLIENT_REQUEST_MAX_KEYS <= CALL_MAX_KEYS, 'the keys of a client fit in a call');
relation(
  CLIENT_SENT_MAX_COUNT <= CLIENT_IN_FLIGHT_MAX_COUNT &&
    CLIENT_SENT_MAX_COUNT * CLIENT_SMALL_BODY_BYTES <= CLIENT_SMALL_BODIES_MAX_BYTES,
  'a node takes as much at once as a client sends',
);
relation(
  EVENT_MAX_CHANGES <= CLIENT_EVENTS_MAX_KEYS && 4 * (EVENT_MAX_CHARACTERS + KEY_MAX_BYTES) <= CLIENT_BODY_MAX_BYTES,
  'an event fits into an answer to a client',
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
relation(PEER_PATIENCE_MIN_MS <= READ_CONNECT_TIMEOUT_MS, 'a read gives up before the connection does');
relation(READ_RETRY_AFTER_MS <= READ_RETRY_MAX_MS, 'the pause after a failed connection may grow');
relation(RDMA_RETRY_AFTER_MS <= RDMA_RETRY_MAX_MS, 'the pause after a failed RDMA connection may grow');
relation(READ_REPORT_MAX_KEYS <= DIRECTORY_REQUEST_MAX_KEYS, 'the keys of reads to report fit in a request');
relation(READ_REPORT_DELAY_MS < READ_REPORTS_LATE_MAX_MS, 'a node that is drained hears of reads before its start');
relation(READ_REPORT_FULL_KEYS <= READ_REPORT_MAX_KEYS, 'as many keys as reports wait for fit in a message');
relation(
  READ_REPORT_MAX_CHARACTERS * 3 <= DIRECTORY_REQUEST_MAX_KEY_BYTES,
  'the text of reads to report fits in a request',
);
relation(READ_REPORT_MAX_CHARACTERS <= READ_REPORTS_WAITING_MAX_CHARACTERS, 'a message may wait');
relation(WANTED_PAGES_MAX_CHARACTERS * 3 <= CALL_MAX_KEY_BYTES, 'the keys of wanted pages fit in a call');
relation(HOLD_REQUEST_MAX_KEYS <= DIRECTORY_REQUEST_MAX_KEYS, 'the keys of pages to hold fit in a request');
relation(PROMOTE_ANSWER_MAX_MS * 2 <= RPC_CALL_TIMEOUT_MS, 'a request to promote is answered before its deadline');
relation(PROMOTE_ANSWER_MAX_MS < PROMOTE_LEASE_MS, 'a promoted page stays until the request is answered');
relation(
  JOURNAL_LIVE_FRACTION + JOURNAL_REWRITE_FRACTION < 1,
  'a journal and the one that replaces it fit in the limit',
);
relation(DIRECTORY_REQUEST_MAX_KEYS <= DROPS_MAX_KEYS, 'what is deleted at a time can be remembered');
relation(DROP_WAIT_MAX_MS * 2 <= RPC_CALL_TIMEOUT_MS, 'a put is answered before its deadline');
relation(RPC_RETRY_AFTER_MS <= ANNOUNCE_RETRY_MAX_MS, 'the pause before announcing again may grow');
relation(READ_FINISH_TIMEOUT_MS < CLOSE_TIMEOUT_MS, 'serving ends before it is made to');
relation(
  DISK_WAITING_CLOSE_TIMEOUT_MS + DISK_DRAIN_TIMEOUT_MS + DISK_END_TIMEOUT_MS < NODE_CLOSE_TIMEOUT_MS,
  'a disk tier is closed before the program gives up',
);
relation(2 * EVENT_STREAMS_MAX_COUNT < METRICS_MAX_CONNECTIONS, 'streams of events leave room for a scrape');
relation(METRICS_IDLE_CONNECTIONS_MAX_COUNT < METRICS_MAX_CONNECTIONS, 'silent clients leave room for a scrape');
relation(DISK_QUEUE_POOL_FRACTION <= DISK_HELD_POOL_FRACTION, 'what the disk has queued fits in what may wait for it');
relation(
  DISK_HELD_POOL_FRACTION +
    PROMOTE_POOL_FRACTION +
    QUARANTINE_POOL_FRACTION +
    SERVED_POOL_FRACTION +
    COPIED_POOL_FRACTION +
    PLACEMENT_HELD_BESIDE_DISK_POOL_FRACTION <
    1,
  'pages that wait for the disk, promoted pages, pages that are sent or copied and pages that are placed leave room in a pool',
);
relation(PIN_SHARE_MAX <= PROMOTE_POOL_FRACTION, 'pinned pages take the room of promoted ones');
relation(RESP_ARGUMENT_MAX_BYTES <= PAGE_MAX_BYTES, 'the value of a Redis client fits in a page');
relation(RESP_COMMAND_MAX_BYTES <= RESP_ARGUMENTS_BUDGET_BYTES, 'there is room for the largest command');
relation(PAGE_MAX_BYTES <= RESP_VALUES_BUDGET_BYTES, 'there is room for the longest value');
relation(POOL_SERVED_GRACE_MS < POOL_SERVED_WAIT_MS, 'setting a page outlasts a client that holds the page before');
relation(RESP_FINISH_TIMEOUT_MS < CLOSE_TIMEOUT_MS, 'Redis clients are disconnected before closing is given up');
relation(DISK_STALL_MS < DISK_WRITE_WAIT_MAX_MS, 'a disk that does not answer is given up before a call is');
relation(PROMOTE_LEASE_MS < DISK_WRITE_WAIT_MAX_MS, 'setting a page outlasts the lease of a promoted one');
relation(READ_REQUEST_TARGET_BYTES <= READ_IN_FLIGHT_MAX_BYTES, 'a read request fits in the window');
relation(DISK_PIECE_MAX_BYTES % DISK_ALIGNMENT_BYTES === 0, 'pieces of a page on disk are aligned');
