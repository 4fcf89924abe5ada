import { type Command, Option } from 'commander';
import { CLIENT_SOCKET_PATH_MAX_BYTES } from '../../base/limits.js';
import type { Configuration } from './configuration.js';

/** Path of the client socket; false: none; true: the configured one, or one in the run-time folder. */
export type ClientSocketOption = string | boolean;

/** Adds the options `--client-socket` and `--no-client-socket`. */
export function addClientSocketOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--client-socket <path>',
        'Unix socket for the processes of this host; without it one in the run-time folder, which is printed',
      ).default(true, 'in the run-time folder'),
    )
    .option('--no-client-socket', 'do not let processes attach to this node');
}

/** The configuration with the option applied. */
export function withClientSocketOption(configuration: Configuration, option: ClientSocketOption): Configuration {
  const { mapping, origins } = configuration;
  if (option === true) return configuration;
  if (!option) return { ...configuration, mapping: { ...mapping, client_socket: null } };
  const given = new Map(origins).set('client_socket', '--client-socket');
  return { ...configuration, mapping: { ...mapping, client_socket: option }, origins: given };
}

/** Whether the kernel accepts the path, and the slightly longer path of the socket of descriptors. */
export function isSocketPath(path: string): boolean {
  return Buffer.byteLength(path) <= CLIENT_SOCKET_PATH_MAX_BYTES;
}
