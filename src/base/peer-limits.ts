/**
 * Limits for reading and holding pages between nodes: reading them over TCP, reports of reads, copies, pins, sessions,
 * prefetching, placing pages on storage nodes, handing them over. `limits.ts` exports them and checks their relations.
 */
const KIB = 2 ** 10;
const MIB = 2 ** 20;

/** Keys of pages that a node is asked to hold at a time, for any reason. */
export const HOLD_REQUEST_MAX_KEYS = 128;
/** A node that has not finished a request to copy pages after this long is left alone. */
export const HOLD_CALL_TIMEOUT_MS = 5_000;
/**
 * Bytes of pages that a storage node is asked to take at a time; a larger page is a request of its own. The limit is
 * low because the storage node copies them in one go, and its directory shard and setting pages wait meanwhile.
 */
export const PLACEMENT_REQUEST_TARGET_BYTES = 4 * MIB;
/** Unanswered requests to one storage node. */
export const PLACEMENT_IN_FLIGHT_MAX_COUNT = 2;
/**
 * While pages are being set, a storage node gets the next request only after a rest: this multiple of the time that the
 * last request took, but no longer than the maximum. So placing takes at most a third of the time in which setting
 * pages wants the processor and the memory.
 */
export const PLACEMENT_REST_FACTOR = 2;
export const PLACEMENT_REST_MAX_MS = 500;
/**
 * Part of a pool that is kept from eviction because storage nodes are reading it. The second limit applies with a disk
 * tier, which also keeps pages from eviction, mostly the same ones.
 */
export const PLACEMENT_HELD_POOL_FRACTION = 1 / 4;
export const PLACEMENT_HELD_BESIDE_DISK_POOL_FRACTION = 1 / 64;
/**
 * Pages of a node that wait to be placed, and characters of their keys; further ones stay in its pool alone until there
 * is room.
 */
export const PLACEMENTS_WAITING_MAX_COUNT = 16_384;
export const PLACEMENTS_WAITING_MAX_CHARACTERS = 16 * MIB;
/**
 * Pause before a storage node that has failed or refused is asked again; it doubles from the minimum to the maximum.
 */
export const PLACEMENT_RETRY_MIN_MS = 250;
export const PLACEMENT_RETRY_MAX_MS = 8_000;
/** Shortest time between two searches of a pool for pages that were not placed. */
export const PLACEMENT_SEARCH_INTERVAL_MS = 5_000;
/** Time after which pages that storage nodes could not read, or had no room for, are searched for and placed again. */
export const PLACEMENT_UNREAD_RETRY_MS = 10_000;
/**
 * Requests that a storage node works on at a time: several, so that one node that freezes while it is being read does
 * not hold up the others.
 */
export const PLACEMENT_REQUESTS_AT_ONCE_COUNT = 4;
/** Requests that a storage node works on or has waiting; it refuses further ones. */
export const PLACEMENT_REQUESTS_MAX_COUNT = 64;
/**
 * Key prefixes in one clear, in one request about clears, and remembered by a node in total. A clear with more prefixes
 * removes the copies of all pages of the clearing node; beyond the total, the earliest clears become clears of all keys
 * of their nodes.
 */
export const CLEAR_MAX_PREFIXES = 1024;
/** Clears in one request, and pending for one node; beyond it, the node is told of all known clears. */
export const CLEARS_REQUEST_MAX_COUNT = 256;
/** Nodes whose clears a node remembers; beyond it, the earliest are merged into one for the copies of all nodes. */
export const CLEARED_ORIGINS_MAX_COUNT = 4096;

/** Operations and payload of one TCP read request; a larger batch is several requests. */
export const READ_REQUEST_MAX_OPS = 1024;
export const READ_REQUEST_TARGET_BYTES = 16 * MIB;
/** Most threads that receive pages over TCP, and as many that serve them. */
export const TCP_THREADS_MAX_COUNT = 64;
/**
 * Time for which a thread that waits for an answer looks for it without sleeping, by default and at most. A peer that
 * sleeps must be able to answer within the default; otherwise both sides sleep in each call, each because the other one
 * has.
 */
export const SPIN_US = 300;
export const SPIN_MAX_US = 1_000;
/** Largest differentiated services code point: the upper six bits of a byte. */
export const DSCP_MAX = 63;
/** Payload requested and not yet received on one data connection. */
export const READ_IN_FLIGHT_MAX_BYTES = 64 * MIB;
/** A data connection that delivers nothing for this long while data is due is given up. */
export const READ_STALL_TIMEOUT_MS = 3_000;
export const READ_CONNECT_TIMEOUT_MS = 1_000;
/**
 * Shortest silence of a peer after which a read of its pages gives up. It gives the kernel time to resend a lost packet
 * (200 ms), and a busy machine time to run the peer's thread.
 */
export const PEER_PATIENCE_MIN_MS = 250;
/**
 * Longest time that an aborted read waits for bytes that the peer is sending into the read's memory; then the
 * connection is closed, so that no more bytes can arrive.
 */
export const READ_ABORT_GRACE_MS = 100;
/** Pause before an unreachable peer is tried again in the background; it doubles up to the maximum. */
export const READ_RETRY_AFTER_MS = 50;
export const READ_RETRY_MAX_MS = 1_000;
/** Time for which an unreachable peer that nobody reads from is tried again; after that, the next read tries it. */
export const READ_PROBED_MAX_MS = 60_000;
/** Time after which a read stops looking for a page on further nodes. */
export const READ_AGAIN_WITHIN_MS = 5_000;
export const DATA_CONNECTIONS_MAX_COUNT = 4096;
/**
 * Slowest peer: it may take READ_STALL_TIMEOUT_MS and one second for this many bytes to answer a request; slower peers
 * are given up.
 */
export const READ_MIN_BYTES_PER_S = 1 * MIB;
/** Requests sent and not yet answered on one data connection. */
export const READ_IN_FLIGHT_MAX_COUNT = 64;
/**
 * Longest time for a data connection's hello, or for one request, to arrive completely once it has begun. It is
 * generous because the reader's main thread sends them, and that may be busy for seconds.
 */
export const READ_HANDSHAKE_TIMEOUT_MS = 10_000;
/** A reader that has not taken one complete response after this long is given up. */
export const READ_DRAIN_TIMEOUT_MS = 120_000;
/**
 * Bytes of a response that are written at a time over TLS, where the writing thread encrypts. Without TLS the kernel
 * takes a whole response at once.
 */
export const READ_TLS_WRITE_MAX_BYTES = 1 * MIB;
/** When serving ends, peers have this long to take the responses in progress. */
export const READ_FINISH_TIMEOUT_MS = 500;
/** Approximate time until the kernel's probes notice a peer that has vanished while its connection was idle. */
export const KEEP_ALIVE_DELAY_MS = 30_000;
/** KEEP_ALIVE_DELAY_MS for connections from readers, which are many and mostly idle. */
export const READERS_KEEP_ALIVE_DELAY_MS = 60_000;

/** Keys after which an owner is told of reads of its pages at once; fewer keys wait READ_REPORT_DELAY_MS. */
export const READ_REPORT_FULL_KEYS = 512;
/** Longest time that a draining node waits for reports of reads by others. */
export const READ_REPORTS_LATE_MAX_MS = 2_500;
/** Keys, and their characters, of one message that reports reads to an owner. */
export const READ_REPORT_MAX_KEYS = 1024;
export const READ_REPORT_MAX_CHARACTERS = 1 * MIB;
/** Keys, and their characters, of reads that wait to be reported to all owners; beyond it the oldest are dropped. */
export const READ_REPORTS_WAITING_MAX_KEYS = 65_536;
export const READ_REPORTS_WAITING_MAX_CHARACTERS = 8 * MIB;

/** Pages that others have read and that a node remembers, to hand them over when it drains. */
export const WANTED_PAGES_MAX_COUNT = 16_384;
/** Total characters of the keys of wanted pages. */
export const WANTED_PAGES_MAX_CHARACTERS = 16 * MIB;
/** Bytes of pages that a node is asked to copy at a time; a larger page is a request of its own. */
export const COPY_REQUEST_TARGET_BYTES = 16 * MIB;
/** Requests to copy that a node works on or has waiting; it refuses further ones. */
export const COPY_REQUESTS_MAX_COUNT = 8;
/** Part of a pool that copies of other nodes' pages may take. */
export const COPIES_POOL_FRACTION = 1 / 4;
/** Largest `pin_max_share`: the part of a pool that clients may pin. Promoted pages leave pinned ones their room. */
export const PIN_SHARE_MAX = 1 / 2;
/** Largest `pin_max_s`: seconds for which a page may be pinned. */
export const PIN_TIME_MAX_S = 3_600;
/** Names of pins without a time that a node has in use, and their bytes. */
export const PIN_NAMES_MAX_COUNT = 2_048;
export const PIN_NAME_MAX_BYTES = 256;
/** Bytes of the name of a session. */
export const SESSION_NAME_MAX_BYTES = 256;
/** Longest time, in seconds, after which a session may be said to go on. */
export const SESSION_WAITING_MAX_S = 7 * 86_400;
/** Sessions that a node remembers, pages of one, and the pages of all and the characters of their keys. */
export const SESSIONS_MAX_COUNT = 16_384;
export const SESSION_MAX_PAGES = 16_384;
export const SESSIONS_MAX_PAGES = 262_144;
export const SESSIONS_MAX_CHARACTERS = 32 * MIB;
/** Lookups in the directory, for pages of sessions that other nodes hold, that a node makes at a time. */
export const SESSION_LOOKUPS_AT_ONCE_COUNT = 4;
/** Bytes of a body of advice over HTTP, and its keys. */
export const ADVICE_BODY_MAX_BYTES = 4 * MIB;
export const ADVICE_MAX_KEYS = 16_384;
/**
 * Longest page whose bytes come with its location, and bytes of all such pages that a call asks for: more are read faster
 * by themselves. Several calls may share an answer.
 */
export const INLINE_PAGE_MAX_BYTES = 16 * KIB;
export const INLINE_CALL_MAX_BYTES = 64 * KIB;
export const INLINE_ANSWER_MAX_BYTES = 2 * MIB;
/** Largest value of `cluster_map`, the bytes of a node's map of the cluster's pages. */
export const CLUSTER_MAP_MAX_BYTES = 1024 * MIB;
/** Members of the largest cluster of which each node keeps a map: every member tells every other what it has. */
export const MAP_MEMBERS_MAX_COUNT = 64;
/** Followers of one node's pages. */
export const MAP_FOLLOWERS_MAX_COUNT = 2 * MAP_MEMBERS_MAX_COUNT;
/** Pages in an answer to a follower, after which no further event is added. */
export const MAP_ANSWER_MAX_PAGES = 16_384;
/**
 * From one question of a follower to the next, if nothing happens: a pause, in which changes gather, and the member's wait
 * for the first change. The pause grows with the members that are asked.
 */
export const MAP_ROUND_MS = 600;
export const MAP_PAUSE_MIN_MS = 50;
export const MAP_PAUSE_PER_MEMBER_MS = 8;
/** Pause after a question that failed. */
export const MAP_RETRY_MS = 1_000;
/**
 * A member whose answers come at longer intervals may not have been told of an overwritten or deleted page, and is not
 * asked first until it has answered regularly for a while: by then it has been told again.
 */
export const MAP_STEADY_INTERVAL_MS = 900;
export const MAP_STEADY_AFTER_MS = 4_000;
/** Time in which changes of a node's pages are gathered for its followers, and changes after which it is not awaited. */
export const MAP_BATCH_MS = 20;
export const MAP_CHANGES_MAX_COUNT = 8_192;
/** Marks of the latest changes that are kept, of 8 bytes each, and the batches in which they were gathered. */
export const MAP_KEPT_MAX_MARKS = 2 ** 18;
export const MAP_KEPT_MAX_BATCHES = 2_048;
/** Time without a question after which a node keeps no changes. */
export const MAP_IDLE_MS = 30_000;
/** Part of a pool that prefetched pages may take until they are read; one client has half of what others have left. */
export const PREFETCH_POOL_FRACTION = 1 / 2;
/** Time before pages are expected at which a node begins to fetch them. */
export const PREFETCH_LEAD_MS = 10_000;
/** Time after pages were expected from which on prefetched ones that nobody has read count as wasted. */
export const PREFETCH_UNREAD_MS = 300_000;
/** Pauses of a prefetch, before each part of it, while programs read or set pages: their length and their number. */
export const PREFETCH_PAUSE_MS = 2;
export const PREFETCH_PAUSES_MAX_COUNT = 10;
/** Prefetches that have begun and wait or are worked on, of all clients; a node refuses further ones. */
export const PREFETCHES_WAITING_MAX_COUNT = 1024;
/** Prefetches of pages that are expected later than PREFETCH_LEAD_MS, of all clients; a node refuses further ones. */
export const PREFETCHES_LATER_MAX_COUNT = 4096;
/** With `promote_hot_reads`: reads of another node's page within HOT_READS_WINDOW_MS after which the page is copied. */
export const HOT_READS_MIN_COUNT = 3;
/** Time in which hot reads are counted, and in which a page is not copied a second time. */
export const HOT_READS_WINDOW_MS = 60_000;
/** Most recently read pages whose reads are counted; each takes 400 bytes with a key of 64 characters. */
export const HOT_READS_MAX_KEYS = 16_384;
/** Total characters of the keys of pages whose reads are counted; the counts take at most 10 MB. */
export const HOT_READS_MAX_KEY_CHARACTERS = 4 * MIB;

/** Requests to copy that a draining node has in progress. */
export const HANDOVERS_IN_FLIGHT_MAX_COUNT = 4;
/** Time that a draining node hands pages over, by default and at most. */
export const DRAIN_TIMEOUT_MS = 30_000;
export const DRAIN_TIMEOUT_MAX_MS = 3_600_000;
/** Bounds of the time for which a node that has left goes on serving; within them it is one heartbeat interval. */
export const DRAIN_LINGER_MIN_MS = 500;
export const DRAIN_LINGER_MAX_MS = 5_000;
