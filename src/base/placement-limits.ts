/** Limits of placing pages on storage nodes. `limits.ts` exports them, and checks their relations. */
const MIB = 2 ** 20;

/**
 * Keys that a storage node is asked to take at a time, and bytes of their pages; a larger page is a request of its own. A storage node copies
 * them in one go, and its directory shard waits meanwhile, for which the setting of pages waits: so they are few.
 */
export const PLACEMENT_REQUEST_MAX_KEYS = 128;
export const PLACEMENT_REQUEST_TARGET_BYTES = 4 * MIB;
/** Requests to one storage node that have not been answered. */
export const PLACEMENT_IN_FLIGHT_MAX_COUNT = 2;
/**
 * While pages are being set, a storage node is asked for the next ones only after a rest: this multiple of the time that the last request took, at
 * most the second limit. So placing takes at most a third of the time in which setting wants the processor and the memory.
 */
export const PLACEMENT_REST_FACTOR = 2;
export const PLACEMENT_REST_MAX_MS = 500;
/** Part of a pool that is kept from eviction because storage nodes are reading it; the second one where a disk tier holds pages, too, mostly the same ones. */
export const PLACEMENT_HELD_POOL_FRACTION = 1 / 4;
export const PLACEMENT_HELD_BESIDE_DISK_POOL_FRACTION = 1 / 64;
/** A storage node that has not answered after this long is skipped. */
export const PLACEMENT_CALL_TIMEOUT_MS = 5_000;
/** Pages of a node that wait to be placed, and characters of their keys; further ones stay in its pool alone until there is room. */
export const PLACEMENTS_WAITING_MAX_COUNT = 16_384;
export const PLACEMENTS_WAITING_MAX_CHARACTERS = 16 * MIB;
/** Pause before a storage node that has failed or refused is asked again; it doubles from the minimum to the maximum. */
export const PLACEMENT_RETRY_MIN_MS = 250;
export const PLACEMENT_RETRY_MAX_MS = 8_000;
/** Shortest time between two searches of a pool for pages that were left out. */
export const PLACEMENT_SEARCH_INTERVAL_MS = 5_000;
/** Pages that storage nodes could not read, or had no room for, are searched for and placed again after this long. */
export const PLACEMENT_UNREAD_RETRY_MS = 10_000;
/** Requests that a storage node works on at a time: several, so that a node that has frozen while it is read keeps no other one waiting. */
export const PLACEMENT_REQUESTS_AT_ONCE_COUNT = 4;
/** Requests that a storage node works on or has waiting; it refuses further ones. */
export const PLACEMENT_REQUESTS_MAX_COUNT = 64;
/** Prefixes of keys in one request to clear; for more, all keys of the node are cleared. */
export const PLACEMENT_CLEAR_MAX_PREFIXES = 1024;
/** Calls of `clear()` that a node remembers, to tell storage nodes that were away; beyond it, the oldest ones become one for all keys. */
export const PLACEMENT_CLEARS_MAX_COUNT = 64;
