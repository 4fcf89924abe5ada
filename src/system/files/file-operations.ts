import { spawnSync } from 'node:child_process';
import {
  closeSync,
  constants,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readvSync,
  renameSync,
  rmdirSync,
  rmSync,
  type Stats,
  statfsSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
  writevSync,
} from 'node:fs';
import type { MessagePort } from 'node:worker_threads';
import { type FileStatus, type OpenOptions, withoutFirst } from '../../base/environment/files.js';

/** States of a file thread. */
export const IDLE = 0;
export const BUSY = 1;

/** Start data of a file thread. */
export interface FileThreadStart {
  readonly port: MessagePort;
  /**
   * One number. The main thread sets it to BUSY after it has posted a call; the file thread sets it to IDLE after it
   * has posted the answer. Each then wakes the other, which may see the change before that. Both sleep on this number,
   * because waking an event loop for each call costs more.
   */
  readonly state: Int32Array<SharedArrayBuffer>;
}

/** A call for a file thread. */
export interface FileCallMessage {
  readonly operation: FileOperation;
  readonly args: readonly unknown[];
}

/** The answer to a {@link FileCallMessage}. */
export interface FileAnswer {
  readonly value?: unknown;
  readonly error?: { readonly message: string; readonly fields: object };
}

/** Unit of `blocks` in a file's status, independent of the block size of the file system. */
const STAT_BLOCK_BYTES = 512;
const PERMISSION_BITS = 0o7777;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;
const ROOT_UID = 0;
const REPLACE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW;
/** Flag for direct I/O; undefined on systems without it. */
const O_DIRECT = constants.O_DIRECT as number | undefined;

/**
 * The file system calls that a file thread makes. Arguments and results can be cloned. Each call blocks until the
 * system has answered.
 */
export const FILE_OPERATIONS = {
  open: (path: string, options: OpenOptions): number => openSync(path, flagsOf(path, options), options.mode),
  close: (fd: number): void => closeSync(fd),
  /** Reads into shared memory. */
  readInto: (fd: number, views: readonly Uint8Array[], position: number): number => readAll(fd, views, position),
  read(fd: number, lengthBytes: number, position: number): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(lengthBytes);
    return bytes.subarray(0, readAll(fd, [bytes], position));
  },
  write: (fd: number, views: readonly Uint8Array[], position: number): number => writevSync(fd, views, position),
  datasync: (fd: number): void => fdatasyncSync(fd),
  truncate: (fd: number, lengthBytes: number): void => ftruncateSync(fd, lengthBytes),
  reserve: (path: string, lengthBytes: number): void => reserve(path, lengthBytes),
  statusOfOpen: (fd: number): FileStatus => statusOf(fstatSync(fd)),
  status: (path: string): FileStatus => statusOf(statSync(path)),
  readFile: (path: string): Uint8Array<ArrayBuffer> => readWhole(path),
  writeFile: (path: string, bytes: Uint8Array | string): void =>
    writeFileSync(path, bytes, { flag: REPLACE as unknown as string, mode: FILE_MODE }),
  fileSystem(path: string): { readonly type: number; readonly blocks: number; readonly freeBytes: number } {
    const { type, blocks, bavail, bsize } = statfsSync(path);
    return { type, blocks, freeBytes: bavail * bsize };
  },
  readdir: (path: string, isRecursive: boolean): string[] => readdirSync(path, { recursive: isRecursive }) as string[],
  mkdir: (path: string, isRecursive: boolean): void =>
    void mkdirSync(path, { recursive: isRecursive, mode: FOLDER_MODE }),
  makeTemporary: (prefix: string): string => mkdtempSync(prefix),
  rename: (from: string, to: string): void => renameSync(from, to),
  removeAll: (path: string, isForced: boolean): void => rmSync(path, { recursive: true, force: isForced }),
  remove(path: string, isForced: boolean): void {
    try {
      unlinkSync(path);
    } catch (error) {
      if (!isForced || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  },
  rmdir: (path: string): void => rmdirSync(path),
  symlink: (target: string, path: string): void => symlinkSync(target, path),
  readlink: (path: string): string => readlinkSync(path),
};

export type FileOperations = typeof FILE_OPERATIONS;
export type FileOperation = keyof FileOperations;

/** Reads until the views are full or the file ends, because one read may return fewer bytes than the file has. */
function readAll(fd: number, views: readonly Uint8Array[], position: number): number {
  let done = 0;
  for (let missing = [...views]; missing.length > 0; missing = withoutFirst(views, done)) {
    const bytesRead = readvSync(fd, missing, position + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return done;
}

/** Reserves space by the program `fallocate` of util-linux or busybox: Node has no function for it. */
function reserve(path: string, lengthBytes: number): void {
  const args = ['-o', '0', '-l', String(lengthBytes), path];
  const { error, status, stderr } = spawnSync('fallocate', args, {
    env: { ...process.env, LC_ALL: 'C' },
    stdio: ['ignore', 'ignore', 'pipe'],
    encoding: 'utf8',
  });
  if ((error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT')
    throw Object.assign(new Error('ENOSYS: the program fallocate is not here'), { code: 'ENOSYS' });
  if (error !== undefined) throw error;
  if (status === 0) return;
  const said = stderr.trim() || `fallocate has ended with status ${status}`;
  throw Object.assign(new Error(said), { code: reserveCode(said) });
}

/** Returns the system error code for the English text that `fallocate` prints. */
function reserveCode(text: string): string {
  if (/no space left/i.test(text)) return 'ENOSPC';
  if (/quota/i.test(text)) return 'EDQUOT';
  return /not supported|not implemented/i.test(text) ? 'EOPNOTSUPP' : '';
}

function flagsOf(path: string, options: OpenOptions): number {
  // A user who can write to the folder could have placed a link there, to a file that only this user may write.
  let flags = options.write ? constants.O_RDWR | constants.O_NOFOLLOW : constants.O_RDONLY;
  if (options.create) flags |= constants.O_CREAT;
  if (options.exclusive) flags |= constants.O_EXCL;
  if (options.append) flags |= constants.O_APPEND;
  if (options.truncate) flags |= constants.O_TRUNC;
  if (options.directory) flags |= constants.O_DIRECTORY;
  if (!options.direct) return flags;
  if (O_DIRECT !== undefined) return flags | O_DIRECT;
  throw Object.assign(new Error(`EINVAL: no direct I/O on this system, open '${path}'`), { code: 'EINVAL' });
}

function statusOf(stats: Stats): FileStatus {
  return {
    sizeBytes: stats.size,
    allocatedBytes: stats.blocks * STAT_BLOCK_BYTES,
    mode: stats.mode & PERMISSION_BITS,
    isFile: stats.isFile(),
    isDirectory: stats.isDirectory(),
    isForeign: stats.uid !== ROOT_UID && stats.uid !== process.geteuid?.(),
    identity: `${stats.dev}:${stats.ino}`,
  };
}

/** Reads a file to its end. FIFOs and devices may have no end: they are opened without blocking, and not read. */
function readWhole(path: string): Uint8Array<ArrayBuffer> {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stats = fstatSync(fd);
    if (stats.isFile()) return exact(readFileSync(fd));
    const code = stats.isDirectory() ? 'EISDIR' : 'EFTYPE';
    throw Object.assign(new Error(`${code}: not a regular file, read '${path}'`), { code });
  } finally {
    closeSync(fd);
  }
}

/** Returns the bytes in their own buffer, which can be transferred. */
function exact(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : Uint8Array.prototype.slice.call(bytes);
}
