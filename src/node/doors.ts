import { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { ClientServer } from '../clients/client-server.js';
import type { MeshCacheConfig } from '../config.js';
import type { RespServer } from '../resp/resp-server.js';
import { type ClientWiringParts, openClientSocket } from './client-wiring.js';
import { openRespServer, type RespWiringParts } from './resp-wiring.js';

/** The ways by which programs reach a node that are not nodes themselves. */
export interface Doors {
  /** The socket for processes of this host; undefined without one. */
  readonly clients: ClientServer | undefined;
  /** The door for Redis clients; undefined without one. */
  readonly resp: RespServer | undefined;
  /** What both go by when the process was not running; undefined without a door. */
  readonly pauses: PauseWatch | undefined;
}

/** What the doors of a node are made of. */
export type DoorParts = Omit<ClientWiringParts & RespWiringParts, 'pauses'>;

/** Opens the doors that are configured. If one cannot be opened, none is. Throws `ConfigError`. */
export async function openDoors(config: MeshCacheConfig, given: DoorParts): Promise<Doors> {
  const { clientSocket, respPort, respSocket } = config;
  if ([clientSocket, respPort, respSocket].every((door) => door === undefined)) {
    return { clients: undefined, resp: undefined, pauses: undefined };
  }
  const pauses = new PauseWatch(given.env.clock);
  const parts = { ...given, pauses };
  let clients: ClientServer | undefined;
  try {
    clients = await openClientSocket(config, parts);
    return { clients, resp: await openRespServer(config, parts), pauses };
  } catch (error) {
    await closeDoors({ clients, resp: undefined, pauses });
    throw error;
  }
}

/** Ends what is in progress at the doors, and closes them. */
export async function closeDoors(doors: Doors | undefined): Promise<void> {
  doors?.pauses?.close();
  await Promise.all([doors?.clients?.close(), doors?.resp?.close()]);
}
