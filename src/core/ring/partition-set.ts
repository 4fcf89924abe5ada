import { PARTITIONS_COUNT } from './partitions.js';

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
