import { PROMOTE_POOL_FRACTION } from '../../base/limits.js';
import type { Scenario } from '../scenario/scenario.js';

const QUARANTINE_MS = 1_000;

/**
 * How much longer it may take until every node has read so many pages, in milliseconds: with `verify_reads` off, memory of a pool that was
 * freed rests for the whole quarantine, as nothing else keeps pages whole under readers. A page on a disk needs such memory before others can
 * read it, and there is none but the part of the pool that is for promoted pages: at most so many of these a quarantine, for each reader anew.
 */
export function promotingMs({ shape, nodes }: Scenario, pages: number): number {
  if (shape.config.verify_reads !== false || shape.diskPages === null) return 0;
  const quarantineMs = Number(shape.config.reuse_quarantine_ms ?? QUARANTINE_MS);
  const places = Math.max(1, Math.floor(shape.poolPages * PROMOTE_POOL_FRACTION));
  return (pages * (nodes - 1) * quarantineMs) / places;
}
