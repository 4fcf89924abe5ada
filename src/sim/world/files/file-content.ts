import type { RandomSource } from '../../../base/environment/random.js';
import { below, chance } from '../kernel/seeds.js';

/** Fate of unflushed writes when a host dies. */
export type CrashOutcome =
  /** None of the writes is on the disk. */
  | 'lost'
  /** All writes are on the disk. */
  | 'kept'
  /** The first writes are on the disk; the last of them may be partial. */
  | 'prefix'
  /** Random sectors are on the disk. */
  | 'sectors';

const BLOCK_BYTES = 16_384;
const SECTOR_BYTES = 512;

/** The changes of a file between two flushes. */
interface Epoch {
  readonly sinceMs: number;
  /** Size of the file before the first change of the epoch. */
  readonly sizeBytes: number;
  /** Blocks before their first change; undefined: the block did not exist. */
  readonly before: Map<number, Uint8Array | undefined>;
  readonly writes: { readonly position: number; readonly lengthBytes: number }[];
  /** Whether its flush has failed, so that the system wrongly treats the data as flushed. */
  isForgotten: boolean;
  /** Whether its flush is in progress; later writes belong to another epoch. */
  isClosed: boolean;
}

/**
 * The bytes of a file, as programs see them and as a crash could leave them. For each block that was written since the
 * last flush, the former content is kept, so that a crash can choose for each sector.
 *
 * Invariant: data that is in no epoch is on the disk.
 */
export class FileContent {
  sizeBytes = 0;
  /** Whether writes bypass the system's cache. */
  isDirect = false;
  #reservedBytes = 0;
  readonly #blocks = new Map<number, Uint8Array>();
  #epochs: Epoch[] = [];

  get allocatedBytes(): number {
    return Math.max(this.#reservedBytes, this.#blocks.size * BLOCK_BYTES);
  }

  /** Additional disk space that this write would need. */
  growthBytes(position: number, lengthBytes: number): number {
    if (lengthBytes === 0) return 0;
    let missing = 0;
    const last = Math.floor((position + lengthBytes - 1) / BLOCK_BYTES);
    for (let index = Math.floor(position / BLOCK_BYTES); index <= last; index++)
      if (!this.#blocks.has(index)) missing++;
    return Math.max(0, (this.#blocks.size + missing) * BLOCK_BYTES - this.allocatedBytes);
  }

  /** Reads bytes from `position` on; returns their number. */
  read(target: Uint8Array, position: number): number {
    const count = Math.max(0, Math.min(target.length, this.sizeBytes - position));
    for (let done = 0; done < count; ) {
      const index = Math.floor((position + done) / BLOCK_BYTES);
      const offset = position + done - index * BLOCK_BYTES;
      const take = Math.min(count - done, BLOCK_BYTES - offset);
      const block = this.#blocks.get(index);
      if (block === undefined) target.fill(0, done, done + take);
      else target.set(block.subarray(offset, offset + take), done);
      done += take;
    }
    return count;
  }

  write(bytes: Uint8Array, position: number, nowMs: number): void {
    const epoch = this.#openEpoch(nowMs);
    epoch.writes.push({ position, lengthBytes: bytes.length });
    for (let done = 0; done < bytes.length; ) {
      const index = Math.floor((position + done) / BLOCK_BYTES);
      const offset = position + done - index * BLOCK_BYTES;
      const take = Math.min(bytes.length - done, BLOCK_BYTES - offset);
      this.#changeable(epoch, index).set(bytes.subarray(done, done + take), offset);
      done += take;
    }
    this.sizeBytes = Math.max(this.sizeBytes, position + bytes.length);
  }

  truncate(lengthBytes: number, nowMs: number): void {
    const epoch = this.#openEpoch(nowMs);
    const first = Math.floor(lengthBytes / BLOCK_BYTES);
    for (const index of [...this.#blocks.keys()]) {
      if (index > first || (index === first && lengthBytes % BLOCK_BYTES === 0)) {
        this.#changeable(epoch, index);
        this.#blocks.delete(index);
      } else if (index === first) {
        this.#changeable(epoch, index).fill(0, lengthBytes - index * BLOCK_BYTES);
      }
    }
    this.sizeBytes = lengthBytes;
    this.#reservedBytes = Math.min(this.#reservedBytes, lengthBytes);
  }

  reserve(lengthBytes: number, nowMs: number): void {
    this.#openEpoch(nowMs);
    this.#reservedBytes = Math.max(this.#reservedBytes, lengthBytes);
    this.sizeBytes = Math.max(this.sizeBytes, lengthBytes);
  }

  /** Bytes that a flush has to write. */
  get unflushedBytes(): number {
    return this.#epochs.reduce((sum, epoch) => sum + (epoch.isForgotten ? 0 : epoch.before.size * BLOCK_BYTES), 0);
  }

  /** Begins a flush of all earlier writes; the returned function ends it. */
  beginFlush(): (hasSucceeded: boolean) => void {
    const flushing = this.#epochs.filter((epoch) => !epoch.isForgotten);
    for (const epoch of flushing) epoch.isClosed = true;
    return (hasSucceeded) => {
      for (const epoch of flushing) {
        if (hasSucceeded) this.#flushed(epoch);
        else epoch.isForgotten = true;
      }
    };
  }

  /** Notes that epochs from before `untilMs` have reached the disk without a flush. */
  age(untilMs: number): void {
    for (const epoch of [...this.#epochs]) if (epoch.sinceMs < untilMs && !epoch.isForgotten) this.#flushed(epoch);
  }

  /** Applies a crash of the host; `outcome` decides about unflushed writes. */
  crash(outcome: CrashOutcome, random: RandomSource): void {
    const epochs = this.#epochs;
    this.#epochs = [];
    if (epochs.length === 0 || outcome === 'kept') return;
    const survives = outcome === 'prefix' ? isWithin(survivors(epochs, random)) : undefined;
    const sizes = [...epochs.map((epoch) => epoch.sizeBytes), this.sizeBytes];
    const indices = new Set(epochs.flatMap((epoch) => [...epoch.before.keys()]));
    for (const index of [...indices].sort((a, b) => a - b)) {
      const versions = epochs.filter((epoch) => epoch.before.has(index)).map((epoch) => epoch.before.get(index));
      this.#crashBlock(index, [...versions, this.#blocks.get(index)], (version, sector) => {
        if (outcome === 'lost') return 0;
        if (survives === undefined) return below(random, version + 1);
        return survives(index * BLOCK_BYTES + sector * SECTOR_BYTES) ? version : 0;
      });
    }
    this.sizeBytes = outcome === 'lost' ? (sizes[0] as number) : (sizes[below(random, sizes.length)] as number);
    this.#dropBeyond();
  }

  /** Flips a random bit; false if the file is empty. */
  rot(random: RandomSource): boolean {
    const indices = [...this.#blocks.keys()].filter((index) => index * BLOCK_BYTES < this.sizeBytes);
    const index = indices[below(random, indices.length)];
    if (index === undefined) return false;
    const block = this.#blocks.get(index) as Uint8Array;
    const at = below(random, Math.min(BLOCK_BYTES, this.sizeBytes - index * BLOCK_BYTES));
    block[at] = (block[at] as number) ^ (1 << below(random, 8));
    return true;
  }

  /**
   * `choose` gets the indices of the last version and of the sector, and returns the index of the version on the disk.
   */
  #crashBlock(
    index: number,
    versions: readonly (Uint8Array | undefined)[],
    choose: (last: number, sector: number) => number,
  ): void {
    const block = new Uint8Array(BLOCK_BYTES);
    let isThere = false;
    for (let sector = 0; sector < BLOCK_BYTES / SECTOR_BYTES; sector++) {
      const version = versions[choose(versions.length - 1, sector)];
      if (version === undefined) continue;
      isThere = true;
      const from = sector * SECTOR_BYTES;
      block.set(version.subarray(from, from + SECTOR_BYTES), from);
    }
    if (isThere) this.#blocks.set(index, block);
    else this.#blocks.delete(index);
  }

  #dropBeyond(): void {
    for (const [index, block] of [...this.#blocks]) {
      const start = index * BLOCK_BYTES;
      if (start >= this.sizeBytes) this.#blocks.delete(index);
      else if (start + BLOCK_BYTES > this.sizeBytes) block.fill(0, this.sizeBytes - start);
    }
  }

  #openEpoch(nowMs: number): Epoch {
    const last = this.#epochs.at(-1);
    if (last !== undefined && !last.isClosed) return last;
    const epoch: Epoch = {
      sinceMs: nowMs,
      sizeBytes: this.sizeBytes,
      before: new Map(),
      writes: [],
      isForgotten: false,
      isClosed: false,
    };
    this.#epochs.push(epoch);
    return epoch;
  }

  /** A copy of the block to change; the epoch keeps the former content. */
  #changeable(epoch: Epoch, index: number): Uint8Array {
    const block = this.#blocks.get(index);
    if (block !== undefined && epoch.before.has(index)) return block;
    if (!epoch.before.has(index)) epoch.before.set(index, block);
    const copy = new Uint8Array(BLOCK_BYTES);
    if (block !== undefined) copy.set(block);
    this.#blocks.set(index, copy);
    return copy;
  }

  #flushed(epoch: Epoch): void {
    this.#epochs = this.#epochs.filter((other) => other !== epoch);
    // A block whose flush has failed is on the disk once it has been written and flushed again.
    for (const other of this.#epochs) {
      if (other.isForgotten && other.sinceMs <= epoch.sinceMs)
        for (const index of epoch.before.keys()) other.before.delete(index);
    }
  }
}

/** Random first writes, which have reached the disk; the last one may be partial. */
function survivors(epochs: readonly Epoch[], random: RandomSource): Epoch['writes'] {
  const writes = epochs.flatMap((epoch) => epoch.writes);
  const count = below(random, writes.length + 1);
  const whole = writes.slice(0, count);
  const torn = writes[count];
  if (torn === undefined || !chance(random, 0.5)) return whole;
  const sectors = Math.ceil(torn.lengthBytes / SECTOR_BYTES);
  return [...whole, { position: torn.position, lengthBytes: below(random, sectors) * SECTOR_BYTES }];
}

function isWithin(writes: Epoch['writes']): (position: number) => boolean {
  return (position) =>
    writes.some((write) => position + SECTOR_BYTES > write.position && position < write.position + write.lengthBytes);
}
