import { crc32 as zlibCrc32 } from 'node:zlib';

/** CRC-32 (IEEE) of `bytes`, which may be shared memory; `seed` is the sum of what came before them. */
export function crc32(bytes: Uint8Array, seed = 0): number {
  return zlibCrc32(bytes, seed);
}

/** CRC-32 of the bytes of all views, one after the other. */
export function crc32Views(views: readonly Uint8Array[]): number {
  let sum = 0;
  for (const view of views) sum = zlibCrc32(view, sum);
  return sum;
}
