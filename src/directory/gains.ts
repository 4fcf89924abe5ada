import { PartitionSet } from '../core/ring/partitions.js';
import { NO_OWNER, type OwnerRing } from './owners/owners.js';

/** Node id -> incarnation of that node. */
export type Incarnations = Pick<ReadonlyMap<string, number>, 'size' | 'has' | 'get'>;

/** A ring of partitions. */
export interface PartitionRing extends OwnerRing {
  /** For each partition, `n` indices into `nodes`: its owners, padded with NO_OWNER. Must not be written to. */
  ownersOfPartitions(n: number): Uint32Array;
  /** What `compute` returns about the change to `after`; changes that `what` says the same of may share the result. */
  ofChange<T extends object>(after: this, what: string, compute: () => T): T;
}

/** A ring, and the incarnation of each node that it was made of. */
export interface RingView {
  readonly ring: PartitionRing;
  readonly incarnations: Incarnations;
}

interface GainsOptions {
  /** Number of owners of each partition. */
  readonly replicas: number;
  /**
   * With more than `replicas`, the nodes behind the owners, up to `width` clockwise from the partition, gain it as well
   * unless they were among the first `width` before. Default: `replicas`.
   */
  readonly width?: number;
  /** All nodes that may have restarted, and perhaps others. Default: any may have. */
  readonly changed?: readonly string[] | undefined;
}

/** The partitions that each owner has gained. Nodes of one process share them: they must not be written to. */
export type Gains = ReadonlyMap<string, PartitionSet>;

/**
 * Returns for each owner the partitions that it owns after a change of members and did not own before. Without
 * `before`, nobody owned any. A node that has restarted in between has an empty shard, so it gains every partition that
 * it owns. Takes a millisecond or two, once for all rings of the same nodes.
 */
export function gainedPartitions(before: RingView | undefined, after: RingView, options: GainsOptions): Gains {
  if (before === undefined) return gainsOf(after.ring, options);
  const { replicas, width, changed = after.ring.nodes } = options;
  const restarted = changed.filter((nodeId) => {
    const [was, is] = [before.incarnations.get(nodeId), after.incarnations.get(nodeId)];
    return was !== undefined && is !== undefined && was !== is;
  });
  const what = [replicas, width, ...restarted].join('\n');
  return before.ring.ofChange(after.ring, what, () => gainsOf(after.ring, options, { ring: before.ring, restarted }));
}

/** A ring that is replaced, and its nodes that have restarted since. */
interface FormerOwners {
  readonly ring: PartitionRing;
  readonly restarted: readonly string[];
}

function gainsOf(ring: PartitionRing, { replicas, width = replicas }: GainsOptions, before?: FormerOwners): Gains {
  const { nodes } = ring;
  const owners = ring.ownersOfPartitions(width);
  const former = before?.ring.ownersOfPartitions(width);
  const indexBefore = indicesBefore(nodes, before);
  const gained: (PartitionSet | undefined)[] = [];
  for (let row = 0; row < owners.length; row += width) {
    for (let at = row; at < row + width; at++) {
      const owner = owners[at] as number;
      if (owner === NO_OWNER) break;
      const index = indexBefore[owner] as number;
      // Most owners are unchanged and have the same rank.
      if (former !== undefined && index >= 0) {
        if (former[at] === index) continue;
        const end = row + (at - row < replicas ? replicas : width);
        let place = row;
        while (place < end && former[place] !== index) place++;
        if (place < end) continue;
      }
      let partitions = gained[owner];
      if (partitions === undefined) {
        partitions = new PartitionSet();
        gained[owner] = partitions;
      }
      partitions.add(row / width);
    }
  }
  return new Map(gained.flatMap((partitions, owner) => (partitions ? [[nodes[owner] as string, partitions]] : [])));
}

/** The index of each node in the former ring; -1 if it was not there, or has restarted: its shard is empty. */
function indicesBefore(nodes: readonly string[], before: FormerOwners | undefined): Int32Array {
  const indices = new Int32Array(nodes.length).fill(-1);
  if (before === undefined) return indices;
  const indexOf = new Map(before.ring.nodes.map((nodeId, i) => [nodeId, i]));
  for (const nodeId of before.restarted) indexOf.delete(nodeId);
  for (const [i, nodeId] of nodes.entries()) indices[i] = indexOf.get(nodeId) ?? -1;
  return indices;
}
