/** Limits of the door for Redis clients. `limits.ts` exports them with all others and checks their relations. */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** Connections of Redis clients; further ones are refused. */
export const RESP_CONNECTIONS_MAX_COUNT = 1024;
/** The longest argument of a command, as Redis has it by default. */
export const RESP_ARGUMENT_MAX_BYTES = 512 * MIB;
/** Arguments of one command, and the bytes of those that are not received into memory of their own. */
export const RESP_ARGUMENTS_MAX_COUNT = 2 ** 17 + 1;
export const RESP_ARGUMENTS_MAX_BYTES = 64 * MIB;
/** Arguments of a command, and the length of each, for a client that has not authenticated itself. */
export const RESP_STRANGER_ARGUMENTS_MAX_COUNT = 10;
export const RESP_STRANGER_ARGUMENT_MAX_BYTES = 16 * KIB;
/** Bytes that an argument takes beside its own. */
export const RESP_ARGUMENT_COST_BYTES = 128;
/** What a command with one large argument takes while it is received, at most. */
export const RESP_COMMAND_MAX_BYTES =
  RESP_ARGUMENT_MAX_BYTES + RESP_ARGUMENTS_MAX_BYTES + RESP_ARGUMENTS_MAX_COUNT * RESP_ARGUMENT_COST_BYTES;
/** The longest line: the beginning of an array or an argument, or a command that is typed in. */
export const RESP_LINE_MAX_BYTES = 64 * KIB;
/**
 * A longer argument that does not come with its beginning is received into memory of its own, which is reserved before.
 */
export const RESP_LARGE_ARGUMENT_BYTES = 32 * KIB;
/**
 * Bytes of the other arguments of a command, with what they take, that are received before memory is reserved for them,
 * and the steps in which it is.
 */
export const RESP_WORDS_FREE_BYTES = 64 * KIB;
export const RESP_WORDS_STEP_BYTES = 256 * KIB;
/** Bytes of arguments of all connections that are being received, and of large values that are read for them. */
export const RESP_ARGUMENTS_BUDGET_BYTES = 1 * GIB;
export const RESP_VALUES_BUDGET_BYTES = 1 * GIB;
/** Bytes of memory of large arguments that are kept for later ones. */
export const RESP_FREE_MEMORY_MAX_BYTES = 64 * MIB;
/** Commands, and their bytes, of one connection that wait to be carried out; nothing more is read from it then. */
export const RESP_WAITING_MAX_COUNT = 16_384;
export const RESP_WAITING_MAX_BYTES = 4 * MIB;
/**
 * Bytes of commands that wait on all connections. Above it a connection is read only when none of its commands waits.
 */
export const RESP_ALL_WAITING_MAX_BYTES = 64 * MIB;
/** Commands of one kind that lie next to each other and are carried out at once: their number, keys and bytes. */
export const RESP_BATCH_MAX_COUNT = 256;
export const RESP_BATCH_MAX_KEYS = 1024;
export const RESP_BATCH_MAX_BYTES = 16 * MIB;
/** Bytes of small values that are read at once. */
export const RESP_READ_TARGET_BYTES = 1 * MIB;
/** Above this many bytes that a client has not taken, none of its commands is carried out. */
export const RESP_OUTPUT_MAX_BYTES = 512 * KIB;
/**
 * Values from this length on are sent from where they lie in the pool. It is above the high-water mark of a socket, so
 * that `drain` follows.
 */
export const RESP_SERVED_MIN_BYTES = 64 * KIB;
/** Bytes of a value that are given to the socket at a time. */
export const RESP_SLICE_BYTES = 256 * KIB;
/**
 * A command with effect that may have been sent longer ago, because the node was not running, is not carried out: its
 * client may have given it up. Redis clients do not say how long they wait.
 */
export const RESP_SENT_MAX_MS = 2_000;
/** Longest time of one batch of commands in the store. */
export const RESP_DEADLINE_MS = 30_000;
/** A connection ends when its client takes none of its answers, or does not complete a command, for this long. */
export const RESP_STALL_TIMEOUT_MS = 30_000;
/** Time for a connection to authenticate itself, where that is demanded. */
export const RESP_LOGIN_TIMEOUT_MS = 10_000;
/** Time that a closing node waits until commands in progress are answered. */
export const RESP_FINISH_TIMEOUT_MS = 1_000;
/** The longest password. */
export const RESP_PASSWORD_MAX_CHARACTERS = 1024;

/** Part of a pool that may be held while it is sent to clients. Beyond it values are copied. */
export const SERVED_POOL_FRACTION = 1 / 32;
/**
 * Part of a pool that may be held while other threads copy it to clients and pages are set beside them. Beyond it sets
 * wait for the copies.
 */
export const COPIED_POOL_FRACTION = 1 / 32;
/** Longest time that setting a page waits for those who send the page that it replaces. */
export const POOL_SERVED_WAIT_MS = 1_000;
/** After this time a client that still holds a page which is to be replaced is disconnected. */
export const POOL_SERVED_GRACE_MS = 500;
