import { accessSync, constants, lstatSync, readFileSync, type Stats, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { ConfigError } from '../../base/errors.js';
import { CLIENT_REGIONS_MAX_COUNT, CLIENT_SOCKET_PATH_MAX_BYTES, CLIENTS_MAX_COUNT } from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import { defaultClientSocket, distrustOf, ownRuntimeFolder } from '../../clients/socket-path.js';
import type { MeshCacheConfig } from '../../config.js';
import type { NativeLoad } from '../../native/addon/loader.js';
import { textOf } from '../../native/devices/kernel-files.js';
import { LOCKED_MEMORY_ADVICE, lockableBytes, lockedMemoryText } from '../../native/devices/locked-memory.js';
import type { RdmaHost } from '../../native/devices/rdma-devices.js';
import { rdmaSupport } from '../../native/devices/rdma-support.js';
import { isAnswering } from '../../net/local-socket.js';
import { groupIdOf } from '../../node/doors.js';
import { systemFiles } from '../../system/files/system-files.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { isSocketPath } from '../settings/configuration.js';
import type { Finding } from './finding.js';

/* Checks of the client socket and of clients' memory. Nothing is created or left behind. */

/** File descriptors that a node needs for itself and for a few hundred other nodes. */
const NODE_FILES_COUNT = 1024;
/** File descriptors of each client: one for the connection and one for the memory. */
const CLIENT_FILES_COUNT = 2;
const GROUP_BITS = 0o060;
const OTHERS_BITS = 0o006;

/** The user and the groups that will create the socket. */
interface Identity {
  readonly uid: number;
  /** All groups; the group of new files is first. */
  readonly gids: readonly number[];
}

/** The identity of this process. */
function ownIdentity(): Identity {
  return { uid: process.geteuid?.() ?? 0, gids: [process.getegid?.() ?? 0, ...(process.getgroups?.() ?? [])] };
}

export type ClientSocketConfig = Pick<MeshCacheConfig, 'clientSocket' | 'clientSocketMode' | 'clientSocketGroup'>;

/**
 * Checks the path of the socket, whether it can be created, and who could connect. `isWanted`: false with
 * `--no-client-socket`.
 */
export async function checkClientSocket(
  config: ClientSocketConfig,
  isWanted: boolean,
  identity = ownIdentity(),
): Promise<Finding[]> {
  const subject = 'client socket';
  if (!isWanted) return [{ subject, state: 'n/a', detail: 'none (--no-client-socket)' }];
  const isDefault = config.clientSocket === undefined;
  const path = resolve(config.clientSocket ?? defaultClientSocket(ownRuntimeFolder()));
  if (!isSocketPath(path)) {
    const detail = `${path} is longer than ${CLIENT_SOCKET_PATH_MAX_BYTES} bytes; the kernel takes 108 for it and ".fds" behind it`;
    const advice = 'choose a shorter path: --client-socket or client_socket';
    return [{ subject, state: isDefault ? 'warning' : 'problem', detail, advice }];
  }
  const group = checkGroup(config, identity);
  const findings = [await checkPath(path, isDefault), ...group.findings];
  const mode = Number.parseInt(config.clientSocketMode, 8);
  return [...findings, ...checkFolders(path, { mode, gid: group.gid ?? (identity.gids[0] as number) }, identity)];
}

async function checkPath(path: string, isDefault: boolean): Promise<Finding> {
  const subject = 'client socket';
  let found: Stats | undefined;
  try {
    const distrust = isDefault ? distrustOf(path, ownRuntimeFolder()) : '';
    if (distrust !== '') {
      const advice =
        'remove the folder, or choose a path: --client-socket or client_socket; a node has no client socket there';
      return { subject, state: 'warning', detail: distrust, advice };
    }
    found = lstatSync(path, { throwIfNoEntry: false });
  } catch (error) {
    return { subject, state: 'problem', detail: (error as Error).message, advice: 'choose another path' };
  }
  if (found === undefined) return { subject, state: 'ok', detail: `${path} is free` };
  if (!found.isSocket()) {
    const detail = `${path} is there and is no socket`;
    return { subject, state: 'problem', detail, advice: 'choose another path, or remove the file' };
  }
  if (!(await isAnswering(path, systemEnvironment()))) {
    return { subject, state: 'ok', detail: `${path} was left by a node that has ended; a new one takes its place` };
  }
  if (isDefault) {
    const detail = `a node serves clients at ${path}; a further one takes the next free name beside it`;
    return { subject, state: 'ok', detail };
  }
  const detail = `another node serves clients at ${path}`;
  return { subject, state: 'problem', detail, advice: 'choose another path, or end that node' };
}

/** Whether the group exists and this process may give a file to it. */
function checkGroup(
  { clientSocketMode, clientSocketGroup: name }: ClientSocketConfig,
  { uid, gids }: Identity,
): { readonly gid?: number; readonly findings: readonly Finding[] } {
  const subject = 'client group';
  const mode = Number.parseInt(clientSocketMode, 8);
  if (name === undefined) return { findings: [] };
  let gid: number;
  try {
    gid = groupIdOf(name, systemFiles);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const advice = 'make the group (`groupadd --system NAME`), or choose one of /etc/group';
    return { findings: [{ subject, state: 'problem', detail: error.message, advice }] };
  }
  if (uid !== 0 && !gids.includes(gid)) {
    const detail = `this process is not in the group ${name} (${gid}), and may not give the socket to it`;
    const advice = `run the node as a user of that group (\`usermod -aG ${name} USER\`, SupplementaryGroups= in a systemd unit)`;
    return { gid, findings: [{ subject, state: 'problem', detail, advice }] };
  }
  if ((mode & GROUP_BITS) !== GROUP_BITS) {
    const detail = `client_socket_mode ${clientSocketMode} does not let the group ${name} connect`;
    return { gid, findings: [{ subject, state: 'warning', detail, advice: 'set client_socket_mode to 0660' }] };
  }
  return { gid, findings: [{ subject, state: 'ok', detail: `${name} (${gid})` }] };
}

/**
 * Checks that this process can create the socket, that no one else can replace it, and that the clients admitted by its
 * mode can reach it.
 */
function checkFolders(
  path: string,
  access: { readonly mode: number; readonly gid: number },
  identity: Identity,
): Finding[] {
  const subject = 'client folder';
  const folder = nearestFolder(dirname(path));
  const made = folder.path === dirname(path) ? '' : `${dirname(path)} is not there yet; `;
  if (!folder.stats.isDirectory()) {
    const detail = `${folder.path} is no folder`;
    return [{ subject, state: 'problem', detail, advice: 'choose another path for the socket' }];
  }
  try {
    accessSync(folder.path, constants.W_OK | constants.X_OK);
  } catch (error) {
    const detail = `${made}${folder.path}: ${(error as Error).message}`;
    const advice = 'let the user of the node write there, or choose another path: --client-socket or client_socket';
    return [{ subject, state: 'problem', detail, advice }];
  }
  const doubts = [...replacers(folder, identity), ...closedTo(folder.path, access)];
  if (doubts.length > 0) return doubts.map((doubt) => ({ subject, state: 'warning', ...doubt }));
  return [{ subject, state: 'ok', detail: `${made}${folder.path} can be written` }];
}

interface Doubt {
  readonly detail: string;
  readonly advice: string;
}

/** Doubts about other users who could replace the socket with their own. */
function replacers({ path, stats }: Folder, { uid }: Identity): Doubt[] {
  const advice = 'use a folder that only the user of the node can write, such as one below /run';
  if (stats.uid !== uid && stats.uid !== 0) {
    return [{ detail: `${path} belongs to another user (${stats.uid}), who may put another socket there`, advice }];
  }
  const isSticky = (stats.mode & 0o1000) !== 0;
  if ((stats.mode & 0o002) === 0 || isSticky) return [];
  return [{ detail: `everybody may write in ${path}, and put another socket there`, advice }];
}

/** The first folder, going up, that keeps out clients admitted by the socket's mode. */
function closedTo(folder: string, { mode, gid }: { readonly mode: number; readonly gid: number }): Doubt[] {
  const letsOthers = (mode & OTHERS_BITS) === OTHERS_BITS;
  const letsGroup = (mode & GROUP_BITS) === GROUP_BITS;
  if (!letsOthers && !letsGroup) return [];
  for (let path = folder; ; path = dirname(path)) {
    const stats = statSync(path);
    const opensOthers = (stats.mode & 0o001) !== 0;
    const opensGroup = stats.gid === gid ? (stats.mode & 0o010) !== 0 : opensOthers;
    if (letsOthers ? !opensOthers : !opensGroup) {
      const who = letsOthers ? 'everybody' : `the group ${gid}`;
      const detail = `client_socket_mode lets ${who} connect, and ${path} lets them not in`;
      return [
        { detail, advice: `${letsOthers ? 'chmod o+x' : 'chmod g+x, and chgrp,'} that folder, or choose another path` },
      ];
    }
    if (dirname(path) === path) return [];
  }
}

interface Folder {
  readonly path: string;
  readonly stats: Stats;
}

/** The folder itself, or the nearest existing one above it. */
function nearestFolder(wanted: string): Folder {
  for (let path = wanted; ; path = dirname(path)) {
    const stats = statOf(path);
    if (stats !== undefined) return { path, stats };
  }
}

/** The status of a file; undefined if it does not exist or its parent is a file. */
function statOf(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return undefined;
    throw error;
  }
}

/**
 * Checks how clients' pages can travel, and whether the limits leave room for clients' memory. `proc`: the folder in
 * which the kernel reports limits.
 */
export function checkClientMemory(
  config: Pick<MeshCacheConfig, 'protocol' | 'globalSegmentSize'>,
  { native, host, proc = '/proc' }: { readonly native: NativeLoad; readonly host: RdmaHost; readonly proc?: string },
): Finding[] {
  const subject = 'client memory';
  if (native.addon === null) {
    const detail =
      'without the native addon memory of clients cannot be mapped: pages go through files of clients of the same user, else over the socket';
    return [{ subject, state: 'warning', detail, advice: 'see "native addon" above' }, ...filesFinding(proc)];
  }
  return [...mappingsFinding(proc), ...filesFinding(proc), ...lockedFinding(config, host)];
}

/** Checks the limit on mappings; each region of a client needs one in this process. */
function mappingsFinding(proc: string): Finding[] {
  const subject = 'client memory';
  const maxCount = Number(textOf(`${proc}/sys/vm/max_map_count`));
  const ownCount = textOf(`${proc}/self/maps`).split('\n').length;
  const neededCount = CLIENTS_MAX_COUNT * CLIENT_REGIONS_MAX_COUNT;
  if (!(maxCount > 0)) return [{ subject, state: 'n/a', detail: 'no limit of mappings known on this system' }];
  const detail = `${maxCount} mappings at most (vm.max_map_count), about ${ownCount} in use; clients may need ${neededCount}`;
  if (maxCount - ownCount >= neededCount) return [{ subject, state: 'ok', detail }];
  const advice = `sysctl vm.max_map_count=${4 * neededCount}, or less for few clients with few regions`;
  return [{ subject, state: 'warning', detail, advice }];
}

function filesFinding(proc: string): Finding[] {
  const subject = 'client files';
  const limit = processLimit('Max open files', proc);
  if (limit === undefined) return [];
  const clients = Math.max(0, Math.floor((limit - NODE_FILES_COUNT) / CLIENT_FILES_COUNT));
  if (clients >= CLIENTS_MAX_COUNT) {
    return [{ subject, state: 'ok', detail: `${limit} open files are enough for ${CLIENTS_MAX_COUNT} clients` }];
  }
  const detail = `${limit} open files leave room for about ${clients} clients of ${CLIENTS_MAX_COUNT}`;
  const needed = NODE_FILES_COUNT + CLIENT_FILES_COUNT * CLIENTS_MAX_COUNT;
  return [
    { subject, state: 'warning', detail, advice: `raise it: ulimit -n ${needed}, LimitNOFILE= in a systemd unit` },
  ];
}

/** Checks the limit on locked memory: RDMA locks clients' memory as well as the pool. */
function lockedFinding(config: Pick<MeshCacheConfig, 'protocol' | 'globalSegmentSize'>, host: RdmaHost): Finding[] {
  if (config.protocol !== 'rdma' || !rdmaSupport({ host }).usable) return [];
  const subject = 'client memory';
  const memory = host.lockedMemory();
  if (lockableBytes(memory) === Number.POSITIVE_INFINITY) return [];
  const pool = formatSize(config.globalSegmentSize);
  const detail = `${lockedMemoryText(memory)} can be locked, for the pool of ${pool} and for the memory of clients, which RDMA locks, too`;
  return [{ subject, state: 'warning', detail, advice: LOCKED_MEMORY_ADVICE }];
}

/** A soft limit of this process by its name in /proc/self/limits; Infinity: unlimited, undefined: not Linux. */
export function processLimit(name: string, proc = '/proc'): number | undefined {
  let limits: string;
  try {
    limits = readFileSync(`${proc}/self/limits`, 'utf8');
  } catch {
    return undefined;
  }
  const line = limits.split('\n').find((text) => text.startsWith(name));
  const value = line?.slice(name.length).trim().split(/\s+/)[0];
  if (value === undefined) return undefined;
  return value === 'unlimited' ? Number.POSITIVE_INFINITY : Number(value);
}
