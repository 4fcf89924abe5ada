/**
 * Limits of what nodes do with each other's pages: placing them on storage nodes, reading them over TCP. `limits.ts`
 * exports them, and checks their relations.
 */
const MIB = 2 ** 20;

/** Keys of pages that a node is asked to hold at a time, for any reason. */
export const HOLD_REQUEST_MAX_KEYS = 128;
/** A node that has not taken what it was asked to copy after this long is left alone. */
export const HOLD_CALL_TIMEOUT_MS = 5_000;
/**
 * Bytes of pages that a storage node is asked to take at a time; a larger page is a request of its own. They are few,
 * because the storage node copies them in one go; its directory shard waits meanwhile, and so does setting pages.
 */
export const PLACEMENT_REQUEST_TARGET_BYTES = 4 * MIB;
/** Requests to one storage node that have not been answered. */
export const PLACEMENT_IN_FLIGHT_MAX_COUNT = 2;
/**
 * While pages are being set, a storage node is asked for the next ones only after a rest: this multiple of the time
 * that the last request took, at most the second limit. So placing takes at most a third of the time in which setting
 * wants the processor and the memory.
 */
export const PLACEMENT_REST_FACTOR = 2;
export const PLACEMENT_REST_MAX_MS = 500;
/**
 * Part of a pool that is kept from eviction because storage nodes are reading it; the second one where a disk tier
 * holds pages, too, mostly the same ones.
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
/** Shortest time between two searches of a pool for pages that were left out. */
export const PLACEMENT_SEARCH_INTERVAL_MS = 5_000;
/** Pages that storage nodes could not read, or had no room for, are searched for and placed again after this long. */
export const PLACEMENT_UNREAD_RETRY_MS = 10_000;
/**
 * Requests that a storage node works on at a time: several, so that a node that has frozen while it is read keeps no
 * other one waiting.
 */
export const PLACEMENT_REQUESTS_AT_ONCE_COUNT = 4;
/** Requests that a storage node works on or has waiting; it refuses further ones. */
export const PLACEMENT_REQUESTS_MAX_COUNT = 64;
/**
 * Prefixes of keys in one clear, in one request that tells of clears, and that a node remembers of all nodes. With more
 * in a clear, copies of all pages of the clearing node go; beyond that many remembered, the earliest become clears of
 * all keys of their nodes.
 */
export const CLEAR_MAX_PREFIXES = 1024;
/**
 * Clears in one request, and for one node that has yet to hear of them; beyond it, the node is told of all that are
 * known.
 */
export const CLEARS_REQUEST_MAX_COUNT = 256;
/** Nodes whose clears a node remembers; beyond it, the earliest are joined to one for the copies of all nodes. */
export const CLEARED_ORIGINS_MAX_COUNT = 4096;

/** Operations and payload of one TCP read request; a larger batch is several requests. */
export const READ_REQUEST_MAX_OPS = 1024;
export const READ_REQUEST_TARGET_BYTES = 16 * MIB;
/** Payload asked for and not yet received on one data connection. */
export const READ_IN_FLIGHT_MAX_BYTES = 64 * MIB;
/** A data connection that delivers nothing for this long while something is due is given up. */
export const READ_STALL_TIMEOUT_MS = 3_000;
export const READ_CONNECT_TIMEOUT_MS = 1_000;
/**
 * Shortest silence of a peer after which a read of its pages gives up. It leaves the kernel time to send a lost packet
 * again, 200 ms, and a busy machine time to let the peer's thread run.
 */
export const PEER_PATIENCE_MIN_MS = 250;
/**
 * Longest time that an aborted read waits for bytes of its peer when they would be received into its memory; then the
 * connection is closed, so that no more bytes can arrive.
 */
export const READ_ABORT_GRACE_MS = 100;
/** Pause before a peer that is not reached is tried again, in the background; it doubles up to the maximum. */
export const READ_RETRY_AFTER_MS = 50;
export const READ_RETRY_MAX_MS = 1_000;
/**
 * Time for which a peer that is not reached, and from which nobody reads, is tried again; after that the next read
 * tries it.
 */
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
 * Longest time for a data connection's hello, or for one request, to arrive whole once it has begun.
 * Generous: it is the reader's main thread that sends them, and that may be busy for seconds.
 */
export const READ_HANDSHAKE_TIMEOUT_MS = 10_000;
/** A reader that has not taken one whole response after this long is given up. */
export const READ_DRAIN_TIMEOUT_MS = 120_000;
/**
 * Bytes of an answer that are written at a time over TLS, where the writing thread encrypts. Without TLS the kernel
 * takes a whole answer at once.
 */
export const READ_TLS_WRITE_MAX_BYTES = 1 * MIB;
/** When serving ends, peers have this long to take the answers that are under way. */
export const READ_FINISH_TIMEOUT_MS = 500;
/**
 * A peer that vanishes without a word while its connection is idle is noticed by probes of the kernel after about this
 * long.
 */
export const KEEP_ALIVE_DELAY_MS = 30_000;
/** KEEP_ALIVE_DELAY_MS for the readers of a node, which are many and mostly idle. */
export const READERS_KEEP_ALIVE_DELAY_MS = 60_000;
