import { accessSync, constants, lstatSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import { defaultClientSocket, distrustOf, ownRuntimeFolder } from '../../clients/socket-path.js';
import { isAnswering } from '../../net/local-socket.js';

/** Number of default sockets: as many nodes of one user can run on one host without a configured socket. */
const NODES_MAX_COUNT = 64;

/** The first default socket at which no node serves, or the reason why there is none. Creates its folder. */
export async function freeClientSocket(
  env: Environment,
): Promise<{ readonly path: string } | { readonly path: undefined; readonly reason: string }> {
  const parts = ownRuntimeFolder();
  for (let nth = 1; nth <= NODES_MAX_COUNT; nth++) {
    const path = defaultClientSocket(parts, nth);
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      const reason = distrustOf(path, parts);
      if (reason !== '') return { path: undefined, reason };
      accessSync(dirname(path), constants.W_OK);
      if (lstatSync(path, { throwIfNoEntry: false }) === undefined || !(await isAnswering(path, env))) return { path };
    } catch (error) {
      return { path: undefined, reason: (error as Error).message };
    }
  }
  return { path: undefined, reason: `${NODES_MAX_COUNT} nodes have one in ${dirname(defaultClientSocket(parts))}` };
}
