/** What a disk tier holds, and what it has done since it was opened. */
export interface DiskInfo {
  /** Sum of the lengths of the pages. */
  readonly usedBytes: number;
  /** Bytes that pages can take. */
  readonly capacityBytes: number;
  readonly entries: number;
  /** Of pages that wait to be written, or are being written. */
  readonly queueBytes: number;
  /** Pages that were not written: the queue was full, or writing had failed. */
  readonly skippedPages: number;
  /** Pages that could not be read, or not with their checksum: dropped, a miss. */
  readonly corruptPages: number;
  readonly evictions: number;
  readonly writtenPages: number;
  readonly writeErrors: number;
  /** Pages that were read from the device. */
  readonly readPages: number;
  readonly ioMode: 'direct' | 'buffered';
  /** What failed last, while nothing has been written since and it is not long ago; null when all is well. */
  readonly failure: string | null;
}
