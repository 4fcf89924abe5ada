import { CLIENT_REGIONS_MIN_BYTES, CLIENTS_REGIONS_MAX_BYTES } from '../limits.js';
import { type Field, group, permissions, size, socketPath, text } from './fields.js';

/** The settings of the socket for processes of this host and of their memory, and of who may use the node. */
export interface ClientSettings {
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
