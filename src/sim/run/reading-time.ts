import { PROMOTE_RETRY_MAX_MS, QUARANTINE_POOL_FRACTION } from '../../base/limits.js';
import type { Scenario } from '../scenario/scenario.js';

const QUARANTINE_MS = 1_000;

/**
 * Additional milliseconds until every node has read that many pages, with `verify_reads` off. A page on a disk needs
 * memory of its pool before others can read it, for each reader anew. Freed memory rests for the whole quarantine, as
 * nothing else keeps pages whole under readers; at most QUARANTINE_POOL_FRACTION of the pool, or one page, may rest at
 * a time. A reader asks again in pauses: once until the memory is freed, and once when it has rested.
 */
export function promotingMs({ shape, nodes }: Scenario, pages: number): number {
  if (shape.config.verify_reads !== false || shape.diskPages === null) return 0;
  const quarantineMs = Number(shape.config.reuse_quarantine_ms ?? QUARANTINE_MS);
  const places = Math.max(1, Math.floor(shape.poolPages * QUARANTINE_POOL_FRACTION));
  return (pages * (nodes - 1) * (quarantineMs + 2 * PROMOTE_RETRY_MAX_MS)) / places;
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
