import { DISK_ALIGNMENT_BYTES } from '../../base/limits.js';
import { addressOf, staysInPlace } from '../../memory/native-memory.js';
import { loadNative } from '../../native/addon/loader.js';

/** Disk space of `bytes`: the next multiple of DISK_ALIGNMENT_BYTES. */
export function alignedUp(bytes: number): number {
  return Math.ceil(bytes / DISK_ALIGNMENT_BYTES) * DISK_ALIGNMENT_BYTES;
}

/** Zeros that fill up a page on disk; they must not be modified. */
export const ZEROS = new Uint8Array(DISK_ALIGNMENT_BYTES);

/** Whether the system can write this memory to a file as it is, also with direct I/O. */
export function isInPlace(view: Uint8Array): boolean {
  const { addon } = loadNative();
  if (addon === null || !staysInPlace(view) || view.length % DISK_ALIGNMENT_BYTES !== 0) return false;
  return addressOf(addon, view) % DISK_ALIGNMENT_BYTES === 0;
}
