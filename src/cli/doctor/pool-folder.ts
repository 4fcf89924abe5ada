import { dirname, join, resolve } from 'node:path';
import { isOverdue } from '../../base/environment/files.js';
import { formatSize } from '../../base/sizes.js';
import { loadNative } from '../../native/addon/loader.js';
import { INDEX_FILE, PAGES_FILE } from '../../node/warm/pool-folder.js';
import { poolIndexBytes, readState } from '../../pool/kept/cells.js';
import { fileSystemOf, systemFiles } from '../../system/files/system-files.js';
import type { Finding } from './finding.js';

/** Names of file systems in memory by their magic numbers of statfs(2). */
const IN_MEMORY: ReadonlyMap<number, string> = new Map([
  [0x01021994, 'tmpfs'],
  [0x958458f6, 'hugetlbfs'],
]);
const HEADER_BYTES = 128;

/** Checks whether a pool of that size can outlive its node in the folder `path`. Changes nothing. */
export async function checkPoolFolder(path: string, poolBytes: number): Promise<Finding[]> {
  const subject = 'pool folder';
  const { addon, reason } = loadNative();
  if (addon === null) {
    const advice = 'build the addon, or leave pool_path out: a node with it does not start';
    return [{ subject, state: 'problem', detail: `needs the native addon: ${reason}`, advice }];
  }
  const wanted = resolve(path);
  return checkFolder(wanted, poolBytes).catch((error: Error) => {
    const advice = isOverdue(error)
      ? 'look at the file system, or set another pool_path'
      : 'let the user of the node use the folder, or set another pool_path';
    return [{ subject, state: 'problem', detail: `${wanted}: ${error.message}`, advice }];
  });
}

async function checkFolder(wanted: string, poolBytes: number): Promise<Finding[]> {
  const subject = 'pool folder';
  const folder = await nearestFolder(wanted);
  const { type, blocks, freeBytes: leftBytes } = await fileSystemOf(folder);
  const fileSystem = IN_MEMORY.get(type >>> 0);
  if (fileSystem === undefined) {
    const detail = `${folder} is on a file system of type 0x${(type >>> 0).toString(16)}, which is not in memory`;
    const advice = 'set pool_path to a folder on tmpfs, such as /dev/shm/meshcache, or on hugetlbfs';
    return [{ subject, state: 'problem', detail, advice }];
  }
  const there = folder === wanted ? '' : `${wanted} is not there yet; `;
  const findings: Finding[] = [{ subject, state: 'ok', detail: `${there}${folder} is on ${fileSystem}` }];
  const neededBytes = poolBytes + poolIndexBytes(poolBytes);
  const ownBytes = (await bytesOf(join(wanted, PAGES_FILE))) + (await bytesOf(join(wanted, INDEX_FILE)));
  // Without a limit of its own, the file system says that it has no blocks at all.
  const freeBytes = blocks === 0 ? Number.POSITIVE_INFINITY : leftBytes;
  const free = blocks === 0 ? 'no limit' : `${formatSize(freeBytes)} free`;
  const own = ownBytes === 0 ? '' : `, and ${formatSize(ownBytes)} taken by the pool itself`;
  const detail = `${free}${own}; ${formatSize(neededBytes)} wanted with the index`;
  const isEnough = freeBytes + ownBytes >= neededBytes;
  const advice = 'make the file system larger (mount -o remount,size=…), or global_segment_size smaller';
  findings.push({ subject: 'pool space', detail, ...(isEnough ? { state: 'ok' } : { state: 'problem', advice }) });
  findings.push(await checkContents(wanted));
  return findings;
}

async function checkContents(folder: string): Promise<Finding> {
  const subject = 'kept pool';
  const state = await stateOf(join(folder, INDEX_FILE));
  if (state === 'ours') return { subject, state: 'ok', detail: 'a node finds its pages again' };
  if (state === 'empty') return { subject, state: 'ok', detail: 'none yet' };
  if (state === 'foreign') {
    const advice = 'choose another folder, or move the file away: a node does not touch what is not its own';
    return { subject, state: 'problem', detail: `${join(folder, INDEX_FILE)} is no index of a pool`, advice };
  }
  const advice = 'nothing: a node with this version starts with an empty pool';
  return { subject, state: 'warning', detail: 'its index is damaged or of another version', advice };
}

async function stateOf(path: string): Promise<ReturnType<typeof readState>> {
  const bytes = new Uint8Array(HEADER_BYTES);
  try {
    const file = await systemFiles.open(path);
    try {
      await file.read([bytes], 0);
    } finally {
      await file.close();
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  return readState(bytes);
}

/** The folder itself, or the nearest existing one above it. */
async function nearestFolder(wanted: string): Promise<string> {
  for (let path = wanted; ; path = dirname(path)) {
    const isThere = await systemFiles.status(path).then(
      ({ isDirectory }) => isDirectory,
      (error: unknown) => {
        if (isOverdue(error)) throw error;
        return false;
      },
    );
    if (isThere || dirname(path) === path) return path;
  }
}

async function bytesOf(path: string): Promise<number> {
  return systemFiles.status(path).then(
    ({ allocatedBytes }) => allocatedBytes,
    () => 0,
  );
}
