import { execFile } from 'node:child_process';
import { constants, readFileSync, type Stats, statSync } from 'node:fs';
import {
  type FileHandle,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  rmdir,
  stat,
  statfs,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { promisify } from 'node:util';
import {
  type FileStatus,
  type Files,
  type OpenFile,
  type OpenOptions,
  withoutFirst,
} from '../base/environment/files.js';

/** Unit of `blocks` in a file's status, whatever the block size of the file system is. */
const STAT_BLOCK_BYTES = 512;
const PERMISSION_BITS = 0o7777;
const FOLDER_MODE = 0o700;
const ROOT_UID = 0;
const REPLACE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW;
/** Flag for direct I/O; undefined on systems without it. */
const O_DIRECT = constants.O_DIRECT as number | undefined;

/** The files of the operating system. */
export const systemFiles: Files = {
  async open(path, options = {}) {
    return new SystemFile(path, await open(path, flagsOf(path, options), options.mode));
  },
  readFile: (path) => readFile(path),
  readFileSync: (path) => readFileSync(path),
  writeFile: (path, bytes) => writeFile(path, bytes, { flag: REPLACE }),
  status: async (path) => statusOf(await stat(path)),
  statusSync: (path) => statusOf(statSync(path)),
  async freeBytes(path) {
    const { blocks, bavail, bsize } = await statfs(path);
    // A tmpfs or hugetlbfs that was mounted without a limit says that it has no blocks at all.
    return blocks === 0 ? Number.POSITIVE_INFINITY : bavail * bsize;
  },
  readdir: (path, options) => readdir(path, { recursive: options?.recursive ?? false }),
  async mkdir(path, options) {
    await mkdir(path, { recursive: options?.recursive ?? false, mode: FOLDER_MODE });
  },
  rename: (from, to) => rename(from, to),
  rm: (path, options) => (options?.recursive ? rm(path, options) : removeOne(path, options?.force ?? false)),
  rmdir: (path) => rmdir(path),
  symlink: (target, path) => symlink(target, path),
  readlink: (path) => readlink(path),
};

class SystemFile implements OpenFile {
  readonly fd: number;
  readonly #path: string;
  readonly #handle: FileHandle;

  constructor(path: string, handle: FileHandle) {
    this.fd = handle.fd;
    this.#path = path;
    this.#handle = handle;
  }

  async read(views: readonly Uint8Array[], position: number): Promise<number> {
    const { bytesRead } = await this.#handle.readv(views, position);
    const missing = withoutFirst(views, bytesRead);
    if (missing.length === 0 || bytesRead === 0) return bytesRead;
    // A read may return fewer bytes than the file has.
    return bytesRead + (await this.read(missing, position + bytesRead));
  }

  async write(views: readonly Uint8Array[], position: number): Promise<number> {
    return (await this.#handle.writev(views, position)).bytesWritten;
  }

  datasync(): Promise<void> {
    return this.#handle.datasync();
  }

  truncate(lengthBytes: number): Promise<void> {
    return this.#handle.truncate(lengthBytes);
  }

  async status(): Promise<FileStatus> {
    return statusOf(await this.#handle.stat());
  }

  /** Reserves space with the program `fallocate` of util-linux, if it is installed: Node has no function for it. */
  async reserve(lengthBytes: number): Promise<void> {
    const env = { ...process.env, LC_ALL: 'C' };
    const args = ['--offset', '0', '--length', String(lengthBytes), this.#path];
    try {
      await promisify(execFile)('fallocate', args, { env });
    } catch (cause) {
      throw reserveError(cause);
    }
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

function flagsOf(path: string, options: OpenOptions): number {
  // Somebody who may write to the folder could have put a link there, to a file that only this user may write.
  let flags = options.write ? constants.O_RDWR | constants.O_NOFOLLOW : constants.O_RDONLY;
  if (options.create) flags |= constants.O_CREAT;
  if (options.exclusive) flags |= constants.O_EXCL;
  if (options.truncate) flags |= constants.O_TRUNC;
  if (options.directory) flags |= constants.O_DIRECTORY;
  if (!options.direct) return flags;
  if (O_DIRECT === undefined) throw systemError('EINVAL', `EINVAL: no direct I/O on this system, open '${path}'`);
  return flags | O_DIRECT;
}

function statusOf(stats: Stats): FileStatus {
  return {
    sizeBytes: stats.size,
    allocatedBytes: stats.blocks * STAT_BLOCK_BYTES,
    mode: stats.mode & PERMISSION_BITS,
    isFile: stats.isFile(),
    isDirectory: stats.isDirectory(),
    isForeign: stats.uid !== ROOT_UID && stats.uid !== process.geteuid?.(),
  };
}

async function removeOne(path: string, isForced: boolean): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!isForced || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** The error for a failure of `fallocate`, with a system error code. */
function reserveError(cause: unknown): Error {
  const { code, stderr, message } = cause as { code?: string | number; stderr?: string; message: string };
  if (code === 'ENOENT') return systemError('ENOSYS', 'ENOSYS: the program fallocate is not here');
  const said = stderr?.trim() || message;
  return systemError(reserveCode(said), said);
}

/** The system error code for the English text that `fallocate` prints. */
function reserveCode(text: string): string {
  if (/no space left/i.test(text)) return 'ENOSPC';
  if (/quota/i.test(text)) return 'EDQUOT';
  return /not supported|not implemented/i.test(text) ? 'EOPNOTSUPP' : '';
}

function systemError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
