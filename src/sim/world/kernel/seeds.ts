import { type RandomSource, seededRandom } from '../../../base/environment/random.js';

/**
 * A separate generator for each purpose, named by numbers and words. Its draws do not affect the others, so that a run
 * from which something was removed stays the same otherwise.
 */
export function forkedRandom(seed: number, ...purpose: readonly (number | string)[]): RandomSource {
  return seededRandom(forkedSeed(seed, ...purpose));
}

function forkedSeed(seed: number, ...purpose: readonly (number | string)[]): number {
  let state = seed >>> 0;
  for (const part of purpose) {
    const text = String(part);
    for (let i = 0; i < text.length; i++) state = Math.imul(state ^ text.charCodeAt(i), 0x01000193);
    // Marks the end of a part: (1, 23) is another purpose than (12, 3).
    state = Math.imul(state ^ (state >>> 15) ^ 0x9e3779b9, 0x2c1b3c6d);
    state ^= state >>> 12;
  }
  return state >>> 0;
}

/** A uniform number in [0, 1), in steps of 2^-32. */
export function fraction(random: RandomSource): number {
  return random.u32() / 2 ** 32;
}

/** A whole number from 0 to `count` - 1. */
export function below(random: RandomSource, count: number): number {
  return Math.floor(fraction(random) * count);
}

export function chance(random: RandomSource, probability: number): boolean {
  return probability > 0 && fraction(random) < probability;
}
