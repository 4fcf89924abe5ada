import type { Clock } from '../../base/environment/clock.js';
import { ArgumentError } from '../../base/errors.js';
import { DIRECTORY_KEY_MAX_BYTES } from '../../base/limits.js';
import { type Keys, stringsOf } from '../../core/binding/key-batch.js';

/** Number of keys that are processed before yielding to other work. */
const SLICE_KEYS = 16_384;

/** Throws `ArgumentError` for a key that is not well-formed text, or is too long. */
export function checkKeys(keys: readonly string[]): void {
  for (const key of keys) {
    if (typeof key !== 'string') throw new ArgumentError(`a key must be text, got ${typeof key}`);
    if (!key.isWellFormed()) throw new ArgumentError(`a key must be well-formed text, got ${JSON.stringify(key)}`);
    if (key.length * 3 <= DIRECTORY_KEY_MAX_BYTES) continue;
    const bytes = Buffer.byteLength(key);
    if (bytes > DIRECTORY_KEY_MAX_BYTES) {
      throw new ArgumentError(`got a key of ${bytes} bytes, at most ${DIRECTORY_KEY_MAX_BYTES} are allowed`);
    }
  }
}

/** Calls `task` for one slice of the keys after the other, and yields to other work in between. */
export async function eachSlice<K extends Keys>(
  asked: K,
  clock: Clock,
  task: (slice: K | readonly string[], start: number) => Promise<void>,
): Promise<void> {
  if (stringsOf(asked).length <= SLICE_KEYS) return task(asked, 0);
  // The caller may change its list between two parts.
  const keys = stringsOf(asked).slice();
  for (let start = 0; start < keys.length; start += SLICE_KEYS) {
    await task(keys.slice(start, start + SLICE_KEYS), start);
    await clock.yield();
  }
}

/** Returns the items at these indices in a new list, because requests keep it until they are sent. */
export function pick<T>(items: readonly T[], indices: readonly number[]): T[] {
  return indices.map((i) => items[i] as T);
}
