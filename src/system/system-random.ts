import { randomBytes } from 'node:crypto';
import type { RandomSource } from '../base/environment/random.js';

/** Cryptographically strong random numbers from the operating system. */
export const systemRandom: RandomSource = {
  bytes: (count) => new Uint8Array(randomBytes(count)),
  u32: () => randomBytes(4).readUInt32LE(0),
};
