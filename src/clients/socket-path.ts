import { join } from 'node:path';
import type { Environment } from '../base/environment/environment.js';

/** While a node that has ended in disorder is looked for at its socket. */
const PROBE_TIMEOUT_MS = 1_000;

/** What the place of the socket depends on. */
export interface RuntimeFolderParts {
  /** `XDG_RUNTIME_DIR` of the environment. */
  readonly runtimeFolder?: string | undefined;
  /** Effective user id. */
  readonly uid: number;
}

/**
 * Where `meshcache node` has its client socket when nothing else is said, and where clients look for it: in the user's run-time folder,
 * as systemd sets it; in /run for root; else in a folder of the user's in /tmp. The n-th node of a user has `node-<n>.sock`.
 */
export function defaultClientSocket({ runtimeFolder, uid }: RuntimeFolderParts, nth = 1): string {
  const name = nth === 1 ? 'node.sock' : `node-${nth}.sock`;
  if (runtimeFolder !== undefined && runtimeFolder !== '') return join(runtimeFolder, 'meshcache', name);
  return uid === 0 ? join('/run/meshcache', name) : join(`/tmp/meshcache-${uid}`, name);
}

/** What it takes to look for a node at a socket. */
type ProbeEnvironment = Pick<Environment, 'clock' | 'network'>;

/** The parts for this process. */
export function ownRuntimeFolder(): RuntimeFolderParts {
  return { runtimeFolder: process.env.XDG_RUNTIME_DIR, uid: process.geteuid?.() ?? 0 };
}

/** Whether somebody takes connections at a socket; one that does not answer at all counts, too. */
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
