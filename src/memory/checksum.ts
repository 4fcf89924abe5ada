import { crc32 as zlibCrc32 } from 'node:zlib';
import { loadNative } from '../native/addon/loader.js';

/** Calling the addon takes 0.1 microseconds longer than calling zlib: the time in which zlib sums so many bytes. */
const CHECKSUM_NATIVE_MIN_BYTES = 256;

/** CRC-32 (IEEE) of `bytes`, which may be shared memory; `seed` is the sum of what came before them. */
export function crc32(bytes: Uint8Array, seed = 0): number {
  const { addon } = loadNative();
  return addon === null || bytes.length < CHECKSUM_NATIVE_MIN_BYTES ? zlibCrc32(bytes, seed) : addon.crc32(bytes, seed);
}

/** CRC-32 of the bytes of all views, one after the other. */
export function crc32Views(views: readonly Uint8Array[]): number {
  let sum = 0;
  for (const view of views) sum = crc32(view, sum);
  return sum;
}
