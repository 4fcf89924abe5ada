/** Properties of a healthy disk. */
export interface DiskShape {
  readonly capacityBytes: number;
  readonly readBytesPerS: number;
  readonly writeBytesPerS: number;
  /** Milliseconds of a read or a flush; up to half as much comes on top. */
  readonly latencyMs: number;
  /** Milliseconds of calls that the system answers from memory: names, writes that are not flushed. */
  readonly memoryLatencyMs: number;
  /** Milliseconds after which the system flushes a write by itself. */
  readonly writebackMs: number;
  /** Milliseconds after which the disk flushes a direct write from its own cache. */
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
