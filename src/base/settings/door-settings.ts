import { CLIENT_REGIONS_MIN_BYTES, CLIENTS_REGIONS_MAX_BYTES } from '../limits.js';
import { type Field, group, permissions, size, socketPath, text } from './fields.js';

/** Settings of a node's doors: its sockets and ports for programs that are not nodes. */
export interface DoorSettings extends ClientSettings, DoorTlsSettings {}

/** TLS settings of the port for Redis clients and of the metrics server. */
export interface DoorTlsSettings {
  /**
   * PEM files. With certificate and key, Redis clients must use TLS; with the CA file, they must also present a
   * certificate that it has signed.
   */
  readonly respTlsCertFile: string | undefined;
  readonly respTlsKeyFile: string | undefined;
  readonly respTlsCaFile: string | undefined;
  /**
   * PEM files. With certificate and key, readers of the metrics server must use TLS; with the CA file, everything but
   * `/healthz` and the empty page needs a certificate that it has signed.
   */
  readonly metricsTlsCertFile: string | undefined;
  readonly metricsTlsKeyFile: string | undefined;
  readonly metricsTlsCaFile: string | undefined;
}

/** A port for programs that are not nodes, which may use TLS: the port for Redis clients, or the metrics server. */
export type TlsDoor = 'resp' | 'metrics';
const TLS_DOORS: readonly TlsDoor[] = ['resp', 'metrics'];

/** The configured file paths of a door. */
export function doorFilesOf(door: TlsDoor, settings: DoorTlsSettings) {
  return door === 'resp'
    ? { certFile: settings.respTlsCertFile, keyFile: settings.respTlsKeyFile, caFile: settings.respTlsCaFile }
    : { certFile: settings.metricsTlsCertFile, keyFile: settings.metricsTlsKeyFile, caFile: settings.metricsTlsCaFile };
}

/** Parsers of these settings. */
export const DOOR_TLS_FIELDS: Readonly<Record<string, Field>> = {
  resp_tls_cert_file: text('the path of a PEM file', undefined),
  resp_tls_key_file: text('the path of a PEM file', undefined),
  resp_tls_ca_file: text('the path of a PEM file', undefined),
  metrics_tls_cert_file: text('the path of a PEM file', undefined),
  metrics_tls_key_file: text('the path of a PEM file', undefined),
  metrics_tls_ca_file: text('the path of a PEM file', undefined),
};

/**
 * Explains what is wrong with a combination of settings that are each valid; undefined: nothing. `spell` writes a key
 * as the configuration does. Files are read when the node starts.
 */
export function doorTlsFault(settings: DoorTlsSettings, spell: (key: string) => string): string | undefined {
  for (const door of TLS_DOORS) {
    const { certFile, keyFile, caFile } = doorFilesOf(door, settings);
    const isNone = (certFile ?? keyFile ?? caFile) === undefined;
    if (isNone || (certFile !== undefined && keyFile !== undefined)) continue;
    const names = ['cert', 'key'].map((name) => `"${spell(`${door}_tls_${name}_file`)}"`);
    return `configuration keys ${names.join(' and ')}: TLS needs both of them; give both, or leave out all of ${spell(`${door}_tls_cert_file`)}, ${spell(`${door}_tls_key_file`)} and ${spell(`${door}_tls_ca_file`)}`;
  }
  return undefined;
}

/** Settings of the client socket for processes of this host, of their memory, and of the users of the node. */
interface ClientSettings {
  /** Path of a Unix socket for processes of this host; undefined: none. */
  readonly clientSocket: string | undefined;
  /** Permission bits of the client socket, four octal digits. */
  readonly clientSocketMode: string;
  /** Group that owns the client socket, by name or number; undefined: that of the process. */
  readonly clientSocketGroup: string | undefined;
  /** Bytes of memory that the node maps for one client, at most. */
  readonly clientRegionsMax: number;
  /** Path of a JSON file with the users of the node and their rights; undefined: everybody may do everything. */
  readonly usersFile: string | undefined;
}

/** Parsers of these settings. */
export const CLIENT_FIELDS: Readonly<Record<string, Field>> = {
  client_socket: socketPath(),
  client_socket_mode: permissions('0600'),
  client_socket_group: group(),
  client_regions_max: size(CLIENT_REGIONS_MIN_BYTES, CLIENTS_REGIONS_MAX_BYTES, '4tb'),
  users_file: text('the path of a file', undefined),
};
