import { defaultCore } from '../binding/core.js';
import type { Keys } from '../binding/key-batch.js';
import { ConsistentHashRing } from './hash-ring.js';

/** Partitions of the keys. Part of the wire contract, as is {@link partitionsOf}. */
export const PARTITIONS_COUNT = 65_536;
/** Most changes of one ring whose results are kept: nodes that restart again and again must not add up. */
const CHANGES_KEPT_COUNT = 32;

/** The partition of each key: the upper 16 bits of its position on every ring. */
export function partitionsOf(keys: Keys): Uint16Array {
  const { area } = defaultCore();
  area.writePositions(keys, 0);
  const { u32, count } = area;
  const upper = (area.hashes >>> 2) + 1;
  const partitions = new Uint16Array(count);
  for (let i = 0; i < count; i++) partitions[i] = (u32[upper + 2 * i] as number) >>> 16;
  return partitions;
}

/**
 * A hash ring on which partitions stand, and not keys: all keys of a partition have the same owners, those of the ring
 * at the partition's first position. So what a change of nodes moves can be said, and looked at, for {@link
 * PARTITIONS_COUNT} partitions, however many keys there are.
 */
export class PartitionedRing extends ConsistentHashRing {
  override getNode(key: string): string | undefined {
    return this.getNodes(key, 1)[0];
  }

  /**
   * `n` indices into `nodes` for each partition in turn, its owners, then NO_NODE. It takes some milliseconds, once for
   * all rings of the same nodes; they share the array, which must not be written to.
   */
  ownersOfPartitions(n: number): Uint32Array {
    const { ofPartitions } = this.points();
    const known = ofPartitions.get(n);
    if (known !== undefined) return known;
    const write = (resultBytes: number): void => this.core.area.writeEveryPartition(PARTITIONS_COUNT, resultBytes);
    const owners = this.ownersAt(write, n);
    ofPartitions.set(n, owners);
    return owners;
  }

  /**
   * What `compute` returns about the change from this ring to `after`. It is called once for all changes of the same
   * nodes that `what` says the same of: they share the result, which must not be written to.
   */
  ofChange<T extends object>(after: PartitionedRing, what: string, compute: () => T): T {
    const { ofChanges } = this.points();
    const change = `${after.points().id} ${what}`;
    const known = ofChanges.get(change) as T | undefined;
    if (known !== undefined) return known;
    const result = compute();
    if (ofChanges.size >= CHANGES_KEPT_COUNT) ofChanges.clear();
    ofChanges.set(change, result);
    return result;
  }

  /** @internal */
  protected override writePositions(keys: Keys, resultBytes: number): void {
    this.core.area.writePartitionStarts(keys, resultBytes);
  }
}

/** Most partitions of a set that are a list. It takes half as much memory as the bits of a set. */
const LISTED_MAX_COUNT = 512;

/** Some of the partitions: a few are a list in ascending order, more are a bit for each, 8 KiB in all. */
export class PartitionSet {
  /** The partitions, unless there are bits. */
  #listed: number[] = [];
  #bits: Uint32Array | undefined;

  add(partition: number): void {
    if (this.#bits === undefined) {
      const place = this.#placeOf(partition);
      if (this.#listed[place] === partition) return;
      if (this.#listed.length < LISTED_MAX_COUNT) {
        this.#listed.splice(place, 0, partition);
        return;
      }
    }
    const bits = this.#asBits();
    bits[partition >>> 5] = (bits[partition >>> 5] as number) | (1 << (partition & 31));
  }

  has(partition: number): boolean {
    if (this.#bits === undefined) return this.#listed[this.#placeOf(partition)] === partition;
    return (((this.#bits[partition >>> 5] as number) >>> (partition & 31)) & 1) === 1;
  }

  /** The partitions that are in this set, in the other, or in both. */
  with(other: PartitionSet): PartitionSet {
    const both = new PartitionSet();
    for (const set of [this, other]) {
      for (const partition of set.#listed) both.add(partition);
      if (set.#bits === undefined) continue;
      const bits = both.#asBits();
      for (let i = 0; i < bits.length; i++) bits[i] = (bits[i] as number) | (set.#bits[i] as number);
    }
    return both;
  }

  /** Where the partition is in the list, or belongs. Partitions are mostly added in ascending order. */
  #placeOf(partition: number): number {
    const listed = this.#listed;
    let end = listed.length;
    if (end === 0 || (listed[end - 1] as number) < partition) return end;
    let start = 0;
    while (start < end) {
      const middle = (start + end) >>> 1;
      if ((listed[middle] as number) < partition) start = middle + 1;
      else end = middle;
    }
    return start;
  }

  #asBits(): Uint32Array {
    if (this.#bits !== undefined) return this.#bits;
    const bits = new Uint32Array(PARTITIONS_COUNT / 32);
    for (const each of this.#listed) bits[each >>> 5] = (bits[each >>> 5] as number) | (1 << (each & 31));
    this.#listed = [];
    this.#bits = bits;
    return bits;
  }
}
