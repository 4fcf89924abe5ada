import { PROMOTE_POOL_FRACTION, PROMOTE_RETRY_MAX_MS, QUARANTINE_POOL_FRACTION } from '../../base/limits.js';
import type { Scenario } from '../scenario/scenario.js';

const QUARANTINE_MS = 1_000;

/** One-way messages in which a reader has a page brought into memory, reads it, and lets it go. */
const PROMOTION_MESSAGES_COUNT = 6;

/**
 * Additional milliseconds until every node has read that many pages of a disk. Each reader, its own node among them,
 * needs a page in memory for itself; at most PROMOTE_POOL_FRACTION of the pool, or one page, is there for readers at a
 * time. With `verify_reads` off, freed memory rests for the whole quarantine, as nothing else keeps pages whole under
 * readers, and at most QUARANTINE_POOL_FRACTION of the pool, or one page, may rest. A reader asks again in pauses: once
 * until the memory is freed, and once when it has rested.
 */
export function promotingMs({ shape, network, nodes }: Scenario, pages: number): number {
  if (shape.diskPages === null) return 0;
  const placesOf = (fraction: number): number => Math.max(1, Math.floor(shape.poolPages * fraction));
  const sendingMs = (PROMOTION_MESSAGES_COUNT * network.latencyMs) / placesOf(PROMOTE_POOL_FRACTION);
  if (shape.config.verify_reads !== false) return pages * nodes * sendingMs;
  const quarantineMs = Number(shape.config.reuse_quarantine_ms ?? QUARANTINE_MS);
  return pages * nodes * (sendingMs + (quarantineMs + 2 * PROMOTE_RETRY_MAX_MS) / placesOf(QUARANTINE_POOL_FRACTION));
}

/** Reads that come too late are repeated, and may leave the link with much that nobody waits for any more. */
const TRANSFERS_COUNT = 6;

/**
 * Additional milliseconds until every node has found that many pages: see {@link promotingMs}, and the time in which
 * one node, which may have all of them, can send them to all others.
 */
export function searchingMs(scenario: Scenario, pages: number): number {
  const { shape, network, nodes } = scenario;
  const bytes = pages * shape.pageBytes * (nodes - 1);
  return promotingMs(scenario, pages) + (TRANSFERS_COUNT * bytes * 1000) / network.bytesPerS;
}
