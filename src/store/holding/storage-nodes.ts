import { digestOf } from '../../directory/shard/removals.js';

/** A storage node as other nodes know it. */
export interface StorageNode {
  readonly nodeId: string;
  readonly incarnation: number;
  /** Size of the node's pool in bytes. */
  readonly poolBytes: number;
}

/** One above the largest 32-bit number. */
const HASHES = 2 ** 32;

/**
 * The order in which storage nodes are asked to take a page: weighted rendezvous hashing (Thaler and Ravishankar 1998;
 * Mosharaf's logarithmic weights). Each node draws a number from the key and its own id, and the highest number comes
 * first; the weights make a node come first for a share of the keys in proportion to its pool.
 *
 * All nodes that see the same members agree without a message, so a page that several nodes set is placed once. Shares
 * are exact, whereas a ring of points only approximates them, and a node that comes or goes moves only its own keys.
 * The cost is one step per storage node and page.
 */
export function orderOf(key: string, nodes: readonly StorageNode[]): StorageNode[] {
  const digest = digestOf(key);
  const [low, high] = [digest >>> 0, Math.floor(digest / HASHES)];
  const drawn = nodes.map((node) => ({ node, draw: drawOf(low, high, node) }));
  drawn.sort((a, b) => b.draw - a.draw || (a.node.nodeId < b.node.nodeId ? -1 : 1));
  return drawn.map(({ node }) => node);
}

function drawOf(low: number, high: number, { nodeId, poolBytes }: StorageNode): number {
  const ofNode = digestOf(nodeId);
  let hash = Math.imul(low ^ (ofNode >>> 0), 0x9e3779b1);
  hash = Math.imul((hash ^ (hash >>> 15)) + Math.imul(high ^ Math.floor(ofNode / HASHES), 0x85ebca6b), 0xc2b2ae35);
  hash = Math.imul(hash ^ (hash >>> 13), 0x27d4eb2f);
  const uniform = (((hash ^ (hash >>> 16)) >>> 0) + 0.5) / HASHES;
  return -poolBytes / Math.log(uniform);
}
