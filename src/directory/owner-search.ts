import { addTo, eachRequest, NO_OWNER, type OwnerRing, ownersOf } from './owners.js';

/** Former owners of one key that are asked about it, and former rings that are looked at for them, the latest first. */
const FORMER_OWNERS_MAX_COUNT = 2;
const FORMER_RINGS_MAX_COUNT = 4;

export interface OwnerSearch {
  readonly replicas: number;
  /** The current ring, and after it the former ones that may still be asked, oldest first. */
  rings(): readonly OwnerRing[];
  /** The node whose shard is asked without a socket; undefined: none. */
  readonly ownNode: string | undefined;
  /** Whether a former owner can still be asked. */
  isReachable(ownerId: string): boolean;
  /** Whether former owners are asked after those of now: not when these have taken as long as a call may. */
  asksFormer(): boolean;
  /** Returns the indices that it has found nothing for. */
  ask(ownerId: string, request: number[]): Promise<number[]>;
}

/**
 * Asks the own shard where it is an owner (it costs nothing), then the first owners, all at once, then rank by rank the others about
 * what is left. What is left then is asked of those that have been owners lately: a new owner may not have been told yet, and the
 * other replica may be on a node that has just died.
 */
export async function askOwners(keys: readonly string[], search: OwnerSearch): Promise<void> {
  const { replicas, ownNode } = search;
  const [ring] = search.rings() as [OwnerRing];
  const { nodes } = ring;
  const owners = ownersOf(ring, keys, replicas);
  const rowOf = (i: number): Uint32Array => owners.subarray(i * replicas, (i + 1) * replicas);
  const own = ownNode === undefined ? -1 : nodes.indexOf(ownNode);
  let left = keys.map((_, i) => i);
  for (let rank = own < 0 ? 0 : -1; rank < replicas && left.length > 0; rank++) {
    left = await askRound(keys, left, search, (i) => {
      const row = rowOf(i);
      const owner = rank < 0 ? (row.includes(own) ? own : NO_OWNER) : (row[rank] as number);
      return owner === NO_OWNER || (rank >= 0 && owner === own) ? undefined : nodes[owner];
    });
  }
  if (left.length === 0 || !search.asksFormer()) return;
  const further = furtherOwners(keys, left, search, (i) => Array.from(rowOf(i), (owner) => nodes[owner]), ring);
  for (let round = 0; round < FORMER_OWNERS_MAX_COUNT && further.size > 0 && left.length > 0; round++) {
    if (!search.asksFormer()) return;
    left = await askRound(keys, left, search, (i) => further.get(i)?.[round]);
  }
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

/** Of `left` those that have, or lately had, other owners than `askedOf` them by `ring`: these, the latest first. */
function furtherOwners(
  keys: readonly string[],
  left: readonly number[],
  { rings, replicas, isReachable }: OwnerSearch,
  askedOf: (i: number) => readonly (string | undefined)[],
  ring: OwnerRing,
): Map<number, string[]> {
  const further = new Map<number, string[]>();
  const [current, ...former] = rings();
  const others = [current, ...former.reverse()].filter((other) => other !== undefined && other !== ring) as OwnerRing[];
  if (others.length === 0) return further;
  const leftKeys = left.map((i) => keys[i] as string);
  for (const other of others.slice(0, FORMER_RINGS_MAX_COUNT)) {
    const owners = ownersOf(other, leftKeys, replicas);
    for (const [row, i] of left.entries()) {
      let known = further.get(i) ?? [];
      if (known.length >= FORMER_OWNERS_MAX_COUNT) continue;
      const asked = askedOf(i);
      for (const owner of owners.subarray(row * replicas, (row + 1) * replicas)) {
        const ownerId = other.nodes[owner];
        if (ownerId === undefined || asked.includes(ownerId) || known.includes(ownerId)) continue;
        if (known.length < FORMER_OWNERS_MAX_COUNT && isReachable(ownerId)) known = [...known, ownerId];
      }
      if (known.length > 0) further.set(i, known);
    }
  }
  return further;
}
