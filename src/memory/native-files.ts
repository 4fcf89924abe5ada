import type { FileCaller } from '../base/environment/files.js';
import { loadNative } from '../native/addon/loader.js';
import { addressOf } from './native-memory.js';

/**
 * Returns file calls that run on threads of the addon and cost less than those of the environment; undefined without
 * the addon.
 */
export function nativeCalls(): FileCaller | undefined {
  const { addon } = loadNative();
  if (addon === null) return undefined;
  return {
    readAt: (fd, view, position, state) => addon.readAt(fd, addressOf(addon, view), view.length, position, state),
    writeAt: (fd, view, position, state) => addon.writeAt(fd, addressOf(addon, view), view.length, position, state),
  };
}
