/** A disk that is well. */
export interface DiskShape {
  readonly capacityBytes: number;
  readonly readBytesPerS: number;
  readonly writeBytesPerS: number;
  /** Of a read or a flush, and up to half as much on top. */
  readonly latencyMs: number;
  /** Of what the system answers out of its memory: names, writes that are not flushed. */
  readonly memoryLatencyMs: number;
  /** What was written is flushed by itself so much later. */
  readonly writebackMs: number;
  /** The same for what was written past the system's cache, and is in that of the disk. */
  readonly directWritebackMs: number;
  /** Whether files can be opened past the system's cache. */
  readonly hasDirect: boolean;
}

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
