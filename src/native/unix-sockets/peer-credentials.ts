import type { Sharer } from '../../base/concurrency/shares.js';
import type { Connection } from '../../base/environment/network.js';
import { ArgumentError } from '../../base/errors.js';
import type { PeerCredentials } from '../addon/contract.js';
import { loadNative } from '../addon/loader.js';

export type { PeerCredentials } from '../addon/contract.js';

/**
 * Identity of the process at the other end of a connected Unix socket when it connected; `fd` is the socket's
 * descriptor. Undefined without the addon. Throws {@link ArgumentError} for a descriptor that is not one of a connected
 * Unix socket.
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

/**
 * {@link peerCredentials} of a connection; undefined also if it has ended or is not a connection of the operating
 * system.
 */
export function credentialsOf(connection: Connection): PeerCredentials | undefined {
  const fd = descriptorOf(connection);
  return fd === undefined ? undefined : peerCredentials(fd);
}

/**
 * A connection takes the share of its process and of its user, as the kernel knows them. Where the kernel cannot tell
 * the process, because it is of another PID namespace, each connection counts as one; where nothing is known, all are
 * of one user.
 */
export function sharerOf(credentials: PeerCredentials | undefined, id: number): Sharer {
  const { pid = 0, uid } = credentials ?? {};
  const group = uid === undefined ? 'unknown' : `user ${uid}`;
  return { one: pid > 0 ? `process ${pid}` : `connection ${id}`, group };
}

/** The descriptor of a socket, from Node's internal handle: there is no public way to get it. */
function descriptorOf(connection: Connection): number | undefined {
  const { _handle: handle } = connection as { readonly _handle?: { readonly fd?: number } | null };
  return handle?.fd !== undefined && handle.fd >= 0 ? handle.fd : undefined;
}
