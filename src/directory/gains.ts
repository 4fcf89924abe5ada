import { partitionsOf } from '../core/ring/partitions.js';
import { addTo, NO_OWNER, type OwnerRing } from './owners/owners.js';

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

/** Keys of one step: few enough to leave the thread free within a millisecond or two. */
const SLICE_KEYS = 4096;

/**
 * What owners have gained by the last of some views: a partition that they own and did not own in one of the views before, because a page that was
 * stated under one view was told to the owners of that view only. A node that has started anew in between has an empty shard, so it gains every
 * partition that it owns. `width`: so many nodes from a partition on gain it, owners or not, unless they were among as many before.
 */
export class Gains {
  readonly #after: RingView;
  readonly #width: number;
  /** The owners of each partition by the last view; NO_OWNER in place of those that do not gain it. */
  readonly #gaining: Uint32Array;
  /** Whether no partition is gained. */
  readonly isEmpty: boolean;

  constructor(before: readonly RingView[], after: RingView, replicas: number, width = replicas) {
    this.#after = after;
    this.#width = width;
    this.#gaining = after.ring.ownersOfPartitions(width);
    const former = before.map((view) => new FormerOwners(view, after.ring.nodes, after.incarnations, width));
    let isEmpty = true;
    for (let at = 0; at < this.#gaining.length; at++) {
      const owner = this.#gaining[at] as number;
      const among = at % width < replicas ? replicas : width;
      if (owner === NO_OWNER) continue;
      if (former.every((view) => view.hadIt(owner, at - (at % width), among))) this.#gaining[at] = NO_OWNER;
      else isEmpty = false;
    }
    this.isEmpty = isEmpty;
  }

  /** For each owner those of the keys that it gains, in their order; step by step, so that other work can have its turn. */
  *of(keys: readonly string[]): Generator<Map<string, string[]>, void> {
    const { nodes } = this.#after.ring;
    for (let start = 0; start < keys.length && !this.isEmpty; start += SLICE_KEYS) {
      const slice = keys.slice(start, start + SLICE_KEYS);
      const gained = new Map<string, string[]>();
      for (const [i, partition] of partitionsOf(slice).entries()) {
        for (let at = partition * this.#width; at < (partition + 1) * this.#width; at++) {
          const owner = this.#gaining[at] as number;
          if (owner !== NO_OWNER) addTo(gained, nodes[owner] as string, slice[i] as string);
        }
      }
      yield gained;
    }
  }
}

/** The owners of partitions by an earlier view, and the nodes behind them. */
class FormerOwners {
  readonly #owners: Uint32Array;
  /** Index in the earlier ring of each node of the later one, if it was the same start; a new start has an empty shard. */
  readonly #indexOf: Int32Array;

  constructor({ ring, incarnations }: RingView, nodes: readonly string[], now: Incarnations, width: number) {
    this.#owners = ring.ownersOfPartitions(width);
    const indexOf = new Map(ring.nodes.map((nodeId, i) => [nodeId, i]));
    this.#indexOf = Int32Array.from(nodes, (nodeId) =>
      incarnations.get(nodeId) === now.get(nodeId) ? (indexOf.get(nodeId) ?? -1) : -1,
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
