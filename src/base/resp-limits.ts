/** Limits of the door for Redis clients. `limits.ts` exports them with all others and checks their relations. */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** Connections of Redis clients; further ones are refused. */
export const RESP_CONNECTIONS_MAX_COUNT = 1024;
/** The longest argument of a command; the default of Redis. */
export const RESP_ARGUMENT_MAX_BYTES = 512 * MIB;
/** Arguments of one command, and total bytes of those that are not received into memory of their own. */
export const RESP_ARGUMENTS_MAX_COUNT = 2 ** 17 + 1;
export const RESP_ARGUMENTS_MAX_BYTES = 64 * MIB;
/** Arguments of a command, and the length of each, for a client that has not authenticated itself. */
export const RESP_STRANGER_ARGUMENTS_MAX_COUNT = 10;
export const RESP_STRANGER_ARGUMENT_MAX_BYTES = 16 * KIB;
/** Overhead of one argument, in bytes. */
export const RESP_ARGUMENT_COST_BYTES = 128;
/** The most memory that a command with one large argument takes while it is received. */
export const RESP_COMMAND_MAX_BYTES =
  RESP_ARGUMENT_MAX_BYTES + RESP_ARGUMENTS_MAX_BYTES + RESP_ARGUMENTS_MAX_COUNT * RESP_ARGUMENT_COST_BYTES;
/** The longest line: the beginning of an array or an argument, or a command that is typed in. */
export const RESP_LINE_MAX_BYTES = 64 * KIB;
/**
 * An argument that is longer than this, and does not arrive together with its header, is received into memory of its
 * own, which is reserved first.
 */
export const RESP_LARGE_ARGUMENT_BYTES = 32 * KIB;
/**
 * Bytes of a command's other arguments, with their overhead, that are received before memory is reserved for them, and
 * the step by which it is reserved.
 */
export const RESP_WORDS_FREE_BYTES = 64 * KIB;
export const RESP_WORDS_STEP_BYTES = 256 * KIB;
/** Bytes of arguments that are being received on all connections, and of answers that values are read into for them. */
export const RESP_ARGUMENTS_BUDGET_BYTES = 1 * GIB;
export const RESP_VALUES_BUDGET_BYTES = 1 * GIB;
/** Bytes of memory for large arguments and values that are kept for reuse. */
export const RESP_FREE_MEMORY_MAX_BYTES = 64 * MIB;
/**
 * Commands of one connection that wait to be executed, and their bytes; beyond it, nothing more is read from the
 * connection.
 */
export const RESP_WAITING_MAX_COUNT = 16_384;
export const RESP_WAITING_MAX_BYTES = 4 * MIB;
/**
 * Bytes of commands that wait on all connections. Above it, a connection is read only if none of its commands waits.
 */
export const RESP_ALL_WAITING_MAX_BYTES = 64 * MIB;
/** Consecutive commands of one kind that are executed together: their number, keys and bytes. */
export const RESP_BATCH_MAX_COUNT = 256;
export const RESP_BATCH_MAX_KEYS = 1024;
export const RESP_BATCH_MAX_BYTES = 16 * MIB;
/** Bytes of a pipeline that are received, as long as more arrive at once, before its first commands are executed. */
export const RESP_GATHERED_MAX_BYTES = 4 * MIB;
/** Bytes of values that are read together into one piece of memory; a longer value has one of its own. */
export const RESP_READ_TARGET_BYTES = 1 * MIB;
/** A client with more unread bytes of answers than this gets no further command executed. */
export const RESP_OUTPUT_MAX_BYTES = 512 * KIB;
/**
 * Values of at least this length are sent directly from the pool. It is above the high-water mark of a socket, so that
 * `drain` follows.
 */
export const RESP_SERVED_MIN_BYTES = 64 * KIB;
/**
 * Bytes of values that are written to the socket at a time, or up to twice as many. With half of it, pipelined GETs of
 * 64 KiB and 1 MiB take a fifth to a third longer; twice as much gains nothing.
 */
export const RESP_SLICE_BYTES = 1 * MIB;
/**
 * A command that changes data is not executed if it may have been sent longer ago than this, because the node was not
 * running: its client may have given up. Redis clients do not say how long they wait.
 */
export const RESP_SENT_MAX_MS = 2_000;
/** Longest time of one batch of commands in the store. */
export const RESP_DEADLINE_MS = 30_000;
/** A connection ends if its client takes none of its answers, or does not complete a command, for this long. */
export const RESP_STALL_TIMEOUT_MS = 30_000;
/** Time for a connection to authenticate itself, where that is required. */
export const RESP_LOGIN_TIMEOUT_MS = 10_000;
/** Time that a closing node waits until commands in progress are answered. */
export const RESP_FINISH_TIMEOUT_MS = 1_000;
/** The longest password. */
export const RESP_PASSWORD_MAX_CHARACTERS = 1024;

/** Part of a pool that may be held while it is sent to clients. Beyond it, values are copied. */
export const SERVED_POOL_FRACTION = 1 / 32;
/**
 * Part of a pool that may be held while other threads copy it to clients and pages are being set. Beyond it, sets wait
 * for the copies.
 */
export const COPIED_POOL_FRACTION = 1 / 32;
/** Longest time that setting a page waits for clients that are being sent the page that it replaces. */
export const POOL_SERVED_WAIT_MS = 1_000;
/** Time after which a client that still holds a page that is to be replaced is disconnected. */
export const POOL_SERVED_GRACE_MS = 500;
