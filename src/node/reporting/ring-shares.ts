import { ConsistentHashRing } from '../../core/index.js';

/** Keys whose owners are counted. So many give each node's share to within a percent. */
const SAMPLE_KEYS = 20_000;

/** Each node's share of the key space, 0 to 1, by node id. It is estimated from sample keys, which takes some milliseconds. */
export function ringShares(nodeIds: readonly string[], vnodes: number): ReadonlyMap<string, number> {
  const ring = new ConsistentHashRing(vnodes);
  try {
    ring.setNodes(nodeIds);
    const keys = Array.from({ length: SAMPLE_KEYS }, (_, i) => `sample ${i}`);
    const counts = new Map(ring.nodes.map((nodeId) => [nodeId, 0]));
    for (const index of ring.getNodesBatch(keys, 1)) {
      const nodeId = ring.nodes[index];
      if (nodeId !== undefined) counts.set(nodeId, (counts.get(nodeId) as number) + 1);
    }
    return new Map([...counts].map(([nodeId, count]) => [nodeId, count / SAMPLE_KEYS]));
  } finally {
    ring.free();
  }
}
