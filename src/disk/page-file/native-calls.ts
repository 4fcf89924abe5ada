import type { FileCaller } from '../../base/environment/files.js';
import { DISK_ALIGNMENT_BYTES } from '../../base/limits.js';
import { addressOf, staysInPlace } from '../../memory/native-memory.js';
import { loadNative } from '../../native/addon/loader.js';

/** Calls by threads of the addon, which cost less than those of the environment; undefined without the addon. */
export function nativeCalls(): FileCaller | undefined {
  const { addon } = loadNative();
  if (addon === null) return undefined;
  return {
    readAt: (fd, view, position, state) => addon.readAt(fd, addressOf(addon, view), view.length, position, state),
    writeAt: (fd, view, position, state) => addon.writeAt(fd, addressOf(addon, view), view.length, position, state),
  };
}

/** Whether the system can write this memory to a file as it is, also with direct I/O. */
export function isInPlace(view: Uint8Array): boolean {
  const { addon } = loadNative();
  if (addon === null || !staysInPlace(view) || view.length % DISK_ALIGNMENT_BYTES !== 0) return false;
  return addressOf(addon, view) % DISK_ALIGNMENT_BYTES === 0;
}
