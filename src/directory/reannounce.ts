import { NO_OWNER, type OwnerRing, ownersOf } from './owners.js';

/** A ring and which start of each of its nodes it was made of. */
export interface RingView {
  readonly ring: OwnerRing;
  /** Node id -> incarnation. */
  readonly incarnations: ReadonlyMap<string, number>;
}

/** Keys of one step: few enough to leave the thread free within a millisecond or two. */
const SLICE_KEYS = 4096;

/**
 * For each owner in `after` the keys that it owns and did not own in `before`, in the order of `keys`. A node that has started
 * anew in between has an empty shard: it gains all that it owns.
 */
export function gainedKeys(
  before: RingView,
  after: RingView,
  replicas: number,
  keys: readonly string[],
): Map<string, string[]> {
  const gained = new Map<string, string[]>();
  for (const slice of gainedKeysInSlices(before, after, replicas, keys)) {
    for (const [ownerId, some] of slice) {
      const all = gained.get(ownerId);
      if (all === undefined) gained.set(ownerId, some);
      else for (const key of some) all.push(key);
    }
  }
  return gained;
}

/**
 * {@link gainedKeys} step by step, for callers that let other work have its turn in between. The rings must not change
 * meanwhile. Several views before: a key counts as owned before only if its owner had it in every one of them (a key that
 * was put under any of them was told to the owners of that one only).
 */
export function* gainedKeysInSlices(
  before: RingView | readonly RingView[],
  after: RingView,
  replicas: number,
  keys: readonly string[],
): Generator<Map<string, string[]>, void> {
  const views = 'ring' in before ? [before] : before;
  const sameNodes = views.map((view) => unchangedNodes(view, after));
  for (let start = 0; start < keys.length; start += SLICE_KEYS) {
    const slice = keys.slice(start, start + SLICE_KEYS);
    const oldOwners = views.map((view) => ownersOf(view.ring, slice, replicas));
    const newOwners = ownersOf(after.ring, slice, replicas);
    const gained = new Map<string, string[]>();
    for (let at = 0; at < newOwners.length; at++) {
      const owner = newOwners[at] as number;
      if (owner === NO_OWNER) continue;
      const row = Math.floor(at / replicas);
      const hadIt = oldOwners.every((owners, v) => {
        const former = (sameNodes[v] as Uint32Array)[owner] as number;
        return former !== NO_OWNER && hasOwner(owners, row * replicas, replicas, former);
      });
      if (hadIt) continue;
      const ownerId = after.ring.nodes[owner] as string;
      const some = gained.get(ownerId);
      if (some === undefined) gained.set(ownerId, [slice[row] as string]);
      else some.push(slice[row] as string);
    }
    yield gained;
  }
}

/** For each node of `after` its index in `before`; NO_OWNER for new and restarted ones. */
function unchangedNodes(before: RingView, after: RingView): Uint32Array {
  const oldIndices = new Map(before.ring.nodes.map((nodeId, i) => [nodeId, i]));
  return Uint32Array.from(after.ring.nodes, (nodeId) => {
    const isSameStart = before.incarnations.get(nodeId) === after.incarnations.get(nodeId);
    return isSameStart ? (oldIndices.get(nodeId) ?? NO_OWNER) : NO_OWNER;
  });
}

function hasOwner(owners: Uint32Array, start: number, count: number, wanted: number): boolean {
  for (let i = start; i < start + count; i++) if (owners[i] === wanted) return true;
  return false;
}
