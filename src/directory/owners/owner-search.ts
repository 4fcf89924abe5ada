import { type Keys, stringsOf } from '../../core/index.js';
import type { KnownRings, Seniority } from './known-rings.js';
import { addTo, eachRequest, NO_OWNER, type OwnerRing, ownersOf } from './owners.js';

/** Former owners of one key that are asked about it, and former rings that are looked at for them, the latest first. */
const FORMER_OWNERS_MAX_COUNT = 6;
const FORMER_RINGS_ASKED_COUNT = 4;
/** Nodes from a key on among which its owners before others had joined are looked for. */
const NEXT_NODES_COUNT = 32;

export interface OwnerSearch {
  readonly replicas: number;
  /** The current ring, and those by which others may know more. They may change meanwhile. */
  readonly rings: Pick<KnownRings, 'current' | 'former' | 'seniority'>;
  /** The node whose shard is asked without a socket; undefined: none. */
  readonly ownNode: string | undefined;
  /** Whether a former owner can still be asked. */
  isReachable(ownerId: string): boolean;
  /** Whether former owners are asked after those of now: not when these have taken as long as a call may. */
  asksFormer(): boolean;
  /** Whether answers have taken so long that owners may have been told, and former ones have forgotten, in between. */
  isLate(): boolean;
  /** Returns the indices that it has found nothing for. */
  ask(ownerId: string, request: readonly number[]): Promise<readonly number[]>;
}

/**
 * Asks the own shard where it is an owner (it costs nothing), then the first owners, all at once, then rank by rank the others about
 * what is left. What is left then is asked of those that have been owners lately: a new owner may not have been told yet, and the
 * other replica may be on a node that has just died.
 */
export async function askOwners(asked: Keys, search: OwnerSearch): Promise<void> {
  const keys = stringsOf(asked);
  const { replicas, ownNode } = search;
  const ring = search.rings.current;
  const { nodes } = ring;
  const owners = ownersOf(ring, asked, replicas);
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

/** The nodes of a row of `count` owners; undefined where there are no more. */
function namesOf(
  owners: Uint32Array,
  row: number,
  count: number,
  nodes: readonly string[],
): readonly (string | undefined)[] {
  return Array.from(owners.subarray(row * count, (row + 1) * count), (owner) => nodes[owner]);
}

/** Asks about each key whom `ownerOf` names, if anybody; returns the keys that have not been found. */
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

/** Of `left` those that have, or lately had, other owners than `askedOf` them by `ring`: these, the likeliest to know first. */
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
  if (seniority !== undefined) {
    const count = Math.min(NEXT_NODES_COUNT, current.nodes.length);
    const next = ownersOf(current, leftKeys, count);
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
 * Of the nodes from a key on, those after its owners that have been its first owner at some time while the members joined one after
 * the other: each node that is older than all before it. Without those that came later it was the first one.
 *
 *     nodes from the key on     D    B    E    A    C          A is the oldest, E the youngest
 *     first owner                    B         A               before D had joined, before B had
 *
 * It ends with the first one that has been there for long: whoever was owner before that one has forgotten the key. That one knows the
 * most, and comes first. The node next to the owners is always one of them: ages may be wrong.
 */
function ownersBeforeJoins(next: Uint32Array, { sinceMs, settledMs }: Seniority, replicas: number): number[] {
  const chain: number[] = [];
  let oldestMs = Number.POSITIVE_INFINITY;
  for (const [rank, node] of next.entries()) {
    if (node === NO_OWNER || (rank > replicas && oldestMs <= settledMs)) break;
    const nodeMs = sinceMs[node] as number;
    if (rank === replicas || (rank > replicas && nodeMs <= oldestMs)) chain.push(node);
    oldestMs = Math.min(oldestMs, nodeMs);
  }
  const last = chain.at(-1);
  if (last !== undefined && (sinceMs[last] as number) <= settledMs) chain.unshift(...chain.splice(-1));
  return chain;
}
