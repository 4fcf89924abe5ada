import { seededRandom } from '../base/random.js';

const SETTLING_PART = 1 / 4;

/** Batches of distinct 64-character hexadecimal keys, each a string of one piece as a program would hold it. */
export function hexKeyBatches(batches: number, batchKeys: number, seed: number): string[][] {
  const random = seededRandom(seed);
  const words = new Uint32Array(8);
  return Array.from({ length: batches }, () =>
    Array.from({ length: batchKeys }, () => {
      for (let i = 0; i < words.length; i++) words[i] = random.u32();
      return Buffer.from(words.buffer).toString('hex');
    }),
  );
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle] as number;
  return ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

/**
 * Nanoseconds that each of all operations takes; `run` does the first `part` of them (0 to 1). A short part goes before,
 * untimed: the garbage of the contender before is collected then, and is not charged to this one.
 */
export function timeSettledNs(count: number, run: (part: number) => void): number {
  run(SETTLING_PART);
  return timePerOperationNs(count, () => run(1));
}

/** Nanoseconds that one of `count` operations took. */
export function timePerOperationNs(count: number, run: () => void): number {
  const start = performance.now();
  run();
  return ((performance.now() - start) * 1e6) / count;
}
