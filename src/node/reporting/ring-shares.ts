import { PARTITIONS_COUNT, PartitionedRing } from '../../core/ring/partitions.js';

/** Each node's share (0 to 1) of the partitions as their first owner, by node id. Takes about a millisecond. */
export function ringShares(nodeIds: readonly string[], vnodes: number): ReadonlyMap<string, number> {
  const ring = new PartitionedRing(vnodes);
  try {
    ring.setNodes(nodeIds);
    const counts = new Uint32Array(ring.nodes.length);
    for (const index of ring.ownersOfPartitions(1)) counts[index] = (counts[index] ?? 0) + 1;
    return new Map(ring.nodes.map((nodeId, i) => [nodeId, (counts[i] as number) / PARTITIONS_COUNT]));
  } finally {
    ring.free();
  }
}
