import { ArgumentError } from '../base/errors.js';
import { CLIENT_POOL_NAME_MAX_BYTES } from '../base/limits.js';
import { shown } from '../base/shown.js';
import { TEXT_MAX_BYTES } from '../clients/wire/body.js';
import { checkKey } from '../core/binding/key-encoder.js';

/** Bytes of a request beside keys and their lengths: the name of the pool, flags, counts. */
const FIXED_BYTES = CLIENT_POOL_NAME_MAX_BYTES + 64;
/** Bytes for the length of a key and the length of its page. */
const LENGTHS_BYTES = 6;

/** Keys that travel in one request, beginning with the key of index `start`. */
export interface KeySlice {
  readonly start: number;
  readonly keys: string[];
}

/** Throws `ArgumentError` for keys and pools that cannot be encoded, or that the node would refuse. */
export function checkClientKeys(keys: readonly string[], pool: string): void {
  if (!pool.isWellFormed() || Buffer.byteLength(pool) > CLIENT_POOL_NAME_MAX_BYTES) {
    throw new ArgumentError(
      `the name of a pool must be well-formed text of at most ${CLIENT_POOL_NAME_MAX_BYTES} bytes, got ${shown(pool)}`,
    );
  }
  for (const [i, key] of keys.entries()) checkKey(key, TEXT_MAX_BYTES, i);
}

/** An upper bound of a key's bytes: UTF-8 needs at most three bytes for a UTF-16 unit. */
export function keyBytesAtMost(key: string): number {
  return LENGTHS_BYTES + 3 * key.length;
}

/** Cuts keys into slices that each fit into a body. */
export function* keySlices(
  keys: readonly string[],
  {
    maxCount,
    maxBytes,
    besideKeyBytes = 0,
  }: { readonly maxCount: number; readonly maxBytes: number; readonly besideKeyBytes?: number },
): Iterable<KeySlice> {
  let start = 0;
  let bytes = FIXED_BYTES;
  for (const [i, key] of keys.entries()) {
    const keyBytes = keyBytesAtMost(key) + besideKeyBytes;
    if (i > start && (i - start >= maxCount || bytes + keyBytes > maxBytes)) {
      yield { start, keys: keys.slice(start, i) };
      start = i;
      bytes = FIXED_BYTES;
    }
    bytes += keyBytes;
  }
  if (start < keys.length) yield { start, keys: keys.slice(start) };
}
