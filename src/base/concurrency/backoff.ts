import type { RandomSource } from '../environment/random.js';

/** Pauses between attempts, in milliseconds: the first, and the longest. */
export interface BackoffLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/** The pause after this many failures in a row (at least 1); it doubles with each failure, up to the maximum. */
export function pauseAfter(failures: number, { minMs, maxMs }: BackoffLimits): number {
  return Math.min(minMs * 2 ** (failures - 1), maxMs);
}

/** Shortens a pause by up to a quarter at random, so that peers that failed together do not all retry at once. */
export function jittered(pauseMs: number, random: Pick<RandomSource, 'u32'>): number {
  return pauseMs * (0.75 + random.u32() / 2 ** 34);
}
