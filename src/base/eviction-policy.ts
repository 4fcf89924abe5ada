/** The policies of eviction, by their names. */
export const EVICTION_POLICIES = ['lru', 's3fifo', 'yield'] as const;

/**
 * Which page goes when there is no room: the least recently used one; or by S3-FIFO, which keeps what is used once
 * from pushing out the rest; or, with `yield`, the one of which the fewest hits are expected, learned from what pages like
 * it have had.
 */
export type EvictionPolicy = (typeof EVICTION_POLICIES)[number];
