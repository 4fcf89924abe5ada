import { closeSync } from 'node:fs';
import { loadNative } from '../addon/loader.js';

/**
 * Closes a descriptor that another process may have sent, without waiting for it, as the addon's `closeReceived` does.
 * Does not throw.
 */
export function closeReceived(fd: number): void {
  const { addon } = loadNative();
  try {
    if (addon === null) closeSync(fd);
    else addon.closeReceived(fd);
  } catch {
    // A failed close is ignored: the descriptor is not open, which is what was wanted.
  }
}
