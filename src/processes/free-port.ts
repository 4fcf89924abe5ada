import { createServer } from 'node:net';
import type { RandomSource } from '../base/environment/random.js';
import { MeshCacheError } from '../base/errors.js';

export const LOOPBACK = '127.0.0.1';

/** Ports below the range that Linux takes outgoing ports from, so that no connection gets one by chance. */
const PORT_RANGE = [20_000, 30_000] as const;
const PORT_ATTEMPTS = 50;

/** A TCP port of loopback on which nobody listens now. Throws `ERR_UNREACHABLE` if it finds none. */
export async function findFreePort(random: RandomSource): Promise<number> {
  for (let attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
    const port = PORT_RANGE[0] + (random.u32() % (PORT_RANGE[1] - PORT_RANGE[0]));
    if (await isFreePort(port)) return port;
  }
  throw new MeshCacheError(
    'ERR_UNREACHABLE',
    `found no free port of ${PORT_RANGE[0]} to ${PORT_RANGE[1]} on ${LOOPBACK}`,
  );
}

/** Whether nobody listens on this TCP port of loopback now. */
export function isFreePort(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host: LOOPBACK, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}
