import { type Keys, stringsOf } from '../../core/binding/key-batch.js';
import type { Distances } from '../../net/distance.js';
import type { KnownRings, Seniority } from './known-rings.js';
import { addTo, eachRequest, NO_OWNER, nextNodesOf, type OwnerRing, ownersOf } from './owners.js';

/** Largest number of former owners that are asked about one key. */
const FORMER_OWNERS_MAX_COUNT = 6;
/** Largest number of former rings that are searched for owners, the latest first. */
const FORMER_RINGS_ASKED_COUNT = 4;
/** Nodes clockwise from a key that are searched for owners from before a join. */
const NEXT_NODES_COUNT = 32;

export interface OwnerSearch {
  readonly replicas: number;
  /** The current ring, and former rings whose owners may know more. They may change during the search. */
  readonly rings: Pick<KnownRings, 'current' | 'former' | 'seniority'>;
  /** Node whose shard is asked without a socket; undefined: there is none. */
  readonly ownNode: string | undefined;
  /** How far owners are from this node; undefined: all are equally far. */
  readonly distances: Distances;
  /** Whether a former owner can still be asked. */
  isReachable(ownerId: string): boolean;
  /** Whether former owners are asked after the current ones; false if those have used up the time of a call. */
  asksFormer(): boolean;
  /**
   * Whether answers have taken so long that new owners may have been told meanwhile, and former ones may have
   * forgotten.
   */
  isLate(): boolean;
  /** Asks an owner about keys, and returns the indices of those for which it has found nothing. */
  ask(ownerId: string, request: readonly number[]): Promise<readonly number[]>;
}

/**
 * Returns the `replicas` owners of each key in the order in which they are asked: the nearest first, and equally near
 * ones in the order of the ring.
 */
export function ownersToAsk(ring: OwnerRing, keys: Keys, replicas: number, distances: Distances): Uint32Array {
  const owners = ownersOf(ring, keys, replicas);
  if (distances === undefined || replicas === 1) return owners;
  const known: number[] = [];
  const farOf = (owner: number): number => {
    if (owner === NO_OWNER) return Number.POSITIVE_INFINITY;
    known[owner] ??= distances(ring.nodes[owner] as string);
    return known[owner];
  };
  for (let start = 0; start < owners.length; start += replicas) {
    for (let i = start + 1; i < start + replicas; i++) {
      const owner = owners[i] as number;
      const far = farOf(owner);
      let at = i;
      for (; at > start && farOf(owners[at - 1] as number) > far; at--) owners[at] = owners[at - 1] as number;
      owners[at] = owner;
    }
  }
  return owners;
}

/**
 * Asks the owners of keys. The own shard comes first where it is an owner, because it costs nothing. Then all first (or
 * nearest) owners are asked at once, and then, rank by rank, the other owners of keys that are still missing. Recent
 * former owners are asked last: a new owner may not have been told yet, and the other replica may be on a node that has
 * just died. If all this took long, the owners are asked again.
 */
export async function askOwners(asked: Keys, search: OwnerSearch): Promise<void> {
  const keys = stringsOf(asked);
  const { replicas, ownNode } = search;
  const ring = search.rings.current;
  const { nodes } = ring;
  const owners = ownersToAsk(ring, asked, replicas, search.distances);
  const isOwner = (i: number, node: number): boolean => {
    for (let at = i * replicas; at < (i + 1) * replicas; at++) if (owners[at] === node) return true;
    return false;
  };
  const own = ownNode === undefined ? -1 : nodes.indexOf(ownNode);
  const askByRank = async (wanted: readonly number[], goesOn = () => true): Promise<readonly number[]> => {
    let missing = wanted;
    for (let rank = own < 0 ? 0 : -1; rank < replicas && missing.length > 0 && goesOn(); rank++) {
      missing = await askRound(keys, missing, search, (i) => {
        const owner = rank >= 0 ? (owners[i * replicas + rank] as number) : isOwner(i, own) ? own : NO_OWNER;
        return owner === NO_OWNER || (rank >= 0 && owner === own) ? undefined : nodes[owner];
      });
    }
    return missing;
  };
  let left = await askByRank(keys.map((_, i) => i));
  if (left.length === 0 || !search.asksFormer()) return;
  const further = furtherOwners(keys, left, search, (i) => namesOf(owners, i, replicas, nodes), ring);
  for (let round = 0; round < FORMER_OWNERS_MAX_COUNT && further.size > 0 && left.length > 0; round++) {
    if (!search.asksFormer()) return;
    left = await askRound(keys, left, search, (i) => further.get(i)?.[round]);
  }
  const again = left.filter((i) => further.has(i));
  if (again.length > 0 && search.isLate()) await askByRank(again, () => search.asksFormer());
}

/** The names of the nodes of a row of `count` owners; undefined where the row has fewer. */
function namesOf(
  owners: Uint32Array,
  row: number,
  count: number,
  nodes: readonly string[],
): readonly (string | undefined)[] {
  const names = new Array<string | undefined>(count);
  for (let rank = 0; rank < count; rank++) names[rank] = nodes[owners[row * count + rank] as number];
  return names;
}

/** Asks, for each key, the owner that `ownerOf` names, if any. Returns the keys that were not found. */
async function askRound(
  keys: readonly string[],
  left: readonly number[],
  { ask }: OwnerSearch,
  ownerOf: (i: number) => string | undefined,
): Promise<number[]> {
  const groups = new Map<string, number[]>();
  const missing: number[] = [];
  for (const i of left) {
    const ownerId = ownerOf(i);
    if (ownerId === undefined) missing.push(i);
    else addTo(groups, ownerId, i);
  }
  await eachRequest(keys, groups, async (ownerId, request) => {
    for (const i of await ask(ownerId, request)) missing.push(i);
  });
  return missing;
}

/**
 * Returns owners of the keys of `left` that were not asked yet: nodes that own them by the current ring, or did lately.
 * `askedOf` names the owners by `ring`, which were asked. The owners that are likeliest to know come first.
 */
function furtherOwners(
  keys: readonly string[],
  left: readonly number[],
  { rings, replicas, isReachable }: OwnerSearch,
  askedOf: (i: number) => readonly (string | undefined)[],
  ring: OwnerRing,
): Map<number, string[]> {
  const further = new Map<number, string[]>();
  const leftKeys = left.map((i) => keys[i] as string);
  const add = (i: number, ownerIds: readonly (string | undefined)[]): void => {
    const known = further.get(i) ?? [];
    const asked = askedOf(i);
    for (const ownerId of ownerIds) {
      if (known.length >= FORMER_OWNERS_MAX_COUNT) break;
      if (ownerId === undefined || asked.includes(ownerId) || known.includes(ownerId)) continue;
      if (isReachable(ownerId)) known.push(ownerId);
    }
    if (known.length > 0) further.set(i, known);
  };
  const { current, former, seniority } = rings;
  // If all nodes are owners, all have been asked.
  const isAskedWhole = current === ring && ring.nodes.length <= replicas;
  if (seniority !== undefined && !isAskedWhole) {
    const count = Math.min(NEXT_NODES_COUNT, current.nodes.length);
    const next = nextNodesOf(current, leftKeys, count);
    for (const [row, i] of left.entries()) {
      const chain = ownersBeforeJoins(next.subarray(row * count, (row + 1) * count), seniority, replicas);
      add(
        i,
        chain.map((owner) => current.nodes[owner]),
      );
    }
  }
  const changed = [current, ...former.reverse()].filter((other) => other !== ring);
  for (const other of changed.slice(0, FORMER_RINGS_ASKED_COUNT)) {
    const owners = ownersOf(other, leftKeys, replicas);
    for (const [row, i] of left.entries()) {
      add(i, namesOf(owners, row, replicas, other.nodes));
    }
  }
  return further;
}

/**
 * Returns nodes that were the first owner of a key before others joined. Candidates are the nodes clockwise from the
 * key, except the first; those that are owners now have been asked. A node was the first owner at some time if it is
 * older than all nodes before it, because until these joined it came first.
 *
 *       nodes from the key on     D    B    E    A    C          A is the oldest, E the youngest
 *       first owner                    B         A               before D had joined, before B had
 *
 * The search ends with the first node that has been a member for long, because owners before that one have forgotten
 * the key. That node knows the most, and comes first in the result. The node next to the owners is always in the
 * result, because ages may be wrong.
 */
function ownersBeforeJoins(next: Uint32Array, { sinceMs, settledMs }: Seniority, replicas: number): number[] {
  const chain: number[] = [];
  let oldestMs = Number.POSITIVE_INFINITY;
  for (const [rank, node] of next.entries()) {
    if (node === NO_OWNER || (rank > replicas && oldestMs <= settledMs)) break;
    const nodeMs = sinceMs[node] as number;
    if (rank === replicas || (rank > 0 && nodeMs <= oldestMs)) chain.push(node);
    oldestMs = Math.min(oldestMs, nodeMs);
  }
  const last = chain.at(-1);
  if (last !== undefined && (sinceMs[last] as number) <= settledMs) chain.unshift(...chain.splice(-1));
  return chain;
}
