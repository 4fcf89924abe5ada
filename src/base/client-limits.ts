/** Limits of the client socket and of those who attach to it; `limits.ts` exports them with all others and checks the relations between them. */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** Of the path of a client socket: with a few bytes behind it, and a null, the path has to fit in the 108 that the kernel has for one. */
export const CLIENT_SOCKET_PATH_MAX_BYTES = 100;
/** Processes of this host that are attached to a node, and connections that have not said hello: of these the oldest goes. */
export const CLIENTS_MAX_COUNT = 256;
export const CLIENTS_GREETING_MAX_COUNT = 256;
/** Names under which clients are counted each; all further ones together. */
export const CLIENT_NAMES_MAX_COUNT = 32;
/** Clients of a node that its report names each. */
export const NODE_REPORT_CLIENTS_MAX_COUNT = 32;
/** A body of the client socket, and what all clients may have under way of bodies above CLIENT_SMALL_BODY_BYTES. */
export const CLIENT_BODY_MAX_BYTES = 64 * MIB;
export const CLIENTS_BODIES_MAX_BYTES = 512 * MIB;
export const CLIENT_SMALL_BODY_BYTES = 64 * KIB;
/** Smaller bodies of requests of one client that have not been answered. */
export const CLIENT_SMALL_BODIES_MAX_BYTES = 8 * MIB;
/** Requests of a client that have not been answered, and those of them that are being worked on. */
export const CLIENT_IN_FLIGHT_MAX_COUNT = 1024;
export const CLIENT_RUNNING_MAX_COUNT = 16;
/** Of those, requests whose answers are pages: each may be as large as a body. */
export const CLIENT_BYTES_RUNNING_MAX_COUNT = 4;
/** While more answers wait for a client to take them, nothing more is taken from it and done for it. */
export const CLIENT_OUTPUT_MAX_BYTES = 16 * MIB;
/** While more answers wait for all clients together, no more pages are sent on the socket. */
export const CLIENTS_OUTPUT_MAX_BYTES = 1 * GIB;
export const CLIENT_REQUEST_MAX_KEYS = 65_536;
/** Pieces of the pages of a GET or SET. */
export const CLIENT_REQUEST_MAX_PIECES = 65_536;
/** Bytes of the keys of an EXISTS, each with each suffix. */
export const CLIENT_EXISTS_MAX_KEY_BYTES = 64 * MIB;
/** Pages of a SET are published so many bytes at a time; between them it can be cancelled. */
export const CLIENT_SET_STEP_BYTES = 128 * MIB;
/** Namespaces whose pools a node remembers, and pools of each. */
export const NAMESPACES_KNOWN_MAX_COUNT = 1024;
export const CLIENT_POOLS_MAX_COUNT = 256;
export const CLIENT_POOL_NAME_MAX_BYTES = 256;
/** Keys of one question for who has them. */
export const CLIENT_STAT_MAX_KEYS = 256;
/** Nodes that are named as having a page. */
export const CLIENT_HOLDERS_MAX_COUNT = 8;
export const CLIENT_REGIONS_MAX_COUNT = 64;
/** Staging memory of one client, and of all. */
export const CLIENT_STAGING_MAX_BYTES = 256 * MIB;
export const CLIENTS_STAGING_MAX_BYTES = 4 * GIB;
/** A client in TypeScript: of a call; of attaching; what an answer may be later than its deadline; pauses before it attaches again. */
export const CLIENT_TIMEOUT_MS = 5_000;
export const CLIENT_CONNECT_TIMEOUT_MS = 1_000;
export const CLIENT_ANSWER_GRACE_MS = 100;
export const CLIENT_RECONNECT_MIN_MS = 50;
export const CLIENT_RECONNECT_MAX_MS = 2_000;
/** Requests that it has with the node at a time; further ones wait with the client. */
export const CLIENT_SENT_MAX_COUNT = 64;
/** How long its requests have to end when it is closed. */
export const CLIENT_CLOSE_TIMEOUT_MS = 2_000;
/** Pages that it sends or asks for in one request on the socket, unless a single one is larger. */
export const BYTES_REQUEST_TARGET_BYTES = 16 * MIB;
/** What one request moves of a client's files that cannot be mapped: so much memory of the node's own it takes. */
export const CLIENT_FILE_COPIES_MAX_BYTES = 256 * MIB;
/** What a request without a deadline has, and the longest that is granted. */
export const CLIENT_DEADLINE_MS = 30_000;
/** What a node that closes waits for the answers of what its clients have under way. */
export const CLIENT_FINISH_TIMEOUT_MS = 1_000;
export const CLIENT_HANDSHAKE_TIMEOUT_MS = 5_000;
/** A client that takes nothing of its answers for so long, or does not end a frame in that time, is disconnected. */
export const CLIENT_STALL_TIMEOUT_MS = 30_000;
/** Connections to the socket of descriptors, each for one record. */
export const CLIENT_DESCRIPTOR_CONNECTIONS_MAX_COUNT = 64;
export const CLIENT_DESCRIPTOR_TIMEOUT_MS = 2_000;
