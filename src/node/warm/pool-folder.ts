import { join } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import type { FileStatus, Files, OpenFile } from '../../base/environment/files.js';
import { ConfigError, DiskError } from '../../base/errors.js';
import { formatSize } from '../../base/sizes.js';
import { DirectoryLock, distrustOfFolder } from '../../disk/folder/directory-lock.js';
import { HostRegion } from '../../memory/host-region.js';
import { loadNative } from '../../native/addon/loader.js';
import { Cells, type CellsState, poolIndexBytes, readState } from '../../pool/kept/cells.js';

export const PAGES_FILE = 'pages';
export const INDEX_FILE = 'index';
/** Only the user of the node may read or write the files. */
const FILE_MODE = 0o600;
/** Smallest huge page: index sizes are multiples of it, so that the index may be on hugetlbfs. */
const INDEX_UNIT_BYTES = 2 * 2 ** 20;
/** Bytes of an index that are read before it is mapped. */
const HEADER_READ_BYTES = 128;
const ENOSPC = 28;
const EDQUOT = 122;

export interface PoolFolderOptions {
  /** The folder, which is created if it is missing. */
  readonly path: string;
  readonly capacityBytes: number;
  readonly nodeId: string;
  readonly env: Environment;
}

/** A folder in memory with a pool that outlives its process; locked by this process. */
export interface PoolFolder {
  /** The memory of the pages. */
  readonly region: HostRegion;
  readonly cells: Cells;
  /** State of the index when it was opened. */
  readonly state: CellsState;
  /** Releases the memory of the index and the folder; the caller frees `region` first. Idempotent. */
  close(): Promise<void>;
}

/**
 * Locks the folder and maps its two files, `pages` and `index`, with all of their memory reserved. Throws `ConfigError`
 * without the native addon; if another process uses the folder; if the folder is not in memory, belongs to another user
 * or holds foreign files; and if there is no room. Foreign files are left unchanged.
 */
export async function openPoolFolder(options: PoolFolderOptions): Promise<PoolFolder> {
  const { path, nodeId, env } = options;
  const isKept = env.host.keep !== undefined;
  const { addon, reason } = loadNative();
  if (!isKept && addon === null) {
    throw refusal(`mapping a pool needs the native addon: ${reason}; build it, or leave pool_path out`);
  }
  await makeFolder(path, env.files);
  let lock: DirectoryLock | undefined;
  const closing: (() => void)[] = [];
  try {
    lock = await DirectoryLock.acquire(path, { nodeId, env });
    const opened = await openFiles(options, closing);
    let closed: Promise<void> | undefined;
    const close = async (): Promise<void> => {
      for (const end of closing) end();
      await lock?.release();
    };
    return { ...opened, close: () => (closed ??= close()) };
  } catch (cause) {
    for (const end of closing) end();
    await lock?.release();
    if (cause instanceof ConfigError) throw cause;
    const message = cause instanceof Error ? cause.message : String(cause);
    throw refusal(
      cause instanceof DiskError ? message.replaceAll('disk_path', 'pool_path') : `${path}: ${message}`,
      cause,
    );
  }
}

async function makeFolder(path: string, files: Files): Promise<void> {
  await files.mkdir(path, { recursive: true }).catch((cause: Error) => {
    throw refusal(`${path} cannot be made: ${cause.message}; choose a folder that this user may write`, cause);
  });
  const distrust = distrustOfFolder(path, await files.status(path));
  if (distrust !== undefined) throw refusal(`${distrust.why}; ${distrust.advice}`);
}

async function openFiles(options: PoolFolderOptions, closing: (() => void)[]): Promise<Omit<PoolFolder, 'close'>> {
  const { path, capacityBytes, env } = options;
  const [indexPath, pagesPath] = [join(path, INDEX_FILE), join(path, PAGES_FILE)];
  const made: string[] = [];
  try {
    const indexBefore = await statusOrNull(indexPath, env.files);
    const pagesBefore = await statusOrNull(pagesPath, env.files);
    if (env.host.keep === undefined) await refuseForeign(options, indexBefore, pagesBefore);
    const wantedBytes = Math.max(poolIndexBytes(capacityBytes), indexBefore?.sizeBytes ?? 0);
    const indexBytes = Math.ceil(wantedBytes / INDEX_UNIT_BYTES) * INDEX_UNIT_BYTES;
    if (indexBefore === null) made.push(indexPath);
    // The index is mapped before anything is reserved, which shows whether the folder is in memory.
    const index = await provide(indexPath, indexBytes, env);
    closing.push(() => index.free());
    const cells = new Cells(index.segments);
    const state = cells.state();
    // The header is written before the pages, so that pages without a header must be foreign.
    if (state !== 'ours') cells.begin((env.random.u32() | 1) >>> 0, state);
    if (pagesBefore === null) made.push(pagesPath);
    const region = await provide(pagesPath, capacityBytes, env);
    closing.push(() => region.free());
    return { region, cells, state };
  } catch (error) {
    for (const file of made) await env.files.rm(file, { force: true }).catch(() => {});
    throw error;
  }
}

/** Sets the length of the file, reserves its memory, and maps it. */
async function provide(path: string, bytes: number, env: Environment): Promise<HostRegion> {
  if (env.host.keep !== undefined) return HostRegion.keep(env.host, path, bytes);
  const file = await env.files.open(path, { write: true, create: true, mode: FILE_MODE });
  let region: HostRegion | undefined;
  try {
    if ((await file.status()).sizeBytes !== bytes) await file.truncate(bytes).catch(refuseLength(path, bytes));
    region = HostRegion.keep(env.host, path, bytes);
    await reserve(path, file, { bytes, env });
    return region;
  } catch (error) {
    region?.free();
    throw error;
  } finally {
    await file.close();
  }
}

function refuseLength(path: string, bytes: number): (error: NodeJS.ErrnoException) => never {
  return (error) => {
    if (error.code !== 'EINVAL') throw error;
    throw refusal(
      `${path} cannot be ${formatSize(bytes)} long: on hugetlbfs, global_segment_size must be a multiple of the huge pages`,
      error,
    );
  };
}

async function reserve(
  path: string,
  file: OpenFile,
  { bytes, env }: { readonly bytes: number; readonly env: Environment },
): Promise<void> {
  // Reserving memory that is already there takes a second per 10 GiB.
  const { allocatedBytes } = await file.status();
  if (allocatedBytes >= bytes) return;
  // Checked first, because a file system as large as the machine's memory would use it all up before it fails.
  const freeBytes = await env.files.freeBytes(path);
  const isShort = freeBytes + allocatedBytes < bytes;
  const error = isShort ? ENOSPC : ((await loadNative().addon?.preallocate(file.fd, 0, bytes)) ?? 0);
  if (error === 0) return;
  const isFull = error === ENOSPC || error === EDQUOT;
  const room = Number.isFinite(freeBytes) ? `room for ${formatSize(freeBytes + allocatedBytes)}` : 'less room';
  throw refusal(
    isFull
      ? `${path} needs ${formatSize(bytes)}, and its file system has ${room}; make that larger, or global_segment_size smaller`
      : `${path}: its memory cannot be reserved, error number ${error}; give a folder on tmpfs or hugetlbfs`,
  );
}

/** Throws `ConfigError` unless the existing files are a pool of this program and user, or there are none. */
async function refuseForeign(
  { path, env }: PoolFolderOptions,
  index: FileStatus | null,
  pages: FileStatus | null,
): Promise<void> {
  for (const [name, status] of [
    [INDEX_FILE, index],
    [PAGES_FILE, pages],
  ] as const) {
    if (status === null || (status.isFile && !status.isForeign)) continue;
    throw refusal(`${join(path, name)} is no file of this user; remove it, or choose another folder`);
  }
  const state = index === null ? 'empty' : readState(await firstBytes(join(path, INDEX_FILE), env.files));
  if (state === 'foreign' || (state === 'empty' && (pages?.sizeBytes ?? 0) > 0)) {
    const name = state === 'foreign' ? INDEX_FILE : PAGES_FILE;
    throw refusal(`${join(path, name)} is no file of a meshcache pool; remove it, or choose another folder`);
  }
}

async function firstBytes(path: string, files: Files): Promise<Uint8Array> {
  const file = await files.open(path);
  try {
    const bytes = new Uint8Array(HEADER_READ_BYTES);
    await file.read([bytes], 0);
    return bytes;
  } finally {
    await file.close();
  }
}

async function statusOrNull(path: string, files: Files): Promise<FileStatus | null> {
  return files.status(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
}

function refusal(why: string, cause?: unknown): ConfigError {
  return new ConfigError(`configuration key "pool_path": ${why}`, cause === undefined ? {} : { cause });
}
