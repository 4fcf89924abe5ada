import {
  type BigIntStats,
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  renameSync,
  unlinkSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { isMainThread } from 'node:worker_threads';
import type { Environment } from '../base/environment/environment.js';
import { listenAt, type Server } from '../base/environment/network.js';
import { ConfigError } from '../base/errors.js';
import { CLIENT_SOCKET_PATH_MAX_BYTES } from '../base/limits.js';

/** Milliseconds to wait for a node at its socket before it counts as crashed. */
const PROBE_TIMEOUT_MS = 1_000;

/** Milliseconds between two probes of a socket at which nothing listens. */
const PROBE_PAUSE_MS = 250;

/** Reports that another node serves at the path of a socket. */
export class SocketTakenError extends ConfigError {
  constructor(key: string, path: string, options?: ErrorOptions) {
    super(
      `configuration key "${key}": another node serves clients at ${path}; choose another path, or end that node`,
      options,
    );
  }
}

/** A Unix socket that a node creates, and who may connect to it. */
export interface LocalSocket {
  /** The configuration key of the path, for messages. */
  readonly key: string;
  readonly path: string;
  /** Permission bits of the socket. */
  readonly mode: number;
  /** Group of the socket; undefined: the group of this process. */
  readonly gid?: number | undefined;
}

/**
 * Lets `server` listen at a Unix socket. The socket of a node that crashed is replaced; that of a running node is not
 * touched. Later errors of the server go to `onError`. Throws `ConfigError` if the path cannot be used.
 */
export async function listenLocally(
  server: Server,
  { key, path, mode, gid }: LocalSocket,
  { env, onError }: { readonly env: Environment; readonly onError: (error: Error) => void },
): Promise<void> {
  const bytes = Buffer.byteLength(path);
  // Node.js would silently listen at a truncated path.
  if (bytes > CLIENT_SOCKET_PATH_MAX_BYTES) {
    throw new ConfigError(
      `configuration key "${key}": a path of ${bytes} bytes; allowed are ${CLIENT_SOCKET_PATH_MAX_BYTES}`,
    );
  }
  await orConfigError(key, path, async () => {
    makeFolder(dirname(path));
    await takePath(key, path, env);
    await bind(server, path, onError).catch((cause: NodeJS.ErrnoException) => {
      throw cause.code === 'EADDRINUSE' ? new SocketTakenError(key, path, { cause }) : cause;
    });
    chmodSync(path, mode);
    if (gid !== undefined) chownSync(path, -1, gid);
  });
}

/** Runs a step of listening at a path. A failure becomes a `ConfigError` that names the key. */
export async function orConfigError(key: string, path: string, step: () => Promise<void> | void): Promise<void> {
  try {
    await step();
  } catch (cause) {
    if (cause instanceof ConfigError) throw cause;
    const reason = (cause as Error).message;
    throw new ConfigError(`configuration key "${key}": cannot listen at ${path}: ${reason}`, { cause });
  }
}

/** Removes the socket of a crashed node. Throws if a running node owns it. */
async function takePath(key: string, path: string, env: Environment): Promise<void> {
  const found = statusOf(path);
  if (found === undefined) return;
  if (!found.isSocket()) {
    throw new ConfigError(`configuration key "${key}": ${path} is there and is no socket; choose another path`);
  }
  if ((await isAnswering(path, env)) || !removeDead(path, found)) throw new SocketTakenError(key, path);
}

/**
 * Removes the socket at a path if it is still the one that was found. Returns false if another node has taken the path
 * in the meantime. To avoid a race, the socket is moved first, checked again, and put back if it is another one.
 */
function removeDead(path: string, found: BigIntStats): boolean {
  const present = statusOf(path);
  if (present === undefined) return true;
  if (!isSame(present, found)) return false;
  const moved = `${path}.${process.pid}`;
  renameSync(path, moved);
  const isDead = isSame(lstatSync(moved, { bigint: true }), found);
  if (!isDead) linkSync(moved, path);
  unlinkSync(moved);
  return isDead;
}

function statusOf(path: string): BigIntStats | undefined {
  return lstatSync(path, { bigint: true, throwIfNoEntry: false });
}

/**
 * File systems give the inode number of a removed file to the next one. A socket that got the same number has a later
 * time, because there is a pause between two probes.
 */
function isSame(one: BigIntStats, other: BigIntStats): boolean {
  return one.ino === other.ino && one.dev === other.dev && one.mtimeNs === other.mtimeNs;
}

function bind(server: Server, path: string, onError: (error: Error) => void): Promise<void> {
  // The mask keeps other users out until the permissions are set. Worker threads cannot change it.
  const before = isMainThread ? process.umask(0o177) : undefined;
  try {
    return listenAt(server, { path, exclusive: true }, onError);
  } finally {
    if (before !== undefined) process.umask(before);
  }
}

/**
 * Creates a folder and its parents. Node.js's own recursive mkdir does not end if a file system cannot contain such a
 * folder (/proc).
 */
function makeFolder(path: string): void {
  if (existsSync(path)) return;
  if (dirname(path) !== path) makeFolder(dirname(path));
  try {
    mkdirSync(path, { mode: 0o755 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/**
 * Whether a process accepts connections at a socket. A process that does not answer at all counts, too. A node listens
 * only a moment after it has created its socket, so a failed probe is repeated once.
 */
export async function isAnswering(path: string, env: Environment): Promise<boolean> {
  if (await accepts(path, env)) return true;
  await new Promise<void>((resolve) => env.clock.after(PROBE_PAUSE_MS, resolve, { keepAlive: true }));
  return accepts(path, env);
}

function accepts(path: string, { network, clock }: Environment): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = network.connect({ path });
    const end = (isThere: boolean): void => {
      cancelTimer();
      socket.destroy();
      resolve(isThere);
    };
    const cancelTimer = clock.after(PROBE_TIMEOUT_MS, () => end(true), { keepAlive: true });
    socket.once('connect', () => end(true));
    socket.once('error', ({ code }: NodeJS.ErrnoException) => end(code !== 'ECONNREFUSED' && code !== 'ENOENT'));
  });
}
