import type { RandomSource } from '../environment/random.js';

/** Pauses between attempts, in milliseconds: the first, and the longest. */
export interface BackoffLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/** The pause after so many failures in a row, at least one: each is twice the one before, up to the longest. */
export function pauseAfter(failures: number, { minMs, maxMs }: BackoffLimits): number {
  return Math.min(minMs * 2 ** (failures - 1), maxMs);
}

/** A pause, up to a quarter shorter by chance, so that those who have failed together do not all try again at once. */
export function jittered(pauseMs: number, random: Pick<RandomSource, 'u32'>): number {
  return pauseMs * (0.75 + random.u32() / 2 ** 34);
}
