import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import type { Finding } from './finding.js';

/** Ports below this one need a privilege. */
const UNPRIVILEGED_PORT_MIN = 1024;

/** The problem of a port that this process may not listen on. */
export function privileged(subject: string, key: string, endpoint: Endpoint): Finding {
  const detail = `${key} ${formatEndpoint(endpoint)}: the port needs a privilege that this process does not have`;
  const advice = `choose a port from ${UNPRIVILEGED_PORT_MIN} on, or grant CAP_NET_BIND_SERVICE`;
  return { subject, state: 'problem', detail, advice };
}

/** The command that tells who has a port. */
export function whoHas(port: number): string {
  return `\`ss -ltnp 'sport = :${port}'\``;
}

/** The system's error code in words. */
export function reasonOf(code: string): string {
  const reasons: Readonly<Record<string, string>> = {
    EADDRINUSE: 'the port is in use already',
    EADDRNOTAVAIL: 'is no address of this machine',
    EINVAL: 'is no address of this machine',
    ENOTFOUND: 'the name does not resolve',
    EAI_AGAIN: 'the name does not resolve: the name server does not answer',
  };
  return reasons[code] ?? `cannot be listened on (${code})`;
}

/** The system's error code if nothing can listen there. The port is free again afterwards. */
export function listenFailure({ host, port }: Endpoint): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** Addresses of this machine that other machines may reach, or its loopback address if there are none. */
export function ownAddresses(): string {
  const all = Object.values(networkInterfaces()).flatMap((some) => some ?? []);
  const reachable = all.filter(({ internal, scopeid }) => !internal && !scopeid).map(({ address }) => address);
  return reachable.join(', ') || '127.0.0.1, which is the only one it has';
}
