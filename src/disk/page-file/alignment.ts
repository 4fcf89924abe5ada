import { DISK_ALIGNMENT_BYTES } from '../../base/limits.js';

/** Disk space of `bytes`: the next multiple of DISK_ALIGNMENT_BYTES. */
export function alignedUp(bytes: number): number {
  return Math.ceil(bytes / DISK_ALIGNMENT_BYTES) * DISK_ALIGNMENT_BYTES;
}

/** Zeros that fill up a page on disk; they must not be modified. */
export const ZEROS = new Uint8Array(DISK_ALIGNMENT_BYTES);
