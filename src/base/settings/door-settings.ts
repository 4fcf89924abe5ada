import { CLIENT_REGIONS_MIN_BYTES, CLIENTS_REGIONS_MAX_BYTES } from '../limits.js';
import { type Field, group, permissions, size, socketPath, text } from './fields.js';

/** The settings of the doors of a node: its sockets and ports for programs that are no nodes. */
export interface DoorSettings extends ClientSettings, DoorTlsSettings {}

/** The settings of TLS at the port for Redis clients and at the metrics server. */
export interface DoorTlsSettings {
  /**
   * PEM files; with the first two Redis clients must speak TLS, and with the third they must show a certificate that it
   * has signed.
   */
  readonly respTlsCertFile: string | undefined;
  readonly respTlsKeyFile: string | undefined;
  readonly respTlsCaFile: string | undefined;
  /**
   * PEM files; with the first two readers of the metrics server must speak TLS, and with the third all but `/healthz`
   * and the empty page needs a certificate that it has signed.
   */
  readonly metricsTlsCertFile: string | undefined;
  readonly metricsTlsKeyFile: string | undefined;
  readonly metricsTlsCaFile: string | undefined;
}

/**
 * A port for programs that are no nodes, which may speak TLS: the one for Redis clients, or that of the metrics server.
 */
export type TlsDoor = 'resp' | 'metrics';
const TLS_DOORS: readonly TlsDoor[] = ['resp', 'metrics'];

/** The paths that are set for a door. */
export function doorFilesOf(door: TlsDoor, settings: DoorTlsSettings) {
  return door === 'resp'
    ? { certFile: settings.respTlsCertFile, keyFile: settings.respTlsKeyFile, caFile: settings.respTlsCaFile }
    : { certFile: settings.metricsTlsCertFile, keyFile: settings.metricsTlsKeyFile, caFile: settings.metricsTlsCaFile };
}

/** How the values of these settings are read. */
export const DOOR_TLS_FIELDS: Readonly<Record<string, Field>> = {
  resp_tls_cert_file: text('the path of a PEM file', undefined),
  resp_tls_key_file: text('the path of a PEM file', undefined),
  resp_tls_ca_file: text('the path of a PEM file', undefined),
  metrics_tls_cert_file: text('the path of a PEM file', undefined),
  metrics_tls_key_file: text('the path of a PEM file', undefined),
  metrics_tls_ca_file: text('the path of a PEM file', undefined),
};

/**
 * What is wrong with settings that are each allowed by itself; undefined: nothing. `spell` writes a key as the
 * configuration does. Files are read when the node starts.
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

/** The settings of the socket for processes of this host and of their memory, and of who may use the node. */
interface ClientSettings {
  /** Path of a Unix socket for processes of this host; undefined: none. */
  readonly clientSocket: string | undefined;
  /** Permission bits of the client socket, four octal digits. */
  readonly clientSocketMode: string;
  /** Group that owns the client socket, by name or number; undefined: that of the process. */
  readonly clientSocketGroup: string | undefined;
  /** Bytes of memory that the node maps for one client. */
  readonly clientRegionsMax: number;
  /** Path of a JSON file with the users of the node and their rights; undefined: everybody may do everything. */
  readonly usersFile: string | undefined;
}

/** How the values of these settings are read. */
export const CLIENT_FIELDS: Readonly<Record<string, Field>> = {
  client_socket: socketPath(),
  client_socket_mode: permissions('0600'),
  client_socket_group: group(),
  client_regions_max: size(CLIENT_REGIONS_MIN_BYTES, CLIENTS_REGIONS_MAX_BYTES, '4tb'),
  users_file: text('the path of a file', undefined),
};
