import type { Clock } from '../../base/environment/clock.js';
import { DIRECTORY_SEARCH_LATE_MS, RPC_CALL_TIMEOUT_MS, RPC_CONNECT_TIMEOUT_MS } from '../../base/limits.js';
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

/** What a search needs of the directory that it belongs to. */
export interface OwnerSearchParts {
  readonly replicas: number;
  /** The current ring, and former rings whose owners may know more. They may change during the search. */
  readonly rings: Pick<KnownRings, 'current' | 'former' | 'seniority'>;
  readonly channels: { to(ownerId: string): { isReachable(): boolean } };
  /** Node whose shard is asked without a socket; undefined: there is none. */
  readonly ownNode: string | undefined;
  /** Deadline of one request in milliseconds; undefined: RPC_CALL_TIMEOUT_MS. */
  readonly timeoutMs: number | undefined;
  readonly clock: Clock;
}

/** For each key a node that probably has its page, and can say where; undefined: none is known. */
export type ProbableHolders = readonly (string | undefined)[];

/**
 * Asks a node about keys, given by their indices, and returns the indices of those that it knows nothing of. `isOwn`: only
 * about its own pages, not as an owner of the keys.
 */
export type AskOwner = (nodeId: string, request: readonly number[], isOwn: boolean) => Promise<readonly number[]>;

/** Nodes to ask, and the keys, by their indices, about which each of them is asked. */
interface AskedNodes {
  readonly keysOf: ReadonlyMap<string, readonly number[]>;
  /** Keys about which nobody is asked; those that nobody knows are added to them. */
  readonly missing: number[];
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
 * Asks the owners of keys. The own shard comes first where it is an owner, because it costs nothing. Then come the nodes
 * that probably have the pages, where such are known: they know their own pages best. Then all first (or
 * nearest) owners are asked at once, and then, rank by rank, the other owners of keys that are still missing. Recent
 * former owners are asked last: a new owner may not have been told yet, and the other replica may be on a node that has
 * just died. If all this took long, the owners are asked again. Single use.
 */
export class OwnerSearch {
  readonly #parts: OwnerSearchParts;
  readonly #keys: readonly string[];
  readonly #ask: AskOwner;
  readonly #ring: OwnerRing;
  /** For each key, its owners in the order in which they are asked. */
  readonly #owners: Uint32Array;
  /** Index of the own node in the ring; -1: it is not there. */
  readonly #own: number;
  readonly #startedMs: number;
  readonly #holders: ProbableHolders;

  /** `distances`: how far owners are from this node; undefined: all are equally far. */
  constructor(
    parts: OwnerSearchParts,
    asked: Keys,
    { distances, holders = [] }: { readonly distances: Distances; readonly holders?: ProbableHolders },
    ask: AskOwner,
  ) {
    this.#parts = parts;
    this.#holders = holders;
    this.#keys = stringsOf(asked);
    this.#ask = ask;
    this.#ring = parts.rings.current;
    this.#owners = ownersToAsk(this.#ring, asked, parts.replicas, distances);
    this.#own = parts.ownNode === undefined ? -1 : this.#ring.nodes.indexOf(parts.ownNode);
    this.#startedMs = parts.clock.nowMs();
  }

  /** Resolves when every key has been found, or nobody is left to be asked. */
  async run(): Promise<void> {
    let left = await this.#askByRank(
      this.#keys.map((_, i) => i),
      false,
    );
    if (left.length === 0 || !this.#asksFormer()) return;
    const further = this.#furtherOwners(left);
    for (let round = 0; round < FORMER_OWNERS_MAX_COUNT && further.size > 0 && left.length > 0; round++) {
      if (!this.#asksFormer()) return;
      const nodes = this.#nodesOf(left, (i) => further.get(i)?.[round]);
      if (nodes !== undefined) left = await this.#askNodes(nodes);
    }
    const again = left.filter((i) => further.has(i));
    if (again.length > 0 && this.#isLate()) await this.#askByRank(again, true);
  }

  /** Asks the owners of keys rank by rank, `again` only while there is time. Returns the keys that were not found. */
  async #askByRank(wanted: readonly number[], again: boolean): Promise<readonly number[]> {
    let missing = wanted;
    for (let rank = this.#own < 0 ? 0 : -1; rank < this.#parts.replicas && missing.length > 0; rank++) {
      if (again && !this.#asksFormer()) break;
      if (rank === 0 && !again && this.#holders.length > 0) {
        const holders = this.#nodesOf(missing, (i) => this.#holders[i]);
        if (holders !== undefined) missing = await this.#askNodes(holders, true);
      }
      const owners = this.#nodesOf(missing, (i) => this.#ownerAt(i, rank));
      if (owners !== undefined) missing = await this.#askNodes(owners);
    }
    return missing;
  }

  /** The owner of a rank that is another node; rank -1: this node, if it is an owner. */
  #ownerAt(i: number, rank: number): string | undefined {
    const { replicas, ownNode } = this.#parts;
    const start = i * replicas;
    if (rank < 0) {
      for (let at = start; at < start + replicas; at++) if (this.#owners[at] === this.#own) return ownNode;
      return undefined;
    }
    const owner = this.#owners[start + rank] as number;
    return owner === NO_OWNER || owner === this.#own ? undefined : this.#ring.nodes[owner];
  }

  /** Whom to ask about these keys: for each one the node that `nodeOf` names; undefined: it names none. */
  #nodesOf(left: readonly number[], nodeOf: (i: number) => string | undefined): AskedNodes | undefined {
    let keysOf: Map<string, number[]> | undefined;
    const missing: number[] = [];
    for (const i of left) {
      const nodeId = nodeOf(i);
      if (nodeId === undefined) {
        missing.push(i);
      } else {
        keysOf ??= new Map();
        addTo(keysOf, nodeId, i);
      }
    }
    return keysOf && { keysOf, missing };
  }

  /** Asks nodes. Returns the keys that were not found. */
  async #askNodes({ keysOf, missing }: AskedNodes, isOwn = false): Promise<readonly number[]> {
    await eachRequest(this.#keys, keysOf, async (nodeId, request) => {
      for (const i of await this.#ask(nodeId, request, isOwn)) missing.push(i);
    });
    return missing;
  }

  /**
   * Whether former owners can still be asked. Each rank of silent owners costs one deadline, and asking former owners
   * must not take longer in total than two silent owners would.
   */
  #asksFormer(): boolean {
    const { clock, timeoutMs = RPC_CALL_TIMEOUT_MS } = this.#parts;
    return clock.nowMs() < this.#startedMs + RPC_CONNECT_TIMEOUT_MS + timeoutMs;
  }

  /**
   * Whether answers have taken so long that new owners may have been told meanwhile, and former ones may have
   * forgotten.
   */
  #isLate(): boolean {
    return this.#parts.clock.nowMs() - this.#startedMs > DIRECTORY_SEARCH_LATE_MS;
  }

  /**
   * Owners of the keys of `left` that were not asked yet: nodes that own them by the current ring, or did lately. Those
   * that are likeliest to know come first.
   */
  #furtherOwners(left: readonly number[]): Map<number, string[]> {
    const { rings, replicas } = this.#parts;
    const further = new Map<number, string[]>();
    const leftKeys = left.map((i) => this.#keys[i] as string);
    const { current, former, seniority } = rings;
    // If all nodes are owners, all have been asked.
    const isAskedWhole = current === this.#ring && this.#ring.nodes.length <= replicas;
    if (seniority !== undefined && !isAskedWhole) {
      const count = Math.min(NEXT_NODES_COUNT, current.nodes.length);
      const next = nextNodesOf(current, leftKeys, count);
      for (const [row, i] of left.entries()) {
        const chain = ownersBeforeJoins(next.subarray(row * count, (row + 1) * count), seniority, replicas);
        this.#addFurther(
          further,
          i,
          chain.map((owner) => current.nodes[owner]),
        );
      }
    }
    const changed = [current, ...former.reverse()].filter((other) => other !== this.#ring);
    for (const other of changed.slice(0, FORMER_RINGS_ASKED_COUNT)) {
      const owners = ownersOf(other, leftKeys, replicas);
      for (const [row, i] of left.entries()) {
        this.#addFurther(further, i, namesOf(owners, row, replicas, other.nodes));
      }
    }
    return further;
  }

  #addFurther(further: Map<number, string[]>, i: number, ownerIds: readonly (string | undefined)[]): void {
    const { channels, replicas } = this.#parts;
    const known = further.get(i) ?? [];
    const asked = namesOf(this.#owners, i, replicas, this.#ring.nodes);
    for (const ownerId of ownerIds) {
      if (known.length >= FORMER_OWNERS_MAX_COUNT) break;
      if (ownerId === undefined || asked.includes(ownerId) || known.includes(ownerId)) continue;
      if (channels.to(ownerId).isReachable()) known.push(ownerId);
    }
    if (known.length > 0) further.set(i, known);
  }
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
