import { execFile } from 'node:child_process';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';
import { CALL_OVERDUE, type FileStatus, type Files, type OpenFile } from '../../base/environment/files.js';
import type { FileOperations } from './file-operations.js';
import { FileThreads } from './file-threads.js';

/** Time in which the program `fallocate` must end. */
const RESERVE_TIMEOUT_MS = 60_000;

/** The threads for files are the process's own, as those of Node are. */
const threads = new FileThreads();

/** The files of the operating system. */
export const systemFiles: Files = {
  async open(path, options = {}) {
    return new SystemFile(path, await threads.call('open', at(path), path, options));
  },
  async readFile(path) {
    return asBuffer(await threads.call('readFile', at(path), path));
  },
  readFileSync: (path) => asBuffer(threads.callSync('readFile', at(path), path)),
  writeFile: (path, bytes) =>
    threads.call('writeFile', at(path), path, typeof bytes === 'string' ? bytes : copyOf([bytes])),
  status: (path) => threads.call('status', at(path), path),
  statusSync: (path) => threads.callSync('status', at(path), path),
  async freeBytes(path) {
    const { blocks, freeBytes } = await threads.call('fileSystem', at(path), path);
    // A tmpfs or hugetlbfs that was mounted without a limit says that it has no blocks at all.
    return blocks === 0 ? Number.POSITIVE_INFINITY : freeBytes;
  },
  readdir: (path, options) => threads.call('readdir', at(path), path, options?.recursive ?? false),
  mkdir: (path, options) => threads.call('mkdir', at(path), path, options?.recursive ?? false),
  rename: (from, to) => threads.call('rename', at(to), from, to),
  rm: (path, options) =>
    threads.call(options?.recursive ? 'removeAll' : 'remove', at(path), path, options?.force ?? false),
  rmdir: (path) => threads.call('rmdir', at(path), path),
  symlink: (target, path) => threads.call('symlink', at(path), target, path),
  readlink: (path) => threads.call('readlink', at(path), path),
};

/** The kind of the file system that `path` is on, as statfs(2) numbers it, its blocks in all, and the bytes that this user may still write. */
export function fileSystemOf(
  path: string,
): Promise<{ readonly type: number; readonly blocks: number; readonly freeBytes: number }> {
  return threads.call('fileSystem', at(path), path);
}

/** Creates a folder for this user only, whose path begins with `prefix`. */
export function makeTemporaryFolder(prefix: string): Promise<string> {
  return threads.call('makeTemporary', at(prefix), prefix);
}

type OperationOnOpen = 'readInto' | 'read' | 'write' | 'datasync' | 'truncate' | 'statusOfOpen';
type WithoutFd<N extends OperationOnOpen> =
  Parameters<FileOperations[N]> extends [number, ...infer Rest] ? Rest : never;

class SystemFile implements OpenFile {
  readonly fd: number;
  readonly #path: string;
  readonly #underWay = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  constructor(path: string, fd: number) {
    this.fd = fd;
    this.#path = path;
  }

  async read(views: readonly Uint8Array[], position: number): Promise<number> {
    if (views.every(isShared)) return this.#call('readInto', views, position);
    const lengthBytes = views.reduce((sum, { length }) => sum + length, 0);
    const bytes = await this.#call('read', lengthBytes, position);
    let from = 0;
    for (const view of views) {
      view.set(bytes.subarray(from, from + view.length));
      from += view.length;
    }
    return bytes.length;
  }

  write(views: readonly Uint8Array[], position: number): Promise<number> {
    return this.#call('write', views.every(isShared) ? views : [copyOf(views)], position);
  }

  datasync(): Promise<void> {
    return this.#call('datasync');
  }

  truncate(lengthBytes: number): Promise<void> {
    return this.#call('truncate', lengthBytes);
  }

  status(): Promise<FileStatus> {
    return this.#call('statusOfOpen');
  }

  /** Reserves space with the program `fallocate` of util-linux, if it is installed: Node has no function for it. */
  async reserve(lengthBytes: number): Promise<void> {
    const env = { ...process.env, LC_ALL: 'C' };
    const args = ['--offset', '0', '--length', String(lengthBytes), this.#path];
    try {
      await promisify(execFile)('fallocate', args, { env, timeout: RESERVE_TIMEOUT_MS, killSignal: 'SIGKILL' });
    } catch (cause) {
      throw reserveError(cause);
    }
  }

  close(): Promise<void> {
    // The number of a closed descriptor may be that of another file.
    this.#closing ??= Promise.allSettled(this.#underWay).then(() => threads.close(this.fd, at(this.#path)));
    return this.#closing;
  }

  async #call<N extends OperationOnOpen>(operation: N, ...args: WithoutFd<N>): Promise<ReturnType<FileOperations[N]>> {
    if (this.#closing !== undefined) throw systemError('EBADF', `EBADF: file closed, ${operation} '${this.#path}'`);
    const all = [this.fd, ...args] as unknown as Parameters<FileOperations[N]>;
    const call = threads.call(operation, at(this.#path), ...all);
    this.#underWay.add(call);
    try {
      return await call;
    } finally {
      this.#underWay.delete(call);
    }
  }
}

function at(path: string): { readonly folder: string; readonly path: string } {
  return { folder: dirname(resolve(path)), path };
}

function isShared({ buffer }: Uint8Array): boolean {
  return buffer instanceof SharedArrayBuffer;
}

/** The bytes of all views, in memory of their own: a view would bring its whole buffer along. */
function copyOf(views: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(views));
}

function asBuffer({ buffer, byteOffset, length }: Uint8Array<ArrayBuffer>): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

/** The error for a failure of `fallocate`, with a system error code. */
function reserveError(cause: unknown): Error {
  const { code, stderr, message } = cause as { code?: string | number; stderr?: string; message: string };
  if ((cause as { killed?: boolean }).killed)
    return systemError(CALL_OVERDUE, `${CALL_OVERDUE}: the program fallocate does not end`);
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
