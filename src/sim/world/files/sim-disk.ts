import type { RandomSource } from '../../../base/environment/random.js';
import { Lane } from '../kernel/lane.js';
import type { Scheduler } from '../kernel/scheduler.js';
import { below, chance, fraction } from '../kernel/seeds.js';
import type { CrashOutcome, FileContent } from './file-content.js';
import { FileTree } from './file-tree.js';

/** Properties of a healthy disk. */
export interface DiskShape {
  readonly capacityBytes: number;
  readonly readBytesPerS: number;
  readonly writeBytesPerS: number;
  /** Latency of reads, flushes and direct writes in milliseconds; up to half as much is added at random. */
  readonly latencyMs: number;
  /** Latency of operations in the system's memory, in milliseconds: names, buffered writes. */
  readonly memoryLatencyMs: number;
  /** Milliseconds after which the system flushes a buffered write by itself. */
  readonly writebackMs: number;
  /** Milliseconds after which the disk flushes a direct write from its own cache. */
  readonly directWritebackMs: number;
  /** Whether files can be opened for direct I/O. */
  readonly hasDirect: boolean;
}

/** A fast local disk. */
export const DISK_SHAPE: DiskShape = {
  capacityBytes: 2 ** 40,
  readBytesPerS: 3e9,
  writeBytesPerS: 1.5e9,
  latencyMs: 0.08,
  memoryLatencyMs: 0.01,
  writebackMs: 30_000,
  directWritebackMs: 1_000,
  hasDirect: true,
};

/** A write that is in progress. */
interface PendingWrite {
  readonly content: FileContent;
  apply(): void;
}

const OUTCOMES: readonly CrashOutcome[] = ['lost', 'kept', 'prefix', 'sectors'];
/** Probability that a write in progress counts as written, but not flushed, when its host dies. */
const PENDING_PROBABILITY = 0.5;

/** The disk of a host: its files, its speed and its faults. */
export class SimDisk {
  readonly shape: DiskShape;
  /** Probabilities with which operations fail with EIO. */
  readonly errorProbability = { read: 0, write: 0, flush: 0 };
  /** Whether writes that need more space fail with ENOSPC. */
  isFull = false;
  isReadOnly = false;
  /** Factor by which everything takes longer. */
  slowness = 1;
  /** Fate of unflushed writes in a crash; undefined: random, from the seed. */
  crashOutcome: CrashOutcome | undefined;
  readonly #scheduler: Scheduler;
  readonly #random: RandomSource;
  readonly #reads: Lane;
  readonly #writes: Lane;
  readonly #pending = new Set<PendingWrite>();
  #tree = new FileTree();
  /** Changes when the host dies, so that operations begun before never end. */
  #generation = 0;

  constructor(scheduler: Scheduler, random: RandomSource, shape: Partial<DiskShape>) {
    this.shape = { ...DISK_SHAPE, ...shape };
    this.#scheduler = scheduler;
    this.#random = random;
    this.#reads = new Lane(this.shape.readBytesPerS);
    this.#writes = new Lane(this.shape.writeBytesPerS);
  }

  get tree(): FileTree {
    return this.#tree;
  }

  get nowMs(): number {
    return this.#scheduler.nowMs;
  }

  get usedBytes(): number {
    return this.#tree.files().reduce((sum, { content }) => sum + content.allocatedBytes, 0);
  }

  get freeBytes(): number {
    return this.isFull ? 0 : Math.max(0, this.shape.capacityBytes - this.usedBytes);
  }

  /**
   * Runs `fn` when an operation is done: one that reads or writes this many bytes of the disk or, without bytes, one in
   * the system's memory.
   */
  after(
    what: { readonly kind: string; readonly readBytes?: number; readonly writeBytes?: number },
    fn: () => void,
  ): void {
    const generation = this.#generation;
    this.#scheduler.schedule(this.#doneMs(what), {
      kind: what.kind,
      owner: undefined,
      detail: what.readBytes ?? what.writeBytes ?? 0,
      run: () => {
        if (generation === this.#generation) fn();
      },
    });
  }

  /** Whether an operation fails this time, drawn at random. */
  fails(operation: 'read' | 'write' | 'flush'): boolean {
    return chance(this.#random, this.errorProbability[operation]);
  }

  /** Registers a write that a crash may tear until it has {@link ended}. */
  begin(write: PendingWrite): void {
    this.#pending.add(write);
    this.#age(write.content);
  }

  ended(write: PendingWrite): void {
    this.#pending.delete(write);
  }

  /** The power fails. Flushed data stays; `crashOutcome` decides about the rest. */
  crash(): void {
    this.#generation++;
    for (const write of this.#pending) if (chance(this.#random, PENDING_PROBABILITY)) write.apply();
    this.#pending.clear();
    const outcome = this.crashOutcome ?? (OUTCOMES[below(this.#random, OUTCOMES.length)] as CrashOutcome);
    const random = this.#random;
    this.#tree.crash(this.nowMs, (count) =>
      outcome === 'kept' ? count : outcome === 'lost' ? 0 : below(random, count + 1),
    );
    for (const { content } of this.#tree.files()) {
      this.#age(content);
      content.crash(outcome, random);
    }
  }

  /** Replaces the disk with an empty one. The host must be down. */
  replace(): void {
    this.#tree = new FileTree();
  }

  /** Flips this many random bits. */
  rot(bits: number): void {
    const files = this.#tree.files().filter(({ content }) => content.sizeBytes > 0);
    for (let i = 0; i < bits && files.length > 0; i++)
      files[below(this.#random, files.length)]?.content.rot(this.#random);
  }

  #age(content: FileContent): void {
    const { writebackMs, directWritebackMs } = this.shape;
    content.age(this.nowMs - (content.isDirect ? directWritebackMs : writebackMs));
  }

  #doneMs({ readBytes, writeBytes }: { readonly readBytes?: number; readonly writeBytes?: number }): number {
    const { nowMs, slowness } = this;
    const { latencyMs, memoryLatencyMs } = this.shape;
    const isOfDisk = readBytes !== undefined || writeBytes !== undefined;
    const drawnMs = (isOfDisk ? latencyMs : memoryLatencyMs) * (1 + fraction(this.#random) / 2);
    let sentMs = nowMs;
    if (readBytes !== undefined) sentMs = this.#reads.send(nowMs, readBytes * slowness);
    if (writeBytes !== undefined) sentMs = this.#writes.send(nowMs, writeBytes * slowness);
    return sentMs + drawnMs * slowness;
  }
}
