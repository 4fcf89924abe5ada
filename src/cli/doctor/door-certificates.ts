import { ConfigError } from '../../base/errors.js';
import type { DoorTlsSettings, TlsDoor } from '../../base/settings/door-tls-settings.js';
import { DoorTls } from '../../net/credentials/door-tls.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { Finding } from './finding.js';

/** The problem that a node would have with the certificate of a door; undefined: none, or the door speaks no TLS. */
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
