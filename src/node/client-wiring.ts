import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Environment } from '../base/environment/environment.js';
import type { Files } from '../base/environment/files.js';
import { ConfigError } from '../base/errors.js';
import { CLIENT_HOLDERS_MAX_COUNT } from '../base/limits.js';
import { ClientServer } from '../clients/client-server.js';
import { ClientNamespace, type FollowPages } from '../clients/requests/client-namespace.js';
import type { MeshCacheConfig } from '../config.js';
import type { DirectoryClient } from '../directory/client.js';
import type { Users } from '../net/users/users.js';
import type { Pinning } from '../store/holding/pinning.js';
import { StoredPages } from '../store/namespace/namespace-pages.js';
import type { PageStore } from '../store/page-store.js';
import type { DataLocation } from '../types.js';
import type { KeyEncoders } from './key-encoders.js';
import { packageVersion } from './reporting/package-version.js';
import type { StoreStats } from './reporting/store-stats.js';

export interface ClientWiringParts {
  readonly nodeId: string;
  readonly directory: Pick<DirectoryClient, 'find'>;
  readonly pages: PageStore;
  readonly pinning: Pick<Pinning, 'client'>;
  readonly keyEncoders: KeyEncoders;
  /** The events of this node's pages. */
  readonly follow: FollowPages;
  readonly stats: () => StoreStats;
  /** Knows when this process was not running. */
  readonly pauses: PauseWatch;
  /** Divides the time of the main loop between the clients of all doors. */
  readonly turns: WorkTurns;
  readonly users: Users;
  readonly env: Environment;
}

/** Opens the socket for processes of this host, if one is configured. Throws `ConfigError`. */
export async function openClientSocket(
  config: MeshCacheConfig,
  parts: ClientWiringParts,
): Promise<ClientServer | undefined> {
  const { nodeId, pages, pinning, keyEncoders, stats, pauses, turns, env } = parts;
  const { clientSocket: path, clientSocketMode: mode, clientSocketGroup: group } = config;
  if (path === undefined) return undefined;
  const gid = group === undefined ? undefined : groupIdOf(group, env.files);
  const namespaceParts = { holdersOf: (keys: readonly string[]) => pageHolders(parts, keys), follow: parts.follow };
  return ClientServer.listen(
    { path, mode: Number.parseInt(mode, 8), gid, regionsMaxBytes: config.clientRegionsMax },
    {
      env,
      pauses,
      turns,
      users: parts.users,
      nodeId,
      packageVersion: packageVersion(),
      ownTag: keyEncoders.own.namespace.tag ?? '',
      namespaceOf: (namespace, process) => {
        const encoder = keyEncoders.of(namespace);
        return new ClientNamespace(new StoredPages(pages, encoder, pinning.client(process)), namespaceParts);
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

/** One list a key: all nodes that have the page as far as the directory knows, this one first. */
async function pageHolders(
  { nodeId: ownId, directory, pages }: ClientWiringParts,
  keys: readonly string[],
): Promise<(readonly DataLocation[])[]> {
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
      avoided,
    );
  }
  return holders;
}

/** The id of a group that is given as a number, or by its name in /etc/group. Throws `ConfigError`. */
export function groupIdOf(group: string, files: Files): number {
  if (/^\d+$/.test(group)) return Number(group);
  const lines = files.readFileSync('/etc/group').toString().split('\n');
  const line = lines.find((text) => text.startsWith(`${group}:`));
  if (line !== undefined) return Number(line.split(':')[2]);
  throw new ConfigError(
    `configuration key "client_socket_group": there is no group ${JSON.stringify(group)} on this machine; give a name from /etc/group, or a number`,
  );
}
