import { dirname, resolve } from 'node:path';
import type { FileCaller, FileStatus, Files, OpenFile } from '../../base/environment/files.js';
import type { FileOperations } from './file-operations.js';
import { type CallPlace, FileThreads } from './file-threads.js';

/** The file threads of this process, shared like Node's own. */
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
    // A tmpfs or hugetlbfs that was mounted without a limit reports 0 blocks.
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

/**
 * Returns the type of the file system of `path` (a number of statfs(2)), its total blocks, and the bytes that this user
 * may still write.
 */
export function fileSystemOf(
  path: string,
): Promise<{ readonly type: number; readonly blocks: number; readonly freeBytes: number }> {
  return threads.call('fileSystem', at(path), path);
}

/** Creates a folder that only this user can access; its path begins with `prefix`. */
export function makeTemporaryFolder(prefix: string): Promise<string> {
  return threads.call('makeTemporary', at(prefix), prefix);
}

type OperationOnOpen = 'readInto' | 'read' | 'write' | 'datasync' | 'truncate' | 'statusOfOpen';
type WithoutFd<N extends OperationOnOpen> =
  Parameters<FileOperations[N]> extends [number, ...infer Rest] ? Rest : never;

class SystemFile implements OpenFile {
  readonly fd: number;
  readonly #path: string;
  readonly #place: CallPlace;
  readonly #underWay = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  constructor(path: string, fd: number) {
    this.fd = fd;
    this.#path = path;
    this.#place = at(path);
  }

  async read(views: readonly Uint8Array[], position: number, by?: FileCaller): Promise<number> {
    const view = onlyOf(views);
    if (by !== undefined && view !== undefined)
      return this.#track('read', (place) =>
        threads.callOutside('readInto', place, (state) => by.readAt(this.fd, view, position, state)),
      );
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

  write(views: readonly Uint8Array[], position: number, by?: FileCaller): Promise<number> {
    const view = onlyOf(views) ?? copyOf(views);
    if (by === undefined) return this.#call('write', [view], position);
    return this.#track('write', (place) =>
      threads.callOutside('write', place, (state) => by.writeAt(this.fd, view, position, state)),
    );
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
    return threads.call('reserve', this.#place, this.#path, lengthBytes);
  }

  close(): Promise<void> {
    // The number of a closed descriptor may be reused for another file.
    this.#closing ??= Promise.allSettled(this.#underWay).then(() => threads.close(this.fd, this.#place));
    return this.#closing;
  }

  #call<N extends OperationOnOpen>(operation: N, ...args: WithoutFd<N>): Promise<ReturnType<FileOperations[N]>> {
    const all = [this.fd, ...args] as unknown as Parameters<FileOperations[N]>;
    return this.#track(operation, (place) => threads.call(operation, place, ...all));
  }

  async #track<T>(operation: string, start: (place: CallPlace) => Promise<T>): Promise<T> {
    if (this.#closing !== undefined) throw systemError('EBADF', `EBADF: file closed, ${operation} '${this.#path}'`);
    const call = start(this.#place);
    this.#underWay.add(call);
    try {
      return await call;
    } finally {
      this.#underWay.delete(call);
    }
  }
}

function at(path: string): CallPlace {
  return { folder: dirname(resolve(path)), path };
}

/** Returns the view, if there is only one and it is in shared memory. */
function onlyOf([view, ...others]: readonly Uint8Array[]): Uint8Array | undefined {
  return view !== undefined && others.length === 0 && isShared(view) ? view : undefined;
}

function isShared({ buffer }: Uint8Array): boolean {
  return buffer instanceof SharedArrayBuffer;
}

/** Copies the bytes of all views into new shared memory. */
function copyOf(views: readonly Uint8Array[]): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(views.reduce((sum, { length }) => sum + length, 0)));
  let at = 0;
  for (const view of views) {
    copy.set(view, at);
    at += view.length;
  }
  return copy;
}

function asBuffer({ buffer, byteOffset, length }: Uint8Array<ArrayBuffer>): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

function systemError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
