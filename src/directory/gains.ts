import { NO_OWNER, type OwnerRing } from './owners/owners.js';

/** Node id -> incarnation of that node. */
export type Incarnations = Pick<ReadonlyMap<string, number>, 'size' | 'has' | 'get'>;

/** A ring of partitions. */
export interface PartitionRing extends OwnerRing {
  /** For each partition in turn `n` indices into `nodes`, its owners, then NO_OWNER. */
  ownersOfPartitions(n: number): Uint32Array;
}

/** A ring, and the incarnation of each node that it was made of. */
export interface RingView {
  readonly ring: PartitionRing;
  readonly incarnations: Incarnations;
}

/**
 * For each owner the partitions that it owns after a change of members and did not own before; undefined: that nobody owned any. A node that has
 * started anew in between has an empty shard, so it gains every partition that it owns. `width`: so many nodes from a partition on gain it, owners
 * or not, unless they were among as many before. It takes some milliseconds.
 */
export function gainedPartitions(
  before: RingView | undefined,
  after: RingView,
  replicas: number,
  width = replicas,
): Map<string, Set<number>> {
  const { nodes } = after.ring;
  const former = before && new FormerOwners(before, after, width);
  const gained = new Map<number, Set<number>>();
  for (const [at, owner] of after.ring.ownersOfPartitions(width).entries()) {
    if (owner === NO_OWNER) continue;
    const among = at % width < replicas ? replicas : width;
    if (former?.hadIt(owner, at - (at % width), among)) continue;
    const partitions = gained.get(owner);
    if (partitions === undefined) gained.set(owner, new Set([Math.floor(at / width)]));
    else partitions.add(Math.floor(at / width));
  }
  return new Map([...gained].map(([owner, partitions]) => [nodes[owner] as string, partitions]));
}

/** The owners of partitions by an earlier view, and the nodes behind them. */
class FormerOwners {
  readonly #owners: Uint32Array;
  /** Index in the earlier ring of each node of the later one, if it was the same start; a new start has an empty shard. */
  readonly #indexOf: Int32Array;

  constructor({ ring, incarnations }: RingView, after: RingView, width: number) {
    this.#owners = ring.ownersOfPartitions(width);
    const indexOf = new Map(ring.nodes.map((nodeId, i) => [nodeId, i]));
    this.#indexOf = Int32Array.from(after.ring.nodes, (nodeId) =>
      incarnations.get(nodeId) === after.incarnations.get(nodeId) ? (indexOf.get(nodeId) ?? -1) : -1,
    );
  }

  /** Whether a node of the later ring was among the first `count` of a row. */
  hadIt(owner: number, row: number, count: number): boolean {
    const index = this.#indexOf[owner] as number;
    if (index < 0) return false;
    for (let at = row; at < row + count; at++) if (this.#owners[at] === index) return true;
    return false;
  }
}
