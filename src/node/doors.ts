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
}

/** What the doors of a node are made of. */
export type DoorParts = ClientWiringParts & RespWiringParts;

/** Opens the doors that are configured. If one cannot be opened, none is. Throws `ConfigError`. */
export async function openDoors(config: MeshCacheConfig, parts: DoorParts): Promise<Doors> {
  const clients = await openClientSocket(config, parts);
  try {
    return { clients, resp: await openRespServer(config, parts) };
  } catch (error) {
    await clients?.close();
    throw error;
  }
}

/** Ends what is in progress at the doors, and closes them. */
export async function closeDoors(doors: Doors | undefined): Promise<void> {
  await Promise.all([doors?.clients?.close(), doors?.resp?.close()]);
}
