import { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Environment } from '../base/environment/environment.js';
import type { Files } from '../base/environment/files.js';
import { ConfigError } from '../base/errors.js';
import { CLIENT_HOLDERS_MAX_COUNT, RESP_PASSWORD_MAX_CHARACTERS } from '../base/limits.js';
import { fileFault, readNamedFile, warnIfReadable } from '../base/settings/named-file.js';
import { ClientServer } from '../clients/client-server.js';
import { ClientNamespace } from '../clients/requests/client-namespace.js';
import type { MeshCacheConfig } from '../config.js';
import { DoorTls } from '../net/credentials/door-tls.js';
import { isLoopbackHost } from '../net/loopback.js';
import type { Users } from '../net/users.js';
import { RespServer } from '../resp/resp-server.js';
import type { FollowOptions, PageEvents } from '../store/events/page-events.js';
import type { Pinning } from '../store/holding/pinning.js';
import type { Prefetching } from '../store/holding/prefetching.js';
import { StoredPages } from '../store/namespace/namespace-pages.js';
import { wholeNamespace } from '../store/namespace/node-namespace.js';
import type { PageStore } from '../store/page-store.js';
import type { SessionHints } from '../store/sessions/session-hints.js';
import type { DataLocation } from '../types.js';
import type { KeyEncoders } from './key-encoders.js';
import { packageVersion } from './reporting/package-version.js';
import type { StoreStats } from './reporting/store-stats.js';
import type { NodeRuntime } from './runtime/node-runtime.js';

/** The doors through which programs that are not nodes reach this node. */
export interface Doors {
  /** The socket for processes of this host; undefined without one. */
  readonly clients: ClientServer | undefined;
  /** The door for Redis clients; undefined without one. */
  readonly resp: RespServer | undefined;
  /** Pause detector shared by both doors; undefined without a door. */
  readonly pauses: PauseWatch | undefined;
}

/** Parts of a node that its doors give access to. */
export interface DoorParts {
  readonly config: MeshCacheConfig;
  readonly runtime: NodeRuntime;
  readonly pages: PageStore;
  readonly pinning: Pinning;
  readonly prefetching: Prefetching;
  readonly sessions: SessionHints;
  readonly events: PageEvents;
  readonly keyEncoders: KeyEncoders;
  readonly stats: () => StoreStats;
  /** Divides the time of the main loop between the clients of all doors. */
  readonly turns: WorkTurns;
  readonly users: Users;
  readonly env: Environment;
}

/** Opens the configured doors, or none if one of them cannot be opened. Throws `ConfigError`. */
export async function openDoors(given: DoorParts): Promise<Doors> {
  const { config } = given;
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
export async function closeDoors(doors?: Doors): Promise<void> {
  doors?.pauses?.close();
  await Promise.all([doors?.clients?.close(), doors?.resp?.close()]);
}

/** Opens the door for Redis clients, if one is configured. Throws `ConfigError`. */
async function openRespServer(
  config: MeshCacheConfig,
  { runtime, pages, keyEncoders, stats, pauses, turns, users, env }: DoorParts & { readonly pauses: PauseWatch },
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
      dateMs: () => runtime.versions.dateMs(),
      users: {
        users,
        nodeTag: config.respNamespace,
        pagesOf: (tag) => new StoredPages(pages, keyEncoders.of(wholeNamespace({ tag }))),
      },
      facts: {
        nodeId: runtime.nodeId,
        packageVersion: packageVersion(),
        processId: env.host.processId,
        poolUsedBytes: () => stats().poolUsedBytes,
        poolCapacityBytes: () => config.globalSegmentSize,
        poolEntries: () => stats().poolEntries,
      },
    },
  );
}

/** Opens the socket for processes of this host, if one is configured. Throws `ConfigError`. */
async function openClientSocket(
  config: MeshCacheConfig,
  parts: DoorParts & { readonly pauses: PauseWatch },
): Promise<ClientServer | undefined> {
  const { runtime, pages, pinning, prefetching, sessions, events, keyEncoders, stats, pauses, turns, env } = parts;
  const { clientSocket: path, clientSocketMode: mode, clientSocketGroup: group } = config;
  if (path === undefined) return undefined;
  const gid = group === undefined ? undefined : groupIdOf(group, env.files);
  const namespaceParts = {
    holdersOf: (keys: readonly string[]) => pageHolders(parts, keys),
    follow: (options: FollowOptions) => events.follow(options),
  };
  return ClientServer.listen(
    { path, mode: Number.parseInt(mode, 8), gid, regionsMaxBytes: config.clientRegionsMax },
    {
      env,
      pauses,
      turns,
      users: parts.users,
      nodeId: runtime.nodeId,
      packageVersion: packageVersion(),
      ownTag: keyEncoders.own.namespace.tag ?? '',
      namespaceOf: (namespace, sharer) => {
        const care = { pins: pinning.client(sharer.one), pinning, prefetching: prefetching.client(sharer), sessions };
        return new ClientNamespace(new StoredPages(pages, keyEncoders.of(namespace), care), namespaceParts);
      },
      nodeStats: () => {
        const { poolCapacityBytes, poolUsedBytes, poolEntries, pinnedEntries, pinnedBytes, members } = stats();
        return {
          pool_capacity_bytes: poolCapacityBytes,
          pool_used_bytes: poolUsedBytes,
          pool_entries: poolEntries,
          pool_pinned_entries: pinnedEntries,
          pool_pinned_bytes: pinnedBytes,
          members,
        };
      },
    },
  );
}

/** For each key, all nodes known to the directory to have the page, this one first. */
async function pageHolders(
  { runtime, pages }: DoorParts,
  keys: readonly string[],
): Promise<(readonly DataLocation[])[]> {
  const { nodeId: ownId, directory } = runtime;
  const holders = pages.statements.locationsOf(keys).map((own) => (own === null ? [] : [own]));
  const known = new Set([ownId]);
  let isMore = true;
  for (let round = 0; isMore && round < CLIENT_HOLDERS_MAX_COUNT; round++) {
    isMore = false;
    const avoided = [...known];
    await directory.find(
      keys,
      (found) => {
        for (const [index, location] of found) {
          const list = holders[index] as DataLocation[];
          if (location.nodeId === ownId || list.some(({ nodeId }) => nodeId === location.nodeId)) continue;
          list.push(location);
          known.add(location.nodeId);
          isMore = true;
        }
      },
      { avoided },
    );
  }
  return holders;
}

/** The id of a group given as a number, or by its name in /etc/group. Throws `ConfigError`. */
export function groupIdOf(group: string, files: Files): number {
  if (/^\d+$/.test(group)) return Number(group);
  const lines = files.readFileSync('/etc/group').toString().split('\n');
  const line = lines.find((text) => text.startsWith(`${group}:`));
  if (line !== undefined) return Number(line.split(':')[2]);
  throw new ConfigError(
    `configuration key "client_socket_group": there is no group ${JSON.stringify(group)} on this machine; give a name from /etc/group, or a number`,
  );
}

/**
 * A random password that nobody knows, for a port that other hosts can reach and that neither a password nor
 * certificates protect: only users with a token can then use it. Undefined if none is needed.
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
