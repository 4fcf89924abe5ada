import { seededRandom } from '../../base/environment/random.js';
import { KeyBatch } from '../../core/index.js';

const SETTLING_PART = 1 / 4;

/** Batches of distinct keys of 64 hexadecimal characters. Each key is a flat string, as a program would hold it. */
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

/** A batch with its text and without hashes, as when a request has just come in. */
export function encoded(keys: readonly string[]): KeyBatch {
  const batch = KeyBatch.of(keys);
  void batch.text;
  return batch;
}

/**
 * Nanoseconds for each of `count` operations; `run` does the given part (0 to 1) of them. The event loop first turns
 * and a part is done untimed, so that garbage of the contender before is not charged to this one.
 */
export async function timeSettledNs(count: number, run: (part: number) => void): Promise<number> {
  run(SETTLING_PART);
  await new Promise((resolve) => setImmediate(resolve));
  run(SETTLING_PART);
  return timePerOperationNs(count, () => run(1));
}

/** Nanoseconds for each of `count` operations. */
export function timePerOperationNs(count: number, run: () => void): number {
  const start = performance.now();
  run();
  return ((performance.now() - start) * 1e6) / count;
}
