import { DIRECTORY_REQUEST_MAX_KEY_BYTES, DIRECTORY_REQUEST_MAX_KEYS } from '../../base/limits.js';
import { KeyBatch, type Keys, stringsOf } from '../../core/binding/key-batch.js';

/** The part of the hash ring that the directory needs. */
export interface OwnerRing {
  readonly nodes: readonly string[];
  /** For each key, `n` indices into `nodes`, the first owner first, padded with NO_OWNER. */
  getNodesBatch(keys: Keys, n: number): Uint32Array;
  /** Like `getNodesBatch`, but ignores the zones of the nodes. A ring without zones leaves it out. */
  getNextNodesBatch?(keys: Keys, n: number): Uint32Array;
}

export const NO_OWNER = 0xffffffff;

/** A key's UTF-8 length is at most this many times its UTF-16 length. */
const UTF8_MAX_FACTOR = 3;
const RING_SLICE_KEYS = 4096;
const RING_SLICE_BYTES = DIRECTORY_REQUEST_MAX_KEY_BYTES;

/** Splits `indices` (into `keys`) into runs that fit in one request each, in order. */
export function requestsOf(keys: readonly string[], indices: readonly number[]): (readonly number[])[] {
  if (indices.length > 0 && fitInRequest(keys, indices)) return [indices];
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

function fitInRequest(keys: readonly string[], indices: readonly number[]): boolean {
  if (indices.length > DIRECTORY_REQUEST_MAX_KEYS) return false;
  let characters = 0;
  for (const i of indices) characters += (keys[i] as string).length;
  return characters * UTF8_MAX_FACTOR <= DIRECTORY_REQUEST_MAX_KEY_BYTES;
}

/** An upper bound of the keys' UTF-8 length in bytes. */
export function keysMaxBytes(keys: readonly string[]): number {
  let characters = 0;
  for (const key of keys) characters += key.length;
  return characters * UTF8_MAX_FACTOR;
}

/**
 * The keys as a batch, so that rings and messages encode them once. Keys that are too many, or too long together, for
 * one call to a ring stay a list.
 */
export function batchOf(keys: Keys): Keys {
  const strings = stringsOf(keys);
  if (!fitsInRingCall(strings)) return strings;
  return keys instanceof KeyBatch ? keys : KeyBatch.of(strings);
}

function fitsInRingCall(keys: readonly string[]): boolean {
  return keys.length <= RING_SLICE_KEYS && keysMaxBytes(keys) <= RING_SLICE_BYTES;
}

/**
 * {@link OwnerRing.getNodesBatch} for any number of keys: a ring accepts only a limited number of keys and bytes at
 * once.
 */
export function ownersOf(ring: OwnerRing, keys: Keys, n: number): Uint32Array {
  return askRing((some) => ring.getNodesBatch(some, n), keys, n);
}

/** Like {@link ownersOf}, but strictly clockwise, ignoring zones. The first node is the same. */
export function nextNodesOf(ring: OwnerRing, keys: Keys, n: number): Uint32Array {
  return askRing((some) => (ring.getNextNodesBatch ?? ring.getNodesBatch).call(ring, some, n), keys, n);
}

/**
 * Returns for each key a row of `replicas + n` nodes: its `replicas` owners, then those of the next `n` nodes clockwise
 * that are not owners. Rows are padded with NO_OWNER.
 */
export function ownersAndNext(ring: OwnerRing, keys: Keys, replicas: number, n: number): Uint32Array {
  const owners = ownersOf(ring, keys, replicas);
  const next = nextNodesOf(ring, keys, n);
  const width = replicas + n;
  const rows = new Uint32Array((owners.length / replicas) * width).fill(NO_OWNER);
  for (let i = 0; i * replicas < owners.length; i++) {
    const row = rows.subarray(i * width, (i + 1) * width);
    row.set(owners.subarray(i * replicas, (i + 1) * replicas));
    let end = replicas;
    for (const node of next.subarray(i * n, (i + 1) * n)) if (!row.includes(node)) row[end++] = node;
  }
  return rows;
}

function askRing(ask: (keys: Keys) => Uint32Array, asked: Keys, n: number): Uint32Array {
  const keys = stringsOf(asked);
  if (fitsInRingCall(keys)) return ask(asked);
  const owners = new Uint32Array(keys.length * n);
  for (let start = 0; start < keys.length; ) {
    let end = start;
    let bytes = 0;
    do bytes += (keys[end++] as string).length * UTF8_MAX_FACTOR;
    while (end < keys.length && end - start < RING_SLICE_KEYS && bytes < RING_SLICE_BYTES);
    owners.set(ask(keys.slice(start, end)), start * n);
    start = end;
  }
  return owners;
}

/** Maps every owner on any of the rings, of whatever rank, to the indices of its keys. */
export function keysByOwner(keys: Keys, rings: readonly OwnerRing[], replicas: number): Map<string, number[]> {
  const all = new Map<string, number[]>();
  for (const ring of rings) {
    for (const [ownerId, indices] of groupByOwner(ring, ownersOf(ring, keys, replicas), replicas)) {
      const known = all.get(ownerId);
      all.set(ownerId, known === undefined ? indices : [...new Set([...known, ...indices])]);
    }
  }
  return all;
}

/** Runs `task` for every request of every owner; resolves when all have been answered. */
export function eachRequest(
  keys: readonly string[],
  groups: ReadonlyMap<string, readonly number[]>,
  task: (ownerId: string, request: readonly number[]) => Promise<void>,
): Promise<void> {
  const tasks: Promise<void>[] = [];
  for (const [ownerId, indices] of groups) {
    for (const request of requestsOf(keys, indices)) tasks.push(task(ownerId, request));
  }
  // Most calls have one request.
  return tasks.length === 1 ? (tasks[0] as Promise<void>) : Promise.all(tasks).then(() => {});
}

/** Runs `task` for every request of these keys, one after the other, and returns the results. */
export async function eachRequestOf<T>(
  keys: readonly string[],
  task: (request: readonly number[]) => Promise<T>,
): Promise<T[]> {
  const results: T[] = [];
  const all = keys.map((_, i) => i);
  for (const request of requestsOf(keys, all)) results.push(await task(request));
  return results;
}

export function addTo<K, T>(groups: Map<K, T[]>, key: K, item: T): void {
  const group = groups.get(key);
  if (group === undefined) groups.set(key, [item]);
  else group.push(item);
}

/** Maps every owner to the indices of its keys. `owners` has `replicas` nodes per key, see {@link ownersOf}. */
export function groupByOwner({ nodes }: OwnerRing, owners: Uint32Array, replicas: number): Map<string, number[]> {
  const groups = new Map<string, number[]>();
  for (let at = 0; at < owners.length; at++) {
    const owner = owners[at] as number;
    if (owner !== NO_OWNER) addTo(groups, nodes[owner] as string, Math.floor(at / replicas));
  }
  return groups;
}
