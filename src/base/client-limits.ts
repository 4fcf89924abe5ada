/**
 * Limits of the client socket and of the processes that attach to it. `limits.ts` exports them with all others and
 * checks their relations.
 */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/**
 * Slowest rate at which a client, including a Redis client, may send a message that arrives in parts, and the window
 * over which the rate is measured.
 */
export const RECEIVING_MIN_BYTES_PER_S = 1 * MIB;
export const RECEIVING_WINDOW_MS = 10_000;
/**
 * A large message is received into memory that grows as bytes arrive: the step of each request to the memory budget,
 * the first length to grow to, and the growth factor.
 */
export const RECEIVING_STEP_BYTES = 256 * KIB;
export const RECEIVING_GROWN_MIN_BYTES = 512 * KIB;
export const RECEIVING_GROWTH_FACTOR = 4;
/**
 * Received bytes from which memory for the whole message is allocated, so that no more bytes are copied into a larger
 * buffer.
 */
export const RECEIVING_WHOLE_MIN_BYTES = 8 * MIB;
/** Memory that a server receives into again and again. */
export const RECEIVING_REUSED_BYTES = 256 * KIB;
/** Bytes of a client's input that are processed at a time: they may hold thousands of small requests. */
export const RECEIVING_PIECE_BYTES = 16 * KIB;
/** Time per turn of the main loop that the work of all clients may take; further work waits for the next turn. */
export const CLIENTS_TURN_MS = 2;
/**
 * Keys of a request (Redis requests included), and their bytes, that are decoded and processed in one step; between two
 * steps other requests get their turn. A read may have several steps waiting for other nodes at once.
 */
export const CLIENT_STEP_KEYS = 256;
export const CLIENT_STEP_KEY_BYTES = 256 * KIB;
export const CLIENT_READ_STEPS_MAX_COUNT = 4;
/** Pages that are set at a time. Setting one is much more work than looking one up. */
export const CLIENT_SET_STEP_KEYS = 128;
/** Bytes of a request that are checked, or of an answer that are put together, at a time. */
export const CLIENT_STEP_BYTES = 1 * MIB;
/**
 * The longest path of a client socket. The kernel has 108 bytes for a path, its terminating zero and the suffix of the
 * temporary name included.
 */
export const CLIENT_SOCKET_PATH_MAX_BYTES = 100;
/**
 * Attached processes, and connections that have not said hello. A further connection without a hello replaces the
 * oldest one.
 */
export const CLIENTS_MAX_COUNT = 256;
export const CLIENTS_GREETING_MAX_COUNT = 256;
/** Client names with counters of their own; further names share one. */
export const CLIENT_NAMES_MAX_COUNT = 32;
/** Clients that a node's report lists one by one. */
export const NODE_REPORT_CLIENTS_MAX_COUNT = 32;
/** Namespaces of attached clients in the report of a node. */
export const NODE_REPORT_NAMESPACES_MAX_COUNT = 64;
/** Longest text of a namespace, in characters, in the report of a node. */
export const NODE_REPORT_NAMESPACE_TEXT_MAX_CHARACTERS = 1024;
/**
 * The longest body on the client socket, and the total of bodies above CLIENT_SMALL_BODY_BYTES that all clients may
 * have in progress.
 */
export const CLIENT_BODY_MAX_BYTES = 64 * MIB;
export const CLIENTS_BODIES_MAX_BYTES = 512 * MIB;
export const CLIENT_SMALL_BODY_BYTES = 64 * KIB;
/** Total of small bodies of one client's unanswered requests. */
export const CLIENT_SMALL_BODIES_MAX_BYTES = 8 * MIB;
/** Unanswered requests of one client, and how many of them the node works on at once. */
export const CLIENT_IN_FLIGHT_MAX_COUNT = 1024;
export const CLIENT_RUNNING_MAX_COUNT = 16;
/** Requests that the node works on at once and whose answers are pages; each answer may be as large as a body. */
export const CLIENT_BYTES_RUNNING_MAX_COUNT = 4;
/** Above this many unread bytes of answers, the node reads no further requests from the client. */
export const CLIENT_OUTPUT_MAX_BYTES = 16 * MIB;
/**
 * Total bytes of answers that are being made or are unread, for all clients. Above this limit, no more pages are sent
 * on the socket.
 */
export const CLIENTS_OUTPUT_MAX_BYTES = 512 * MIB;
export const CLIENT_REQUEST_MAX_KEYS = 65_536;
/** Requests for pages that will be fetched later, and their pages, for one client; further ones are not fetched. */
export const CLIENT_LATER_MAX_COUNT = 256;
export const CLIENT_LATER_MAX_KEYS = 65_536;
/** Pieces of the pages of a GET or SET. */
export const CLIENT_REQUEST_MAX_PIECES = 65_536;
/** Bytes of all keys of an EXISTS, each key combined with each suffix. */
export const CLIENT_EXISTS_MAX_KEY_BYTES = 64 * MIB;
/** Bytes of a SET that are published at a time; between two steps the request can be cancelled. */
export const CLIENT_SET_STEP_BYTES = 128 * MIB;
/** Namespaces whose pools a node remembers, and pools of each. */
export const NAMESPACES_KNOWN_MAX_COUNT = 1024;
export const CLIENT_POOLS_MAX_COUNT = 256;
/** Characters of the longest token of a user. */
export const TOKEN_MAX_CHARACTERS = 1024;
/** Characters of a namespace tag in settings. */
export const NAMESPACE_TAG_MAX_CHARACTERS = 128;
/** Namespace tags with quotas; each has an order of eviction of its own. */
export const NAMESPACE_QUOTAS_MAX_COUNT = 64;
/**
 * Digests of namespaces and pools that a node knows for one tag with a quota or write policy of its own; using further
 * ones fails.
 */
export const NAMESPACE_PREFIXES_MAX_COUNT = 4096;
export const CLIENT_POOL_NAME_MAX_BYTES = 256;
/** Keys of one STAT, which asks which nodes hold a page. */
export const CLIENT_STAT_MAX_KEYS = 256;
/** Pools of one EVENTS, and keys of one answer to it. */
export const CLIENT_EVENTS_POOLS_MAX_COUNT = 16;
export const CLIENT_EVENTS_MAX_KEYS = 1024;
/** Time that a client's EVENTS waits for a change; then it asks again. */
export const CLIENT_EVENTS_WAIT_MS = 10_000;
/** Nodes that a STAT lists as holders of a page. */
export const CLIENT_HOLDERS_MAX_COUNT = 8;
export const CLIENT_REGIONS_MAX_COUNT = 64;
/** Smallest limit for the memory that a node maps for one client. */
export const CLIENT_REGIONS_MIN_BYTES = 1 * MIB;
/** Bytes of the regions of all clients together; a process has 128 TiB of address space. */
export const CLIENTS_REGIONS_MAX_BYTES = 32 * 1024 * GIB;
/**
 * Client memory that this node may be the first to touch, so that it is charged to the node: per client while it is
 * attached, and for all clients while the node runs, because nothing reports when such memory is freed.
 */
export const CLIENT_ABSENT_MAX_BYTES = 64 * MIB;
export const CLIENTS_ABSENT_MAX_BYTES = 256 * MIB;
/** Regions of all clients together; the kernel allows a process 65,530 mappings by default. */
export const CLIENTS_REGIONS_MAX_COUNT = 8192;
/**
 * Staging memory, which the node allocates: the limits for one client and for all clients together. On a small machine
 * or in a small container, all clients get at most a share of its memory, and one client a share of that.
 */
export const CLIENT_STAGING_MAX_BYTES = 256 * MIB;
export const CLIENTS_STAGING_MAX_BYTES = 4 * GIB;
export const CLIENTS_STAGING_MEMORY_SHARE = 0.25;
export const CLIENT_STAGING_SHARE = 0.25;
/**
 * Times of the TypeScript client: for one call, for attaching, slack after a call's deadline for the answer to arrive,
 * and the shortest and longest pause before it attaches again.
 */
export const CLIENT_TIMEOUT_MS = 5_000;
export const CLIENT_CONNECT_TIMEOUT_MS = 1_000;
export const CLIENT_ANSWER_GRACE_MS = 100;
export const CLIENT_RECONNECT_MIN_MS = 50;
export const CLIENT_RECONNECT_MAX_MS = 2_000;
/** Requests that a client has sent and that are not answered; further requests wait in the client. */
export const CLIENT_SENT_MAX_COUNT = 64;
/** Time for a client's requests to end when the client is closed. */
export const CLIENT_CLOSE_TIMEOUT_MS = 2_000;
/** Bytes of pages that a client sends or asks for in one request on the socket, unless a single page is larger. */
export const BYTES_REQUEST_TARGET_BYTES = 16 * MIB;
/** Memory of the node that one request may use to copy client files that cannot be mapped. */
export const CLIENT_FILE_COPIES_MAX_BYTES = 256 * MIB;
/** Deadline of a request that states none, and the longest deadline that is granted. */
export const CLIENT_DEADLINE_MS = 30_000;
/** Time that a closing node waits until the requests in progress of its clients are answered. */
export const CLIENT_FINISH_TIMEOUT_MS = 1_000;
export const CLIENT_HANDSHAKE_TIMEOUT_MS = 5_000;
/** A client is disconnected when it reads none of its answers, or does not complete a frame, for this long. */
export const CLIENT_STALL_TIMEOUT_MS = 30_000;
/** Connections to the descriptor socket; each carries one record. */
export const CLIENT_DESCRIPTOR_CONNECTIONS_MAX_COUNT = 64;
export const CLIENT_DESCRIPTOR_TIMEOUT_MS = 2_000;
