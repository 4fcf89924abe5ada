import { xxh64 } from './hash';
import { NONE } from './records';

/**
 * Consistent hash ring. Part of the wire contract:
 *
 * - nodes are numbered in the order of their UTF-8 ids, bytewise;
 * - point v of a node (v = 0 ... vnodes - 1) is XXH64(id, then v as u32 little endian; seed 1);
 * - points are ordered by position, equal ones by the node's number;
 * - a key stands at XXH64(key; seed 0) and belongs to the first point at or after it, else to the first of all;
 * - its further owners are the next distinct nodes clockwise. Where nodes have zones, they are first those nodes
 *   clockwise whose zone is none of the zones of the owners so far, and when all zones are taken, the other nodes
 *   clockwise.
 *
 * So zones never change the first owner, and a node that comes or goes changes the owners of those keys only that it
 * owns.
 *
 * The space of positions is cut into 2^bucketBits equal ranges, the buckets, of 2.5 to 5 points each. A lookup of one
 * owner reads one cache line: the first points from the start of the key's bucket on, with the tops of their positions.
 * Only where these do not decide (the key is behind all eight, or equal to one) the points themselves are looked at.
 *
 *     positions  u64 x points           sorted
 *     owners     u32 x points           node numbers, same order
 *     buckets    u32 x 2^bucketBits     first point of each bucket
 *     lines      2^bucketBits x 8 x [node: u32][top: u32]    top: the position's upper half; behind the last point: [node of the
 *                                       first point][2^32 - 1]
 *
 * Memory: 12 bytes a point, and 14 to 27 for buckets and lines.
 */

const BUCKET_POINTS: u32 = 5;
const LINE_POINTS: u32 = 8;
const LINE_SHIFT: usize = 6;
const CACHE_LINE: usize = 64;

const KEY_SEED: u64 = 0;
const POINT_SEED: u64 = 1;

/** The position of a key, on every ring. */
// @ts-ignore: decorator
@inline
export function keyPosition(key: usize, bytes: usize): u64 {
  return xxh64(key, bytes, KEY_SEED);
}

@unmanaged
export class Ring {
  private vnodes: u32;
  private points: u32;
  nodes: u32;
  private bucketShift: u64;
  private positions: usize;
  private owners: usize;
  private buckets: usize;
  /** Address of the lines as allocated, and aligned to a cache line. */
  private linesMemory: usize;
  private lines: usize;
  /** For each node, the number of the last walk that met it. */
  private marks: usize;
  private walk: u32;
  /**
   * Number of zones, 0: none. Then, for each node its zone; and for each zone the number of the last walk that took it.
   */
  zones: u32;
  private zoneOf: usize;
  private zoneMarks: usize;
  /** Number of the last walk that took zones. */
  private zonesWalk: u32;

  constructor(vnodes: u32) {
    this.vnodes = vnodes;
    this.points = 0;
    this.nodes = 0;
    this.bucketShift = 63;
    this.positions = 0;
    this.owners = 0;
    this.buckets = 0;
    this.linesMemory = 0;
    this.lines = 0;
    this.marks = 0;
    this.walk = 0;
    this.zones = 0;
    this.zoneOf = 0;
    this.zoneMarks = 0;
    this.zonesWalk = 0;
  }

  /**
   * Replaces the nodes. `ids` holds their ids one after the other, each followed by four spare bytes that this
   * overwrites; `lengths` (u32) holds the ids' lengths without the spare bytes.
   */
  setNodes(ids: usize, lengths: usize, nodes: u32): void {
    this.release();
    this.nodes = nodes;
    this.points = nodes * this.vnodes;
    if (this.points == 0) return;
    const bucketBits = <u64>max<i32>(1, 32 - clz<u32>((this.points - 1) / BUCKET_POINTS));
    this.bucketShift = 64 - bucketBits;
    const buckets = <usize>1 << <usize>bucketBits;
    this.positions = heap.alloc(<usize>this.points << 3);
    this.owners = heap.alloc(<usize>this.points << 2);
    this.buckets = heap.alloc(buckets << 2);
    memory.fill(this.buckets, 0, buckets << 2);
    this.marks = heap.alloc(<usize>nodes << 2);
    memory.fill(this.marks, 0, <usize>nodes << 2);
    this.walk = 0;
    const hashes = heap.alloc(<usize>this.points << 3);
    this.hashPoints(ids, lengths, hashes);
    this.countBuckets(hashes, buckets);
    this.scatter(hashes);
    this.sortBuckets(buckets);
    heap.free(hashes);
    this.linesMemory = heap.alloc((buckets << LINE_SHIFT) + CACHE_LINE - 1);
    this.lines = (this.linesMemory + CACHE_LINE - 1) & ~(CACHE_LINE - 1);
    this.fillLines(buckets);
  }

  /**
   * Sets the zone of each node; there must be at least `zones` nodes. `zoneOf` holds a number below `zones` (u32) for
   * each node. To be called once after {@link setNodes}.
   */
  setZones(zoneOf: usize, zones: u32): void {
    this.zonesWalk = 0;
    const bytes = <usize>this.nodes << 2;
    this.zones = zones;
    this.zoneOf = heap.alloc(bytes);
    memory.copy(this.zoneOf, zoneOf, bytes);
    this.zoneMarks = heap.alloc(<usize>zones << 2);
    memory.fill(this.zoneMarks, 0, <usize>zones << 2);
  }

  /** Node number of the owner of a key at that position; the ring must not be empty. */
  @inline
  owner(position: u64): u32 {
    const line = this.lines + (this.bucketOf(position) << LINE_SHIFT);
    const top = topOf(position);
    const before = pointsBefore(line, top);
    const entry = line + (<usize>before << 3);
    if (before < LINE_POINTS && load<u32>(entry, 4) != top) return load<u32>(entry);
    return load<u32>(this.owners + (<usize>this.firstPoint(position) << 2));
  }

  /** Writes the first `count` distinct nodes clockwise as u32, padded with NONE. */
  nextOf(position: u64, count: u32, out: usize): void {
    let found: u32 = 0;
    const wanted = min<u32>(count, this.nodes);
    if (wanted > 0) {
      if (++this.walk == 0) {
        memory.fill(this.marks, 0, <usize>this.nodes << 2);
        this.walk = 1;
      }
      let point = this.firstPoint(position);
      while (found < wanted) {
        const node = load<u32>(this.owners + (<usize>point << 2));
        const mark = this.marks + (<usize>node << 2);
        if (load<u32>(mark) != this.walk) {
          store<u32>(mark, this.walk);
          store<u32>(out + (<usize>found << 2), node);
          found++;
        }
        if (++point == this.points) point = 0;
      }
    }
    for (; found < count; found++) store<u32>(out + (<usize>found << 2), NONE);
  }

  /** Writes the `count` owners as u32, padded with NONE; the ring must have zones. */
  ownersAcrossZones(position: u64, count: u32, out: usize): void {
    const wanted = min<u32>(count, this.nodes);
    if (++this.walk == 0) {
      memory.fill(this.marks, 0, <usize>this.nodes << 2);
      this.walk = 1;
    }
    // Walks without zones may have restarted their numbering.
    if (this.walk <= this.zonesWalk) memory.fill(this.zoneMarks, 0, <usize>this.zones << 2);
    this.zonesWalk = this.walk;
    const first = this.firstPoint(position);
    let found = this.takeZones(first, wanted, out);
    let point = first;
    while (found < wanted) {
      const node = load<u32>(this.owners + (<usize>point << 2));
      const mark = this.marks + (<usize>node << 2);
      if (load<u32>(mark) != this.walk) {
        store<u32>(mark, this.walk);
        store<u32>(out + (<usize>found << 2), node);
        found++;
      }
      if (++point == this.points) point = 0;
    }
    for (; found < count; found++) store<u32>(out + (<usize>found << 2), NONE);
  }

  /** Writes and marks the first node clockwise of each zone, at most `wanted` nodes; returns their number. */
  private takeZones(first: u32, wanted: u32, out: usize): u32 {
    let found: u32 = 0;
    const end = min<u32>(wanted, this.zones);
    let point = first;
    while (found < end) {
      const node = load<u32>(this.owners + (<usize>point << 2));
      const mark = this.zoneMarks + (<usize>load<u32>(this.zoneOf + (<usize>node << 2)) << 2);
      if (load<u32>(mark) != this.walk) {
        store<u32>(mark, this.walk);
        store<u32>(this.marks + (<usize>node << 2), this.walk);
        store<u32>(out + (<usize>found << 2), node);
        found++;
      }
      if (++point == this.points) point = 0;
    }
    return found;
  }

  dispose(): void {
    this.release();
    heap.free(changetype<usize>(this));
  }

  /** The first point at or after the position, else the first point of the ring. */
  @inline
  private firstPoint(position: u64): u32 {
    const bucket = this.bucketOf(position);
    let point = load<u32>(this.buckets + (bucket << 2)) + pointsBefore(this.lines + (bucket << LINE_SHIFT), topOf(position));
    while (point < this.points && load<u64>(this.positions + (<usize>point << 3)) < position) point++;
    return point == this.points ? 0 : point;
  }

  private hashPoints(ids: usize, lengths: usize, hashes: usize): void {
    for (let node: u32 = 0; node < this.nodes; node++) {
      const bytes = load<u32>(lengths + (<usize>node << 2));
      for (let vnode: u32 = 0; vnode < this.vnodes; vnode++) {
        store<u32>(ids + bytes, vnode);
        store<u64>(hashes, xxh64(ids, bytes + 4, POINT_SEED));
        hashes += 8;
      }
      ids += bytes + 4;
    }
  }

  private countBuckets(hashes: usize, buckets: usize): void {
    for (let i: u32 = 0; i < this.points; i++) {
      const count = this.buckets + (this.bucketOf(load<u64>(hashes + (<usize>i << 3))) << 2);
      store<u32>(count, load<u32>(count) + 1);
    }
    let start: u32 = 0;
    for (let i: usize = 0; i < buckets; i++) {
      const bucket = this.buckets + (i << 2);
      const count = load<u32>(bucket);
      store<u32>(bucket, start);
      start += count;
    }
  }

  /**
   * Scatters the points into their buckets. Leaves each bucket's entry at the bucket's end; {@link sortBuckets} resets
   * it.
   */
  private scatter(hashes: usize): void {
    let at = hashes;
    for (let node: u32 = 0; node < this.nodes; node++) {
      for (let vnode: u32 = 0; vnode < this.vnodes; vnode++) {
        const position = load<u64>(at);
        at += 8;
        const bucket = this.buckets + (this.bucketOf(position) << 2);
        const point = load<u32>(bucket);
        store<u32>(bucket, point + 1);
        store<u64>(this.positions + (<usize>point << 3), position);
        store<u32>(this.owners + (<usize>point << 2), node);
      }
    }
  }

  private sortBuckets(buckets: usize): void {
    let start: u32 = 0;
    for (let i: usize = 0; i < buckets; i++) {
      const bucket = this.buckets + (i << 2);
      const end = load<u32>(bucket);
      store<u32>(bucket, start);
      if (end - start > 1) this.sortPoints(start, end);
      start = end;
    }
  }

  /** Insertion sort: a bucket holds few points. Stable, and the points come in the order of the nodes. */
  private sortPoints(start: u32, end: u32): void {
    for (let i = start + 1; i < end; i++) {
      const position = load<u64>(this.positions + (<usize>i << 3));
      const owner = load<u32>(this.owners + (<usize>i << 2));
      let at = i;
      while (at > start && load<u64>(this.positions + (<usize>(at - 1) << 3)) > position) {
        store<u64>(this.positions + (<usize>at << 3), load<u64>(this.positions + (<usize>(at - 1) << 3)));
        store<u32>(this.owners + (<usize>at << 2), load<u32>(this.owners + (<usize>(at - 1) << 2)));
        at--;
      }
      store<u64>(this.positions + (<usize>at << 3), position);
      store<u32>(this.owners + (<usize>at << 2), owner);
    }
  }

  private fillLines(buckets: usize): void {
    const firstOwner = load<u32>(this.owners);
    for (let i: usize = 0; i < buckets; i++) {
      let point = load<u32>(this.buckets + (i << 2));
      const end = this.lines + ((i + 1) << LINE_SHIFT);
      for (let entry = end - CACHE_LINE; entry < end; entry += 8) {
        const isThere = point < this.points;
        store<u32>(entry, isThere ? load<u32>(this.owners + (<usize>point << 2)) : firstOwner);
        store<u32>(entry, isThere ? topOf(load<u64>(this.positions + (<usize>point << 3))) : u32.MAX_VALUE, 4);
        point++;
      }
    }
  }

  @inline
  private bucketOf(position: u64): usize {
    return <usize>(position >> this.bucketShift);
  }

  private release(): void {
    if (this.points == 0) return;
    heap.free(this.positions);
    heap.free(this.owners);
    heap.free(this.buckets);
    heap.free(this.linesMemory);
    heap.free(this.marks);
    if (this.zones > 0) {
      heap.free(this.zoneOf);
      heap.free(this.zoneMarks);
      this.zones = 0;
    }
    this.points = 0;
    this.nodes = 0;
  }
}

// @ts-ignore: decorator
@inline
function topOf(position: u64): u32 {
  return <u32>(position >> 32);
}

/**
 * Number of points in a line with a smaller top. Branch-free, because a branch would be mispredicted half of the time.
 */
// @ts-ignore: decorator
@inline
function pointsBefore(line: usize, top: u32): u32 {
  return (
    <u32>(load<u32>(line, 4) < top) +
    <u32>(load<u32>(line, 12) < top) +
    <u32>(load<u32>(line, 20) < top) +
    <u32>(load<u32>(line, 28) < top) +
    <u32>(load<u32>(line, 36) < top) +
    <u32>(load<u32>(line, 44) < top) +
    <u32>(load<u32>(line, 52) < top) +
    <u32>(load<u32>(line, 60) < top)
  );
}
