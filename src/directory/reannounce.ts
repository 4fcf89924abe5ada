import { NO_OWNER, type OwnerRing, ownersOf } from './owners/owners.js';

/** Node id -> incarnation of that node. */
export type Incarnations = Pick<ReadonlyMap<string, number>, 'size' | 'has' | 'get'>;

/** A ring, and the incarnation of each node that it was made of. */
export interface RingView {
  readonly ring: OwnerRing;
  readonly incarnations: Incarnations;
}

/** Keys of one step: few enough to leave the thread free within a millisecond or two. */
const SLICE_KEYS = 4096;

/**
 * For each owner in `after` the keys that it owns and did not own in `before`, in the order of `keys`. A node that has
 * restarted in between has an empty shard, so it gains every key that it owns.
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
 * meanwhile. With several views as `before`, a key counts as owned before only if its owner had it in every view,
 * because a key that was put under one view was told to the owners of that view only. `width`: so many nodes from a key on gain it, owners or not,
 * unless they were among as many before.
 */
export function* gainedKeysInSlices(
  before: RingView | readonly RingView[],
  after: RingView,
  replicas: number,
  keys: readonly string[],
  width = replicas,
): Generator<Map<string, string[]>, void> {
  const views = 'ring' in before ? [before] : before;
  const formerOwners = views.map((view) => new FormerOwners(view, after));
  for (let start = 0; start < keys.length; start += SLICE_KEYS) {
    const slice = keys.slice(start, start + SLICE_KEYS);
    for (const former of formerOwners) former.look(slice, width);
    const newOwners = ownersOf(after.ring, slice, width);
    const gained = new Map<string, string[]>();
    for (let at = 0; at < newOwners.length; at++) {
      const owner = newOwners[at] as number;
      if (owner === NO_OWNER) continue;
      const row = Math.floor(at / width);
      const among = at % width < replicas ? replicas : width;
      if (formerOwners.every((former) => former.hadIt(row, owner, among))) continue;
      const ownerId = after.ring.nodes[owner] as string;
      const some = gained.get(ownerId);
      if (some === undefined) gained.set(ownerId, [slice[row] as string]);
      else some.push(slice[row] as string);
    }
    yield gained;
  }
}

/**
 * Former owners of keys by an earlier view, and the nodes behind them. It inspects only nodes that own some of the keys, which may be few of many.
 */
class FormerOwners {
  readonly #before: RingView;
  readonly #after: RingView;
  /** Owners, by the earlier ring, of the keys that were looked up last. */
  #owners: Uint32Array = new Uint32Array(0);
  #width = 0;
  /** Whether a node is the same start in both views, by index in the later ring. */
  readonly #isSameStart: (boolean | undefined)[] = [];

  constructor(before: RingView, after: RingView) {
    this.#before = before;
    this.#after = after;
  }

  look(keys: readonly string[], width: number): void {
    this.#owners = ownersOf(this.#before.ring, keys, width);
    this.#width = width;
  }

  /** Whether a node of the later ring was among the first `count` of the key before, as the same start; a new start has an empty shard. */
  hadIt(row: number, owner: number, count: number): boolean {
    const ownerId = this.#after.ring.nodes[owner] as string;
    this.#isSameStart[owner] ??= this.#before.incarnations.get(ownerId) === this.#after.incarnations.get(ownerId);
    if (!this.#isSameStart[owner]) return false;
    const { nodes } = this.#before.ring;
    for (let at = row * this.#width; at < row * this.#width + count; at++) {
      const former = this.#owners[at] as number;
      if (former !== NO_OWNER && nodes[former] === ownerId) return true;
    }
    return false;
  }
}
