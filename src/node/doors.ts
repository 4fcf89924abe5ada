import type { HybridClock } from '../base/concurrency/hybrid-clock.js';
import { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Environment } from '../base/environment/environment.js';
import { RESP_PASSWORD_MAX_CHARACTERS } from '../base/limits.js';
import { fileFault, readNamedFile, warnIfReadable } from '../base/settings/named-file.js';
import type { ClientServer } from '../clients/client-server.js';
import type { MeshCacheConfig } from '../config.js';
import { DoorTls } from '../net/credentials/door-tls.js';
import { isLoopbackHost } from '../net/loopback.js';
import type { Users } from '../net/users.js';
import { RespServer } from '../resp/resp-server.js';
import { StoredPages } from '../store/namespace/namespace-pages.js';
import { wholeNamespace } from '../store/namespace/whole-namespace.js';
import type { PageStore } from '../store/page-store.js';
import { type ClientWiringParts, groupIdOf, openClientSocket } from './client-wiring.js';
import type { KeyEncoders } from './key-encoders.js';
import { packageVersion } from './reporting/package-version.js';
import type { StoreStats } from './reporting/store-stats.js';

interface RespWiringParts {
  readonly nodeId: string;
  readonly pages: PageStore;
  readonly keyEncoders: KeyEncoders;
  readonly stats: () => StoreStats;
  /** Knows when this process was not running. */
  readonly pauses: PauseWatch;
  /** Divides the time of the main loop between the clients of all doors. */
  readonly turns: WorkTurns;
  readonly users: Users;
  /** Tells the date by which this node goes. */
  readonly versions: Pick<HybridClock, 'dateMs'>;
  readonly env: Environment;
}

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

/** Opens the door for Redis clients, if one is configured. Throws `ConfigError`. */
async function openRespServer(
  config: MeshCacheConfig,
  { nodeId, pages, keyEncoders, stats, pauses, turns, users, versions, env }: RespWiringParts,
): Promise<RespServer | undefined> {
  const { respPort: port, respHost: host, respSocket: path, clientSocketMode: mode, clientSocketGroup: group } = config;
  if (port === undefined && path === undefined) return undefined;
  const gid = path === undefined || group === undefined ? undefined : groupIdOf(group, env.files);
  return RespServer.listen(
    {
      endpoint: port === undefined ? undefined : { host, port },
      socket: path === undefined ? undefined : { path, mode: Number.parseInt(mode, 8), gid },
      password: passwordOf(config, env) ?? secretOfNobody(config, env),
      tls: port === undefined ? undefined : DoorTls.of('resp', config, env),
    },
    {
      env,
      pauses,
      turns,
      dateMs: () => versions.dateMs(),
      users: {
        users,
        nodeTag: config.respNamespace,
        pagesOf: (tag) => new StoredPages(pages, keyEncoders.of(wholeNamespace({ tag }))),
      },
      facts: {
        nodeId,
        packageVersion: packageVersion(),
        processId: env.host.processId,
        poolUsedBytes: () => stats().poolUsedBytes,
        poolCapacityBytes: () => config.globalSegmentSize,
        poolEntries: () => stats().poolEntries,
      },
    },
  );
}

/**
 * A port that other hosts reach is for users who show a token, unless there is a password, or certificates stand for
 * it: nobody knows this one.
 */
function secretOfNobody(config: MeshCacheConfig, { random }: Environment): string | undefined {
  const { respPort, respHost, respTlsCaFile } = config;
  const isGuarded = respPort === undefined || isLoopbackHost(respHost) || respTlsCaFile !== undefined;
  return isGuarded ? undefined : Buffer.from(random.bytes(32)).toString('base64url');
}

function passwordOf({ respPassword, respPasswordFile: path }: MeshCacheConfig, env: Environment): string | undefined {
  if (path === undefined) return respPassword;
  const key = 'resp_password_file';
  const password = readNamedFile(key, path, env.files).toString().trim();
  warnIfReadable(key, path, env);
  if (password.length <= RESP_PASSWORD_MAX_CHARACTERS && /^[\x21-\x7e]+$/.test(password)) return password;
  const allowed = `one line of 1 to ${RESP_PASSWORD_MAX_CHARACTERS} visible characters without spaces`;
  throw fileFault(key, path, `has no password; allowed is ${allowed}`);
}
