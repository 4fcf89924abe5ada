import { defaultCore } from '../binding/core.js';
import type { Keys } from '../binding/key-batch.js';
import { ConsistentHashRing } from './hash-ring.js';

/** Partitions of the keys. Part of the wire contract, as is {@link partitionsOf}. */
export const PARTITIONS_COUNT = 65_536;

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

  /** @internal */
  protected override writePositions(keys: Keys, resultBytes: number): void {
    this.core.area.writePartitionStarts(keys, resultBytes);
  }
}

/** Some of the partitions: a bit for each, 8 KiB in all. */
export class PartitionSet {
  readonly #bits = new Uint32Array(PARTITIONS_COUNT / 32);

  add(partition: number): void {
    this.#bits[partition >>> 5] = (this.#bits[partition >>> 5] as number) | (1 << (partition & 31));
  }

  has(partition: number): boolean {
    return (((this.#bits[partition >>> 5] as number) >>> (partition & 31)) & 1) === 1;
  }

  /** The partitions that are in this set, in the other, or in both. */
  with(other: PartitionSet): PartitionSet {
    const both = new PartitionSet();
    for (let i = 0; i < this.#bits.length; i++) both.#bits[i] = (this.#bits[i] as number) | (other.#bits[i] as number);
    return both;
  }
}
