import { ArgumentError } from '../base/errors.js';
import type { PeerCredentials } from './contract.js';
import { loadNative } from './loader.js';

export type { PeerCredentials } from './contract.js';

/**
 * Who the process at the other end of a connected Unix socket was when it connected; `fd` is the socket's descriptor.
 * Undefined without the addon. Throws {@link ArgumentError} for a descriptor that is not one of a connected Unix socket.
 */
export function peerCredentials(fd: number): PeerCredentials | undefined {
  if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31 - 1) {
    throw new ArgumentError(`peerCredentials: fd must be an open descriptor, got ${String(fd)}`);
  }
  const { addon } = loadNative();
  try {
    return addon?.peerCredentials(fd);
  } catch (cause) {
    throw new ArgumentError(
      `peerCredentials: fd must be a connected Unix socket, got ${fd}: ${(cause as Error).message}`,
      { cause },
    );
  }
}
