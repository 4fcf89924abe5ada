import { DISK_ALIGNMENT_BYTES } from '../../base/limits.js';

/** What so many bytes take on disk. */
export function alignedUp(bytes: number): number {
  return Math.ceil(bytes / DISK_ALIGNMENT_BYTES) * DISK_ALIGNMENT_BYTES;
}

/** To fill a page up with; not to be written. */
export const ZEROS = new Uint8Array(DISK_ALIGNMENT_BYTES);
