import { dirname, resolve } from 'node:path';
import type { FileStatus, Files, OpenFile } from '../../base/environment/files.js';
import type { FileOperations } from './file-operations.js';
import { FileThreads } from './file-threads.js';

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

  reserve(lengthBytes: number): Promise<void> {
    return threads.call('reserve', at(this.#path), this.#path, lengthBytes);
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

function systemError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
