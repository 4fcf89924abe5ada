import { DIRECTORY_REQUEST_MAX_KEY_BYTES, DIRECTORY_REQUEST_MAX_KEYS } from '../base/limits.js';

/** What the directory needs of the hash ring. */
export interface OwnerRing {
  readonly nodes: readonly string[];
  /** For each key `n` indices into `nodes`, the first owner first; NO_OWNER where there are no more. */
  getNodesBatch(keys: readonly string[], n: number): Uint32Array;
}

export const NO_OWNER = 0xffffffff;

/** A key's UTF-8 length is at most this many times its UTF-16 length. */
const UTF8_MAX_FACTOR = 3;

/** Runs of `indices` (into `keys`) that fit in one request each, in order. */
export function requestsOf(keys: readonly string[], indices: readonly number[]): number[][] {
  const requests: number[][] = [];
  let current: number[] = [];
  let bytes = 0;
  for (const i of indices) {
    const keyBytes = (keys[i] as string).length * UTF8_MAX_FACTOR;
    const isFull = current.length >= DIRECTORY_REQUEST_MAX_KEYS || bytes + keyBytes > DIRECTORY_REQUEST_MAX_KEY_BYTES;
    if (isFull && current.length > 0) {
      requests.push(current);
      current = [];
      bytes = 0;
    }
    current.push(i);
    bytes += keyBytes;
  }
  if (current.length > 0) requests.push(current);
  return requests;
}

/** Runs `task` for every item, at most `atOnce` of them at a time. */
export async function inParallel<T>(
  items: readonly T[],
  atOnce: number,
  task: (item: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length) await task(items[next++] as T);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
}
