import { accessSync, constants, lstatSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Environment } from '../base/environment.js';

/** Nodes of one user on one host that find a socket by themselves. */
const NODES_MAX_COUNT = 64;
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

/** The first of the default sockets at which no node serves; the reason when there is none. Its folder is there then. */
export async function freeClientSocket(
  env: ProbeEnvironment,
  parts: RuntimeFolderParts = ownRuntimeFolder(),
): Promise<{ readonly path: string } | { readonly path: undefined; readonly reason: string }> {
  for (let nth = 1; nth <= NODES_MAX_COUNT; nth++) {
    const path = defaultClientSocket(parts, nth);
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      accessSync(dirname(path), constants.W_OK);
      if (lstatSync(path, { throwIfNoEntry: false }) === undefined || !(await isAnswering(path, env))) return { path };
    } catch (error) {
      return { path: undefined, reason: (error as Error).message };
    }
  }
  return { path: undefined, reason: `${NODES_MAX_COUNT} nodes have one in ${dirname(defaultClientSocket(parts))}` };
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
