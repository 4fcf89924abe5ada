import { dirname, join, resolve } from 'node:path';
import { isOverdue } from '../../base/environment/files.js';
import { silentLogger } from '../../base/environment/log.js';
import { DiskError } from '../../base/errors.js';
import { DISK_ALIGNMENT_BYTES, DISK_MIN_BYTES } from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import { DirectoryLock, distrustOfFolder } from '../../disk/folder/directory-lock.js';
import { PageFile } from '../../disk/folder/page-file.js';
import { JOURNAL_MAGIC } from '../../disk/journal/journal.js';
import { fileSystemOf, makeTemporaryFolder, systemFiles } from '../../system/files/system-files.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { Finding } from './finding.js';

const PROBE_BYTES = 16 * DISK_ALIGNMENT_BYTES;
const PROBE_NODE_ID = 'doctor';
const ENV = systemEnvironment({ log: silentLogger });
/** Names of a disk tier's files. */
const STORE_FILES = ['store.json', 'index', 'pages'] as const;
const SET_ASIDE = 'set-aside';

interface FileSystem {
  readonly name: string;
  readonly kind: 'disk' | 'memory' | 'network' | 'layers';
}

/** File systems by their magic numbers of statfs(2). */
const FILE_SYSTEMS: ReadonlyMap<number, FileSystem> = new Map([
  [0xef53, { name: 'ext4', kind: 'disk' }],
  [0x58465342, { name: 'xfs', kind: 'disk' }],
  [0x9123683e, { name: 'btrfs', kind: 'disk' }],
  [0xf2f52010, { name: 'f2fs', kind: 'disk' }],
  [0x2fc12fc1, { name: 'zfs', kind: 'disk' }],
  [0xca451a4e, { name: 'bcachefs', kind: 'disk' }],
  [0x01021994, { name: 'tmpfs', kind: 'memory' }],
  [0x858458f6, { name: 'ramfs', kind: 'memory' }],
  [0x794c7630, { name: 'overlay', kind: 'layers' }],
  [0x6969, { name: 'NFS', kind: 'network' }],
  [0xff534d42, { name: 'CIFS', kind: 'network' }],
  [0xfe534d42, { name: 'SMB', kind: 'network' }],
  [0x65735546, { name: 'FUSE', kind: 'network' }],
  [0x01021997, { name: '9p', kind: 'network' }],
  [0x00c36400, { name: 'Ceph', kind: 'network' }],
  [0x0bd00bd0, { name: 'Lustre', kind: 'network' }],
]);

const FILE_SYSTEM_ADVICE: Readonly<Record<Exclude<FileSystem['kind'], 'disk'>, string>> = {
  memory: 'it takes memory: give that to the pool (global_segment_size), or choose a folder on a disk',
  network: 'the tier is made for local disks: choose a folder on one, or measure with `meshcache bench disk --dir`',
  layers: 'a container’s own layer is slow and goes with it: mount a volume',
};

/**
 * Checks whether a disk tier works in `path`, with `sizeBytes` if that is given. Leaves nothing behind and creates no
 * folder: if `path` is missing, the nearest existing folder above it is checked.
 */
export async function checkDisk(path: string, sizeBytes: number | undefined): Promise<Finding[]> {
  const wanted = resolve(path);
  const folder = await nearestFolder(wanted);
  if (typeof folder !== 'string') return [folder];
  const isThere = folder === wanted;
  const findings: Finding[] = [];
  let probe: string;
  try {
    const distrust = isThere ? distrustOfFolder(folder, await systemFiles.status(folder)) : undefined;
    if (distrust !== undefined) {
      return [{ subject: 'disk folder', state: 'problem', detail: distrust.why, advice: distrust.advice }];
    }
    findings.push(await checkFileSystem(folder), await checkSpace(folder, isThere, sizeBytes));
    probe = await makeTemporaryFolder(join(folder, '.meshcache-doctor-'));
  } catch (error) {
    return [notUsable(folder, error), ...findings];
  }
  try {
    const writable = isThere ? `${folder} can be written` : `${wanted} is not there yet; ${folder} can be written`;
    return [
      { subject: 'disk folder', state: 'ok', detail: writable },
      ...findings,
      await checkPages(probe),
      await checkLock(isThere ? folder : probe),
      ...(isThere ? await checkContents(folder) : []),
    ];
  } catch (error) {
    return [notUsable(folder, error), ...findings];
  } finally {
    await systemFiles.rm(probe, { recursive: true, force: true }).catch(ifOverdue);
  }
}

/** The folder itself, or the nearest existing one above it. */
async function nearestFolder(wanted: string): Promise<string | Finding> {
  for (let path = wanted; ; path = dirname(path)) {
    try {
      if ((await systemFiles.status(path)).isDirectory) return path;
      const detail = `${path} is not a folder`;
      return { subject: 'disk folder', state: 'problem', detail, advice: 'set disk_path to a folder' };
    } catch (error) {
      const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT' && dirname(path) !== path;
      if (!isMissing) return notUsable(path, error);
    }
  }
}

function notUsable(path: string, error: unknown): Finding {
  const isReadOnly = (error as NodeJS.ErrnoException).code === 'EROFS';
  const unwritable = isReadOnly
    ? 'its file system is read-only: mount it for writing, or set another disk_path'
    : 'let the user of the node write there, or set another disk_path';
  const advice = isOverdue(error) ? 'look at the disk, its driver or its server, or set another disk_path' : unwritable;
  return { subject: 'disk folder', state: 'problem', detail: `${path}: ${(error as Error).message}`, advice };
}

/** Ignores the failure of a disk that does not answer, which another check has reported; rethrows other errors. */
function ifOverdue(error: unknown): void {
  if (!isOverdue(error)) throw error;
}

async function checkFileSystem(folder: string): Promise<Finding> {
  const subject = 'disk file system';
  const { type } = await fileSystemOf(folder);
  // Some systems return the number as a signed integer.
  const fileSystem = FILE_SYSTEMS.get(type >>> 0);
  if (fileSystem === undefined)
    return { subject, state: 'ok', detail: `of a type unknown here (0x${(type >>> 0).toString(16)})` };
  const { name, kind } = fileSystem;
  if (kind === 'disk') return { subject, state: 'ok', detail: name };
  return { subject, state: 'warning', detail: name, advice: FILE_SYSTEM_ADVICE[kind] };
}

/** Checks the free space. The space of the tier's own files in the folder counts as free. */
async function checkSpace(folder: string, isThere: boolean, sizeBytes: number | undefined): Promise<Finding> {
  const subject = 'disk space';
  const { freeBytes } = await fileSystemOf(folder);
  const ownBytes = isThere ? await storeBytes(folder) : 0;
  const own = ownBytes === 0 ? '' : `, and ${formatSize(ownBytes)} taken by the tier itself`;
  const free = `${formatSize(freeBytes)} free${own}`;
  if (sizeBytes === undefined) return { subject, state: 'ok', detail: free };
  const detail = `${free}; ${formatSize(sizeBytes)} wanted`;
  if (freeBytes + ownBytes >= sizeBytes) return { subject, state: 'ok', detail };
  const maxBytes = freeBytes + ownBytes;
  const advice =
    maxBytes < DISK_MIN_BYTES
      ? 'make room, or choose another disk_path'
      : `set disk_size to at most ${formatSize(maxBytes)}, or make room`;
  return { subject, state: 'problem', detail, advice };
}

async function storeBytes(folder: string): Promise<number> {
  const sizes = await Promise.all(
    STORE_FILES.map((name) =>
      systemFiles.status(join(folder, name)).then(
        ({ allocatedBytes }) => allocatedBytes,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

/** Writes and reads one page as the tier does. */
async function checkPages(probe: string): Promise<Finding> {
  const subject = 'direct I/O';
  try {
    const file = await PageFile.open(join(probe, 'pages'), { capacityBytes: PROBE_BYTES, env: ENV });
    try {
      const page = new Uint8Array(PROBE_BYTES).fill(0x5d);
      await file.write(0, { views: [page], length: page.length });
      page.fill(0);
      await file.read(0, { views: [page], length: page.length });
      if (!page.every((byte) => byte === 0x5d)) throw new Error('a page came back with wrong bytes');
    } finally {
      await file.close();
    }
    if (file.mode === 'direct')
      return { subject, state: 'ok', detail: 'works; a page came back with every byte right' };
    const advice = 'choose a folder on a local file system that has it, such as ext4 or xfs';
    const detail = 'not on this file system: pages go through the file cache, which takes memory';
    return { subject, state: 'warning', detail, advice };
  } catch (error) {
    const advice = 'a node would not keep pages here; set another disk_path';
    return { subject, state: 'problem', detail: (error as Error).message, advice };
  }
}

async function checkLock(folder: string): Promise<Finding> {
  const subject = 'disk lock';
  try {
    const lock = await DirectoryLock.acquire(folder, { nodeId: PROBE_NODE_ID, env: ENV });
    await lock.release();
    return { subject, state: 'ok', detail: 'no process uses the folder' };
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    const isInUse = /is in use/.test(error.message);
    const advice = isInUse
      ? 'if that is the node you mean, all is well; another node needs a folder of its own'
      : 'set another disk_path, on a local file system';
    return { subject, state: isInUse ? 'warning' : 'problem', detail: error.message, advice };
  }
}

async function checkContents(folder: string): Promise<Finding[]> {
  const names = new Set(await systemFiles.readdir(folder));
  const there = STORE_FILES.filter((name) => names.has(name));
  const findings: Finding[] = [];
  if (there.length === STORE_FILES.length) {
    const detail = `a store of ${formatSize(await storeBytes(folder))}; a node finds its pages again`;
    findings.push({ subject: 'disk store', state: 'ok', detail });
  } else if (!names.has('store.json') && there.length > 0 && !(await isJournal(join(folder, 'index')))) {
    const detail = `${folder} has a file ${there[0]} that is no store's`;
    const advice = 'set disk_path to an empty folder, or move the file away: a node does not touch what is not its own';
    findings.push({ subject: 'disk store', state: 'problem', detail, advice });
  } else if (there.length > 0) {
    const detail = `only ${there.join(' and ')} of a store`;
    const advice = 'nothing to do: the next node sets it aside and starts with an empty one';
    findings.push({ subject: 'disk store', state: 'warning', detail, advice });
  } else {
    findings.push({ subject: 'disk store', state: 'ok', detail: 'none yet' });
  }
  if (names.has(SET_ASIDE)) {
    const detail = `${join(folder, SET_ASIDE)}: a store that could not be used lies there; the node's log says why`;
    const advice = 'keep it if you want to know more, else remove it: it counts against disk_size';
    findings.push({ subject: 'disk set aside', state: 'warning', detail, advice });
  }
  return findings;
}

/** Whether the file is an index of a disk tier. */
async function isJournal(path: string): Promise<boolean> {
  const file = await systemFiles.open(path).catch(() => undefined);
  if (file === undefined) return false;
  try {
    const start = Buffer.alloc(JOURNAL_MAGIC.length);
    await file.read([start], 0);
    return start.toString('latin1') === JOURNAL_MAGIC;
  } finally {
    await file.close();
  }
}
