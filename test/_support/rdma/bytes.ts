import { content } from '../support.js';

/** A prime, so that offsets which a test might mix up have different bytes. */
const TILE_BYTES = 65_521;

/** Bytes that follow from `seed` alone, made quickly also on emulated processors: `content` of a tile, repeated. */
export function tiled(seed: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  bytes.set(content(seed, Math.min(length, TILE_BYTES)));
  for (let at = TILE_BYTES; at < length; at *= 2) bytes.copyWithin(at, 0, Math.min(at, length - at));
  return bytes;
}

export function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

/** Whether all of the bytes are `byte`. */
export function isAll(bytes: Uint8Array, byte: number): boolean {
  return bytes.length === 0 || (bytes[0] === byte && isSame(bytes.subarray(1), bytes.subarray(0, -1)));
}
