import { accessSync, constants, lstatSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import { defaultClientSocket, isAnswering, ownRuntimeFolder } from '../../clients/socket-path.js';

/** Nodes of one user on one host that find a socket by themselves. */
const NODES_MAX_COUNT = 64;

/** The first of the default sockets at which no node serves; the reason when there is none. Its folder is there then. */
export async function freeClientSocket(
  env: Environment,
): Promise<{ readonly path: string } | { readonly path: undefined; readonly reason: string }> {
  const parts = ownRuntimeFolder();
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
