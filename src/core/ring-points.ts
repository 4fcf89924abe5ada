import type { CoreExports } from './exports.js';
import type { KeyArea } from './key-area.js';

const POINT_BYTES = 4;

/** The points of one ring in WASM memory, and how many rings have them. */
export interface RingPoints {
  readonly handle: number;
  readonly name: string;
  readonly nodeIds: readonly string[];
  uses: number;
}

/**
 * Points of hash rings, which depend on nothing but the vnodes and the nodes: rings that have these alike share them. A thousand
 * nodes in one process, as a simulation has them, or a node that keeps former rings beside the current one, have each of them once.
 *
 * Accounting: `uses` of all entries together are the rings that hold points.
 */
export class SharedRingPoints {
  private readonly exports: CoreExports;
  private readonly area: KeyArea;
  private readonly byName = new Map<string, RingPoints>();

  constructor(exports: CoreExports, area: KeyArea) {
    this.exports = exports;
    this.area = area;
  }

  /** Different ones that are held now. */
  get count(): number {
    return this.byName.size;
  }

  /** Those of `nodeIds`, which are well-formed, distinct and in the order of their UTF-8 bytes; to be released once. */
  hold(vnodes: number, nodeIds: readonly string[]): RingPoints {
    // With its length in front no list of ids reads like another.
    const name = `${vnodes}:${nodeIds.map((id) => `${id.length}:${id}`).join('')}`;
    const known = this.byName.get(name);
    if (known !== undefined) {
      known.uses++;
      return known;
    }
    const points = { handle: this.place(vnodes, nodeIds), name, nodeIds: Object.freeze([...nodeIds]), uses: 1 };
    this.byName.set(name, points);
    return points;
  }

  release(points: RingPoints): void {
    points.uses--;
    if (points.uses > 0) return;
    this.byName.delete(points.name);
    this.exports.ringFree(points.handle);
  }

  private place(vnodes: number, nodeIds: readonly string[]): number {
    const { area, exports } = this;
    const ids = nodeIds.map((id) => new TextEncoder().encode(id));
    area.layOut(
      ids.length,
      0,
      ids.reduce((sum, id) => sum + id.length + POINT_BYTES, 0),
    );
    const bytes = area.u8;
    const lengths = area.u32;
    let address = area.keys;
    for (const [i, id] of ids.entries()) {
      lengths[(area.lengths >>> 2) + i] = id.length;
      bytes.set(id, address);
      address += id.length + POINT_BYTES;
    }
    const handle = exports.ringNew(vnodes) >>> 0;
    exports.ringSetNodes(handle, area.keys, area.lengths, ids.length);
    return handle;
  }
}
