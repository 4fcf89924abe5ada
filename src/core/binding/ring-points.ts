import type { CoreExports } from './exports.js';
import type { KeyArea } from './key-area.js';

const POINT_BYTES = 4;
/** Longest UTF-8 form of one UTF-16 code unit. */
const UTF8_BYTES_PER_UNIT = 3;
/** The prime of the hash FNV-1a. */
const HASH_FACTOR = 0x01000193;

/** The points of one ring in WASM memory, and the number of rings that share them. */
export interface RingPoints {
  readonly handle: number;
  readonly vnodes: number;
  readonly hash: number;
  readonly nodeIds: readonly string[];
  uses: number;
}

/**
 * Points of hash rings, shared between rings. They depend only on the vnodes and the nodes, so rings with the same ones
 * share them: a thousand simulated nodes in one process, or former rings beside a current one, have each set of points
 * once.
 *
 * Accounting: the sum of `uses` over all entries is the number of rings that hold points.
 */
export class SharedRingPoints {
  private readonly exports: CoreExports;
  private readonly area: KeyArea;
  /** The entries of each hash; mostly one. */
  private readonly byHash = new Map<number, RingPoints[]>();
  private held = 0;

  constructor(exports: CoreExports, area: KeyArea) {
    this.exports = exports;
    this.area = area;
  }

  /** Number of different sets of points that are held now. */
  get count(): number {
    return this.held;
  }

  /**
   * Takes the points of the ring of these nodes; release them once. The ids must be well-formed, distinct and in the
   * order of their UTF-8 bytes.
   */
  hold(vnodes: number, nodeIds: readonly string[]): RingPoints {
    const hash = hashOf(vnodes, nodeIds);
    const known = this.find(hash, vnodes, nodeIds);
    if (known !== undefined) {
      known.uses++;
      return known;
    }
    const handle = this.place(vnodes, nodeIds);
    const points = { handle, vnodes, hash, nodeIds: Object.freeze([...nodeIds]), uses: 1 };
    const sameHash = this.byHash.get(hash);
    if (sameHash === undefined) this.byHash.set(hash, [points]);
    else sameHash.push(points);
    this.held++;
    return points;
  }

  release(points: RingPoints): void {
    points.uses--;
    if (points.uses > 0) return;
    const others = this.byHash.get(points.hash)?.filter((other) => other !== points) ?? [];
    if (others.length === 0) this.byHash.delete(points.hash);
    else this.byHash.set(points.hash, others);
    this.held--;
    this.exports.ringFree(points.handle);
  }

  private place(vnodes: number, nodeIds: readonly string[]): number {
    const { area, exports } = this;
    let maxBytes = 0;
    for (const id of nodeIds) maxBytes += UTF8_BYTES_PER_UNIT * id.length + POINT_BYTES;
    area.layOut(nodeIds.length, 0, maxBytes);
    const lengths = area.u32;
    let address = area.keys;
    for (let i = 0; i < nodeIds.length; i++) {
      const id = nodeIds[i] as string;
      const bytes = area.writeText(id, address, UTF8_BYTES_PER_UNIT * id.length);
      lengths[(area.lengths >>> 2) + i] = bytes;
      address += bytes + POINT_BYTES;
    }
    const handle = exports.ringNew(vnodes) >>> 0;
    exports.ringSetNodes(handle, area.keys, area.lengths, nodeIds.length);
    return handle;
  }

  private find(hash: number, vnodes: number, nodeIds: readonly string[]): RingPoints | undefined {
    return this.byHash.get(hash)?.find((points) => points.vnodes === vnodes && isSameList(points.nodeIds, nodeIds));
  }
}

function hashOf(vnodes: number, nodeIds: readonly string[]): number {
  let hash = vnodes;
  for (let i = 0; i < nodeIds.length; i++) {
    const id = nodeIds[i] as string;
    for (let at = 0; at < id.length; at++) hash = Math.imul(hash ^ id.charCodeAt(at), HASH_FACTOR);
    hash = Math.imul(hash ^ id.length, HASH_FACTOR);
  }
  return hash;
}

function isSameList(a: readonly string[], b: readonly string[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
