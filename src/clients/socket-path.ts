import { join } from 'node:path';
import type { Environment } from '../base/environment/environment.js';

/** Milliseconds to wait for a node at its socket before it counts as crashed. */
const PROBE_TIMEOUT_MS = 1_000;

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

/** Parts of an environment that a probe of a socket needs. */
type ProbeEnvironment = Pick<Environment, 'clock' | 'network'>;

/** The facts for this process. */
export function ownRuntimeFolder(): RuntimeFolderParts {
  return { runtimeFolder: process.env.XDG_RUNTIME_DIR, uid: process.geteuid?.() ?? 0 };
}

/** Whether somebody accepts connections at a socket. A socket that does not answer at all counts as well. */
export function isAnswering(path: string, { network, clock }: ProbeEnvironment): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = network.connect({ path });
    const end = (isThere: boolean): void => {
      cancelTimer();
      socket.destroy();
      resolve(isThere);
    };
    const cancelTimer = clock.after(PROBE_TIMEOUT_MS, () => end(true), { keepAlive: true });
    socket.once('connect', () => end(true));
    socket.once('error', ({ code }: NodeJS.ErrnoException) => end(code !== 'ECONNREFUSED' && code !== 'ENOENT'));
  });
}
