import { join } from 'node:path';

/** The facts that decide where the socket is. */
export interface RuntimeFolderParts {
  /** `XDG_RUNTIME_DIR` of the environment. */
  readonly runtimeFolder?: string | undefined;
  /** Effective user id. */
  readonly uid: number;
}

/**
 * The default path of a node's client socket, where `meshcache node` creates it and clients look for it: in the user's
 * run-time folder, as systemd sets it; in /run for root; else in a folder of the user in /tmp. The n-th node of a user
 * has `node-<n>.sock`.
 */
export function defaultClientSocket({ runtimeFolder, uid }: RuntimeFolderParts, nth = 1): string {
  const name = nth === 1 ? 'node.sock' : `node-${nth}.sock`;
  if (runtimeFolder !== undefined && runtimeFolder !== '') return join(runtimeFolder, 'meshcache', name);
  return uid === 0 ? join('/run/meshcache', name) : join(`/tmp/meshcache-${uid}`, name);
}

/** The facts for this process. */
export function ownRuntimeFolder(): RuntimeFolderParts {
  return { runtimeFolder: process.env.XDG_RUNTIME_DIR, uid: process.geteuid?.() ?? 0 };
}
