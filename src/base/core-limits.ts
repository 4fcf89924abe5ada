/**
 * Limits of the core, which also runs in browsers. They have their own file because the checks of all limits are more
 * code than the core.
 */
const KIB = 2 ** 10;
const MIB = 2 ** 20;

/** A key's UTF-8 length, without the namespace. */
export const KEY_MAX_BYTES = 64 * KIB;
/** Length of the prefix that a namespace adds to a key: 32 hexadecimal characters and a slash. */
export const KEY_PREFIX_BYTES = 33;
/** UTF-8 bytes of all keys of one call into the core, which holds them in memory at once. */
export const CALL_MAX_KEY_BYTES = 128 * MIB;
/** Keys of one call that fit even if all of them have the maximum length. */
export const CALL_LONGEST_KEYS_COUNT = Math.floor(CALL_MAX_KEY_BYTES / (KEY_MAX_BYTES + KEY_PREFIX_BYTES));
/** Keys of one call; larger calls are refused. */
export const CALL_MAX_KEYS = 1 << 20;
/** Part of a pool that may wait for its quarantine to end. */
export const QUARANTINE_POOL_FRACTION = 1 / 16;
/** Tenants of a pool, tenant 0 included: a page has one byte for the number of its tenant. */
export const POOL_TENANTS_MAX_COUNT = 256;
/** Nodes that a map of pages can tell apart. */
export const PAGE_MAP_MAX_NODES = 2047;
/** Points of one hash ring: nodes times vnodes. */
export const RING_MAX_POINTS = 2 ** 24;
/** Points of each node on the ring, unless the configuration says otherwise. */
export const VNODES_DEFAULT_COUNT = 160;
export const NODE_ID_MAX_BYTES = 256;
/**
 * Longest delay until an owner learns of remote reads of its pages, which it does not see itself. Eviction policies
 * tolerate 5 s: on the conversation trace with 3 nodes of 10,000 pages, `yield` hits .329 with 5 s as with 2 s.
 */
export const READ_REPORT_DELAY_MS = 2_000;
