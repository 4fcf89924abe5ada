/** Content of a disk tier, and counts since it was opened. */
export interface DiskInfo {
  /** Total length of the pages. */
  readonly usedBytes: number;
  /** Bytes that are available for pages. */
  readonly capacityBytes: number;
  readonly entries: number;
  /** Bytes of pages that wait to be written or are being written. */
  readonly queueBytes: number;
  /** Pages that were not written because the queue was full or writing had failed. */
  readonly skippedPages: number;
  /** Pages that were dropped because they could not be read or had another checksum; their reads were misses. */
  readonly corruptPages: number;
  readonly evictions: number;
  readonly writtenPages: number;
  readonly writeErrors: number;
  /** Pages that were read from the device. */
  readonly readPages: number;
  readonly ioMode: 'direct' | 'buffered';
  /** The last failure, if it is recent and no write has succeeded since; otherwise null. */
  readonly failure: string | null;
}
