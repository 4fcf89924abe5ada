import type { CoreExports } from './exports.js';
import type { KeyArea } from './key-area.js';
import { UTF8_BYTES_PER_UNIT } from './key-text.js';

const POINT_BYTES = 4;
/** The prime of the hash FNV-1a. */
const HASH_FACTOR = 0x01000193;

/** The points of one ring in WASM memory, and the number of rings that share them. */
export interface RingPoints {
  /** Number of these points, which no others get. */
  readonly id: number;
  readonly handle: number;
  readonly vnodes: number;
  readonly hash: number;
  readonly nodeIds: readonly string[];
  /** The zone number of each node; undefined if all nodes are in one zone. */
  readonly zoneOf: Uint32Array | undefined;
  /** Cached owners of every partition, by the number of owners per partition. */
  readonly ofPartitions: Map<number, Uint32Array>;
  /** Cached results about changes from these points to others. */
  readonly ofChanges: Map<string, object>;
  uses: number;
}

/**
 * Points of hash rings, shared between rings. They depend only on the vnodes, the nodes and their zones, so equal rings
 * share them: a thousand simulated nodes in one process, or former rings beside a current one, hold each set of points
 * once.
 *
 * Accounting: the sum of `uses` over all entries is the number of rings that hold points.
 */
export class SharedRingPoints {
  private readonly exports: CoreExports;
  private readonly area: KeyArea;
  /** The entries for each hash; usually one. */
  private readonly byHash = new Map<number, RingPoints[]>();
  private held = 0;
  private lastId = 0;

  constructor(exports: CoreExports, area: KeyArea) {
    this.exports = exports;
    this.area = area;
  }

  /** Number of distinct sets of points held now. */
  get count(): number {
    return this.held;
  }

  /**
   * Takes the points for the ring of these nodes; release them once. The ids must be well-formed, distinct and in the
   * order of their UTF-8 bytes. `zones`: see {@link zoneNumbers}.
   */
  hold(vnodes: number, nodeIds: readonly string[], zones?: ReadonlyMap<string, string>): RingPoints {
    const zoneOf = zones && zoneNumbers(nodeIds, zones);
    const hash = hashOf(vnodes, nodeIds, zoneOf);
    const wanted = { vnodes, nodeIds, zoneOf };
    const known = this.byHash.get(hash)?.find((points) => isSamePoints(points, wanted));
    if (known !== undefined) {
      known.uses++;
      return known;
    }
    const handle = this.place(vnodes, nodeIds);
    if (zoneOf !== undefined) this.setZones(handle, zoneOf);
    const points = {
      id: ++this.lastId,
      handle,
      vnodes,
      hash,
      nodeIds: Object.freeze([...nodeIds]),
      zoneOf,
      ofPartitions: new Map(),
      ofChanges: new Map(),
      uses: 1,
    };
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

  private setZones(handle: number, zoneOf: Uint32Array): void {
    const { area, exports } = this;
    area.layOut(zoneOf.length, 0, 0);
    area.u32.set(zoneOf, area.lengths >>> 2);
    exports.ringSetZones(handle, area.lengths, zoneOf.reduce((highest, zone) => Math.max(highest, zone), 0) + 1);
  }
}

/**
 * The zones of these nodes, numbered from 0 in the order of the nodes; nodes missing from `zones` share one extra zone.
 * Undefined if there are fewer than two zones.
 */
function zoneNumbers(nodeIds: readonly string[], zones: ReadonlyMap<string, string>): Uint32Array | undefined {
  const numbers = new Map<string, number>();
  const zoneOf = new Uint32Array(nodeIds.length);
  nodeIds.forEach((nodeId, i) => {
    const zone = zones.get(nodeId) ?? '';
    const number = numbers.get(zone) ?? numbers.size;
    numbers.set(zone, number);
    zoneOf[i] = number;
  });
  return numbers.size > 1 ? zoneOf : undefined;
}

function hashOf(vnodes: number, nodeIds: readonly string[], zoneOf: Uint32Array | undefined): number {
  let hash = vnodes;
  for (let i = 0; i < nodeIds.length; i++) {
    const id = nodeIds[i] as string;
    for (let at = 0; at < id.length; at++) hash = Math.imul(hash ^ id.charCodeAt(at), HASH_FACTOR);
    hash = Math.imul(hash ^ id.length, HASH_FACTOR);
  }
  if (zoneOf !== undefined) for (const zone of zoneOf) hash = Math.imul(hash ^ zone, HASH_FACTOR);
  return hash;
}

type Placed = Pick<RingPoints, 'vnodes' | 'nodeIds' | 'zoneOf'>;

function isSamePoints(a: Placed, b: Placed): boolean {
  if (a.vnodes !== b.vnodes || !isSameList(a.nodeIds, b.nodeIds)) return false;
  return isSameList(a.zoneOf ?? [], b.zoneOf ?? []);
}

function isSameList<T>(a: ArrayLike<T>, b: ArrayLike<T>): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
