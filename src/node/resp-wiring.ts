import type { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Environment } from '../base/environment/environment.js';
import { RESP_PASSWORD_MAX_CHARACTERS } from '../base/limits.js';
import { fileFault, readNamedFile, warnIfReadable } from '../base/settings/named-file.js';
import type { MeshCacheConfig } from '../config.js';
import { DoorTls } from '../net/credentials/door-tls.js';
import { isLoopbackHost } from '../net/loopback.js';
import type { Users } from '../net/users/users.js';
import { RespServer } from '../resp/resp-server.js';
import { StoredPages } from '../store/namespace/namespace-pages.js';
import { wholeNamespace } from '../store/namespace/whole-namespace.js';
import type { PageStore } from '../store/page-store.js';
import { groupIdOf } from './client-wiring.js';
import type { KeyEncoders } from './key-encoders.js';
import { packageVersion } from './reporting/package-version.js';
import type { StoreStats } from './reporting/store-stats.js';

export interface RespWiringParts {
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

/** Opens the door for Redis clients, if one is configured. Throws `ConfigError`. */
export async function openRespServer(
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

/** A port that other hosts reach is for users who show a token, unless there is a password, or certificates stand for it: nobody knows this one. */
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
