/** Names of the eviction policies. */
export const EVICTION_POLICIES = ['lru', 's3fifo', 'yield'] as const;

/**
 * Which page is evicted when room is needed. `lru`: the least recently used one. `s3fifo`: chosen by S3-FIFO, so that
 * pages used only once do not displace the rest. `yield`: the page with the fewest expected hits, learned from similar
 * pages.
 */
export type EvictionPolicy = (typeof EVICTION_POLICIES)[number];
