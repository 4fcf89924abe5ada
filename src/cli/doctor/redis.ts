import { formatEndpoint } from '../../base/environment/network.js';
import type { DoorTlsSettings } from '../../base/settings/door-tls-settings.js';
import type { MeshCacheConfig } from '../../config.js';
import { isLoopback } from '../settings/metrics-url.js';
import { tlsFinding } from './door-certificates.js';
import type { Finding } from './finding.js';
import { listenFailure, ownAddresses, privileged, reasonOf, whoHas } from './listening.js';

const SUBJECT = 'Redis clients';

/** The part of the configuration that is about the door for Redis clients. */
export type RedisConfig = Pick<MeshCacheConfig, 'respPort' | 'respHost' | 'respSocket'> & DoorTlsSettings;

/**
 * Checks whether the port for Redis clients can be listened on. A door without a password beyond loopback has been
 * refused with the configuration.
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
