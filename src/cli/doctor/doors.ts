import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import type { DoorTlsSettings, TlsDoor } from '../../base/settings/door-settings.js';
import type { MeshCacheConfig } from '../../config.js';
import { DoorTls } from '../../net/credentials/door-tls.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { isLoopback } from '../settings/endpoints.js';
import type { Finding } from './finding.js';

const SUBJECT = 'Redis clients';

/** Configuration with the TLS settings of the door for Redis clients. */
type RedisConfig = MeshCacheConfig & DoorTlsSettings;

/**
 * Checks whether the port for Redis clients can be listened on. A door beyond loopback without a password has already
 * been rejected with the configuration.
 */
export async function checkRedis(config: RedisConfig): Promise<Finding> {
  const { respPort: port, respHost: host, respSocket: path } = config;
  if (port === undefined) {
    if (path === undefined) return { subject: SUBJECT, state: 'n/a', detail: 'no door (resp_port, resp_socket)' };
    return { subject: SUBJECT, state: 'ok', detail: `${path}, and no port` };
  }
  const tls = tlsFinding(SUBJECT, 'resp', config);
  if (tls !== undefined) return tls;
  const where = formatEndpoint({ host, port });
  const failure = await listenFailure({ host, port });
  if (failure === 'EACCES') return privileged(SUBJECT, 'resp_port', { host, port });
  if (failure === 'EADDRINUSE') {
    const advice = `choose another resp_port, or 0 for any that is free; who has it: ${whoHas(port)}`;
    return { subject: SUBJECT, state: 'problem', detail: `${where}: ${reasonOf(failure)}`, advice };
  }
  if (failure !== undefined) {
    const advice = `set resp_host to 127.0.0.1, to 0.0.0.0 for every address, or to one of this machine: ${ownAddresses()}`;
    return {
      subject: SUBJECT,
      state: 'problem',
      detail: `resp_host ${JSON.stringify(host)}: ${reasonOf(failure)}`,
      advice,
    };
  }
  const isTls = config.respTlsCertFile !== undefined;
  const plain = isLoopback(host)
    ? ''
    : ', for clients with the password, which travels unencrypted (resp_tls_cert_file)';
  const who = isTls ? ', for clients that speak TLS' : plain;
  return { subject: SUBJECT, state: 'ok', detail: `${where} can be listened on${who}` };
}

/** The problem that a node would have with the certificate of a door; undefined: none, or the door uses no TLS. */
export function tlsFinding(subject: string, door: TlsDoor, config: DoorTlsSettings): Finding | undefined {
  try {
    DoorTls.of(door, config, systemEnvironment())?.close();
    return undefined;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const advice = 'a node would not start with it: give it PEM files of a certificate that is valid, and of its key';
    return { subject, state: 'problem', detail: error.message, advice };
  }
}

/** Lowest port that needs no privilege. */
const UNPRIVILEGED_PORT_MIN = 1024;

/** The finding for a port on which this process may not listen. */
export function privileged(subject: string, key: string, endpoint: Endpoint): Finding {
  const detail = `${key} ${formatEndpoint(endpoint)}: the port needs a privilege that this process does not have`;
  const advice = `choose a port from ${UNPRIVILEGED_PORT_MIN} on, or grant CAP_NET_BIND_SERVICE`;
  return { subject, state: 'problem', detail, advice };
}

/** The command that shows which process uses a port. */
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

/** The system's error code if nothing can listen there, else undefined. The port is free again afterwards. */
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
