import { PartitionSet } from '../core/ring/partitions.js';
import { NO_OWNER, type OwnerRing } from './owners/owners.js';

/** Node id -> incarnation of that node. */
export type Incarnations = Pick<ReadonlyMap<string, number>, 'size' | 'has' | 'get'>;

/** A ring of partitions. */
export interface PartitionRing extends OwnerRing {
  /** For each partition, `n` indices into `nodes`: its owners, padded with NO_OWNER. Must not be written to. */
  ownersOfPartitions(n: number): Uint32Array;
}

/** A ring, and the incarnation of each node that it was made of. */
export interface RingView {
  readonly ring: PartitionRing;
  readonly incarnations: Incarnations;
}

/**
 * Returns for each owner the partitions that it owns after a change of members and did not own before. Without
 * `before`, nobody owned any. A node that has restarted in between has an empty shard, so it gains every partition that
 * it owns. With a `width` above `replicas`, the nodes behind the owners, up to `width` clockwise from the partition,
 * gain it as well unless they were among the first `width` before. Takes a millisecond or two.
 */
export function gainedPartitions(
  before: RingView | undefined,
  after: RingView,
  replicas: number,
  width = replicas,
): Map<string, PartitionSet> {
  const { nodes } = after.ring;
  const owners = after.ring.ownersOfPartitions(width);
  const former = before?.ring.ownersOfPartitions(width);
  const indexBefore = Int32Array.from(nodes, () => -1);
  if (before !== undefined) noteSameStarts(indexBefore, before, after);
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

/**
 * Notes, for each node of the later ring that has not restarted, its index in the earlier ring. A restarted node has an
 * empty shard.
 */
function noteSameStarts(indexBefore: Int32Array, before: RingView, after: RingView): void {
  const indexOf = new Map(before.ring.nodes.map((nodeId, i) => [nodeId, i]));
  for (const [i, nodeId] of after.ring.nodes.entries()) {
    const isSameStart = before.incarnations.get(nodeId) === after.incarnations.get(nodeId);
    if (isSameStart) indexBefore[i] = indexOf.get(nodeId) ?? -1;
  }
}
