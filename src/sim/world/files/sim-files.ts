import type { FileStatus, Files, OpenFile, OpenOptions } from '../../../base/environment/files.js';
import type { KernelProcess } from '../kernel/event-heap.js';
import { FileContent } from './file-content.js';
import {
  DIRECTORY_MODE,
  type DirectoryInode,
  type FileInode,
  fileError,
  type PathServer,
  type Place,
  statusOf,
} from './file-tree.js';
import type { SimDisk } from './sim-disk.js';

const FILE_MODE = 0o644;

/** The files of a host as one of its processes sees them. */
export class SimFiles implements Files {
  readonly process: KernelProcess;
  readonly disk: SimDisk;
  readonly openFiles = new Set<SimOpenFile>();

  constructor(process: KernelProcess, disk: SimDisk) {
    this.process = process;
    this.disk = disk;
  }

  get openCount(): number {
    return this.openFiles.size;
  }

  open(path: string, options: OpenOptions = {}): Promise<OpenFile> {
    return this.does('open', () => {
      const file = new SimOpenFile(this, this.#opened(path, options), {
        path,
        isWritable: options.write === true,
        isDirect: options.direct === true,
        isAppending: options.append === true,
      });
      this.openFiles.add(file);
      return file;
    });
  }

  async readFile(path: string): Promise<Buffer> {
    const content = await this.does('open', () => this.#fileAt(path, 'read').content);
    await this.transfers({ kind: 'read', readBytes: content.sizeBytes }, () => this.#checkRead(path));
    return contentOf(content);
  }

  readFileSync(path: string): Buffer {
    return contentOf(this.#fileAt(path, 'read').content);
  }

  statusSync(path: string): FileStatus {
    return statusOf(this.disk.tree.find(path, 'stat'));
  }

  async writeFile(path: string, bytes: Uint8Array | string): Promise<void> {
    const buffer = typeof bytes === 'string' ? Buffer.from(bytes) : Buffer.from(bytes);
    const file = await this.open(path, { write: true, create: true, truncate: true, mode: 0o600 });
    try {
      if (buffer.length > 0) await file.write([buffer], 0);
    } finally {
      await file.close();
    }
  }

  status(path: string): Promise<FileStatus> {
    return this.does('stat', () => statusOf(this.disk.tree.find(path, 'stat')));
  }

  freeBytes(path: string): Promise<number> {
    return this.does('statfs', () => {
      this.disk.tree.find(path, 'statfs');
      return this.disk.freeBytes;
    });
  }

  readdir(path: string, { recursive = false }: { readonly recursive?: boolean } = {}): Promise<string[]> {
    return this.does('readdir', () => {
      const inode = this.disk.tree.find(path, 'scandir');
      if (inode.kind !== 'directory') throw fileError('ENOTDIR', 'scandir', path);
      return recursive ? namesBelow(inode, '') : [...inode.entries.keys()];
    });
  }

  mkdir(path: string, { recursive = false }: { readonly recursive?: boolean } = {}): Promise<void> {
    return this.does('mkdir', () => {
      if (recursive) this.#makeAll(path);
      else {
        const place = this.disk.tree.place(path, 'mkdir');
        if (place.inode !== undefined) throw fileError('EEXIST', 'mkdir', path);
        this.#makeDirectory(place, path);
      }
    });
  }

  rename(from: string, to: string): Promise<void> {
    return this.does('rename', () => {
      this.#checkWritable('rename', from);
      this.disk.tree.rename(from, to, this.disk.nowMs);
    });
  }

  rm(
    path: string,
    { recursive = false, force = false }: { readonly recursive?: boolean; readonly force?: boolean } = {},
  ): Promise<void> {
    return this.does('rm', () => {
      const place = this.#placeToRemove(path, force);
      if (place?.inode === undefined) return;
      if (place.inode.kind === 'directory' && !recursive) throw fileError('EISDIR', 'rm', path);
      this.#checkWritable('rm', path);
      this.disk.tree.set(place, undefined, this.disk.nowMs);
    });
  }

  rmdir(path: string): Promise<void> {
    return this.does('rmdir', () => {
      const place = this.disk.tree.place(path, 'rmdir');
      if (place.inode === undefined) throw fileError('ENOENT', 'rmdir', path);
      if (place.inode.kind !== 'directory') throw fileError('ENOTDIR', 'rmdir', path);
      if (place.inode.entries.size > 0) throw fileError('ENOTEMPTY', 'rmdir', path);
      this.#checkWritable('rmdir', path);
      this.disk.tree.set(place, undefined, this.disk.nowMs);
    });
  }

  symlink(target: string, path: string): Promise<void> {
    return this.does('symlink', () => {
      const place = this.disk.tree.place(path, 'symlink');
      if (place.inode !== undefined) throw fileError('EEXIST', 'symlink', target, path);
      this.#checkWritable('symlink', path);
      this.disk.tree.set(place, { kind: 'link', target }, this.disk.nowMs);
    });
  }

  readlink(path: string): Promise<string> {
    return this.does('readlink', () => {
      const { inode } = this.disk.tree.place(path, 'readlink');
      if (inode === undefined) throw fileError('ENOENT', 'readlink', path);
      if (inode.kind !== 'link') throw fileError('EINVAL', 'readlink', path);
      return inode.target;
    });
  }

  /** @internal Binds the path to the socket of `server`; returns the error if that is impossible. */
  bindSocket(path: string, server: PathServer): Error | undefined {
    try {
      const place = this.disk.tree.place(path, 'listen');
      if (place.inode !== undefined) return fileError('EADDRINUSE', 'listen', path);
      this.#checkWritable('listen', path);
      this.disk.tree.set(place, { kind: 'socket', server }, this.disk.nowMs);
      return undefined;
    } catch (error) {
      return error as Error;
    }
  }

  /** @internal Removes the server's socket from the path, unless something else is there by now. */
  unbindSocket(path: string, server: PathServer): void {
    try {
      const place = this.disk.tree.place(path, 'unlink');
      const isOwn = place.inode?.kind === 'socket' && place.inode.server === server;
      if (isOwn && !this.disk.isReadOnly) this.disk.tree.set(place, undefined, this.disk.nowMs);
    } catch {
      // The directory no longer exists.
    }
  }

  /** @internal The server that listens at the path, or the error of connecting to it. */
  socketAt(path: string): PathServer | NodeJS.ErrnoException {
    try {
      const inode = this.disk.tree.find(path, 'connect');
      const isListening = inode.kind === 'socket' && inode.server.address() !== null;
      return isListening ? inode.server : fileError('ECONNREFUSED', 'connect', path);
    } catch (error) {
      return error as NodeJS.ErrnoException;
    }
  }

  /** @internal Forgets open files, because the process has died. */
  vanish(): void {
    this.openFiles.clear();
  }

  /** @internal Does work in the system's memory. Resolves with its outcome a moment later. */
  does<T>(kind: string, work: () => T): Promise<T> {
    return this.transfers({ kind }, work);
  }

  /** @internal Does work that reads or writes the disk. Resolves with its outcome when the disk has done it. */
  transfers<T>(
    what: { readonly kind: string; readonly readBytes?: number; readonly writeBytes?: number },
    work: () => T,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      if (!this.process.isAlive) return;
      this.disk.after(what, () => {
        let outcome: () => void;
        try {
          const value = work();
          outcome = () => resolve(value);
        } catch (error) {
          outcome = () => reject(error);
        }
        this.process.enter(what.kind, outcome);
      });
    });
  }

  #checkRead(path: string): void {
    if (this.disk.fails('read')) throw fileError('EIO', 'read', path);
  }

  #checkWritable(call: string, path: string): void {
    if (this.disk.isReadOnly) throw fileError('EROFS', call, path);
  }

  #fileAt(path: string, call: string): FileInode {
    const inode = this.disk.tree.find(path, call);
    if (inode.kind === 'directory') throw fileError('EISDIR', call, path);
    if (inode.kind !== 'file') throw fileError('ENXIO', call, path);
    return inode;
  }

  #opened(path: string, options: OpenOptions): FileInode | DirectoryInode {
    const { write = false, create = false, exclusive = false, truncate = false, directory = false } = options;
    const { tree, nowMs } = this.disk;
    if (create && exclusive && tree.place(path, 'open').inode !== undefined) throw fileError('EEXIST', 'open', path);
    const place = tree.place(path, 'open', { follows: !write });
    if (place.inode?.kind === 'link') throw fileError('ELOOP', 'open', path);
    const inode = place.inode ?? (create ? this.#makeFile(place, path, options.mode) : undefined);
    if (inode === undefined) throw fileError('ENOENT', 'open', path);
    if (inode.kind === 'directory') {
      if (write || create) throw fileError('EISDIR', 'open', path);
      return inode;
    }
    if (directory) throw fileError('ENOTDIR', 'open', path);
    if (inode.kind !== 'file') throw fileError('ENXIO', 'open', path);
    if (write) this.#checkWritable('open', path);
    if (options.direct && !this.disk.shape.hasDirect) throw fileError('EINVAL', 'open', path);
    if (write) inode.content.isDirect = options.direct === true;
    if (truncate && write) inode.content.truncate(0, nowMs);
    return inode;
  }

  #makeFile(place: Place, path: string, mode = FILE_MODE): FileInode {
    this.#checkWritable('open', path);
    const inode: FileInode = { kind: 'file', mode, content: new FileContent() };
    this.disk.tree.set(place, inode, this.disk.nowMs);
    return inode;
  }

  #makeDirectory(place: Place, path: string): void {
    this.#checkWritable('mkdir', path);
    const inode: DirectoryInode = { kind: 'directory', mode: DIRECTORY_MODE, entries: new Map() };
    this.disk.tree.set(place, inode, this.disk.nowMs);
  }

  #makeAll(path: string): void {
    const names = path.split('/').filter((name) => name !== '');
    for (let count = 1; count <= names.length; count++) {
      const part = `/${names.slice(0, count).join('/')}`;
      const place = this.disk.tree.place(part, 'mkdir', { follows: true });
      if (place.inode === undefined) this.#makeDirectory(place, part);
      else if (place.inode.kind !== 'directory')
        throw fileError(count === names.length ? 'EEXIST' : 'ENOTDIR', 'mkdir', path);
    }
  }

  #placeToRemove(path: string, force: boolean): Place | undefined {
    try {
      const place = this.disk.tree.place(path, 'rm');
      if (place.inode === undefined && !force) throw fileError('ENOENT', 'rm', path);
      return place;
    } catch (error) {
      if (force && (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }
}

function contentOf(content: FileContent): Buffer {
  const bytes = Buffer.alloc(content.sizeBytes);
  content.read(bytes, 0);
  return bytes;
}

function namesBelow(directory: DirectoryInode, prefix: string): string[] {
  return [...directory.entries].flatMap(([name, inode]) =>
    inode.kind === 'directory' ? [prefix + name, ...namesBelow(inode, `${prefix}${name}/`)] : [prefix + name],
  );
}

const DIRECT_ALIGNMENT_BYTES = 512;

/** An open file of a simulated process. */
class SimOpenFile implements OpenFile {
  readonly fd = -1;
  readonly #files: SimFiles;
  readonly #inode: FileInode | DirectoryInode;
  readonly #path: string;
  readonly #isWritable: boolean;
  readonly #isDirect: boolean;
  readonly #isAppending: boolean;
  #isOpen = true;

  constructor(
    files: SimFiles,
    inode: FileInode | DirectoryInode,
    how: {
      readonly path: string;
      readonly isWritable: boolean;
      readonly isDirect: boolean;
      readonly isAppending: boolean;
    },
  ) {
    this.#files = files;
    this.#inode = inode;
    this.#path = how.path;
    this.#isWritable = how.isWritable;
    this.#isDirect = how.isDirect;
    this.#isAppending = how.isAppending;
  }

  async read(views: readonly Uint8Array[], position: number): Promise<number> {
    const content = this.#content('read');
    this.#checkAligned('read', views, position);
    const readBytes = Math.max(0, Math.min(lengthOf(views), content.sizeBytes - position));
    return this.#files.transfers({ kind: 'read', readBytes }, () => {
      this.#checkDisk('read');
      let count = 0;
      for (const view of views) count += content.read(view, position + count);
      return count;
    });
  }

  async write(views: readonly Uint8Array[], given: number): Promise<number> {
    const content = this.#changeable('write');
    const position = this.#isAppending ? content.sizeBytes : given;
    this.#checkAligned('write', views, position);
    const { disk } = this.#files;
    const length = lengthOf(views);
    let isApplied = false;
    const pending = {
      content,
      apply: (): void => {
        if (isApplied) return;
        isApplied = true;
        let at = position;
        for (const view of views) {
          content.write(view, at, disk.nowMs);
          at += view.length;
        }
      },
    };
    disk.begin(pending);
    // The bytes of a buffered write take disk time when they are flushed.
    const what = this.#isDirect ? { kind: 'write', writeBytes: length } : { kind: 'write' };
    return this.#files.transfers(what, () => {
      disk.ended(pending);
      this.#checkDisk('write');
      if (disk.isReadOnly) throw this.#error('EROFS', 'write');
      const growthBytes = content.growthBytes(position, length);
      if (growthBytes > 0 && growthBytes > disk.freeBytes) throw this.#error('ENOSPC', 'write');
      pending.apply();
      return length;
    });
  }

  async datasync(): Promise<void> {
    const content = this.#inode.kind === 'file' ? this.#content('fdatasync') : undefined;
    this.#checkOpen('fdatasync');
    const { disk } = this.#files;
    const writeBytes = this.#isDirect ? 0 : (content?.unflushedBytes ?? 0);
    const end = content?.beginFlush();
    return this.#files.transfers({ kind: 'flush', writeBytes }, () => {
      const hasFailed = disk.fails('flush');
      end?.(!hasFailed);
      if (hasFailed) throw this.#error('EIO', 'fdatasync');
      disk.tree.commit();
    });
  }

  async truncate(lengthBytes: number): Promise<void> {
    const content = this.#changeable('ftruncate');
    return this.#files.does('truncate', () => {
      if (this.#files.disk.isReadOnly) throw this.#error('EROFS', 'ftruncate');
      content.truncate(lengthBytes, this.#files.disk.nowMs);
    });
  }

  async status(): Promise<FileStatus> {
    this.#checkOpen('fstat');
    return this.#files.does('stat', () => statusOf(this.#inode));
  }

  async reserve(lengthBytes: number): Promise<void> {
    const content = this.#changeable('fallocate');
    const { disk } = this.#files;
    return this.#files.does('reserve', () => {
      if (disk.isReadOnly) throw this.#error('EROFS', 'fallocate');
      const growthBytes = Math.max(0, lengthBytes - content.allocatedBytes);
      if (growthBytes > 0 && growthBytes > disk.freeBytes) throw this.#error('ENOSPC', 'fallocate');
      content.reserve(lengthBytes, disk.nowMs);
    });
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#files.openFiles.delete(this);
    await this.#files.does('close', () => {});
  }

  #content(call: string): FileContent {
    this.#checkOpen(call);
    if (this.#inode.kind !== 'file') throw this.#error('EISDIR', call);
    return this.#inode.content;
  }

  #changeable(call: string): FileContent {
    const content = this.#content(call);
    if (!this.#isWritable) throw this.#error('EBADF', call);
    return content;
  }

  #checkOpen(call: string): void {
    if (!this.#isOpen) throw this.#error('EBADF', call);
  }

  /** Checks positions and lengths of direct I/O. The alignment of the memory is unknown here. */
  #checkAligned(call: string, views: readonly Uint8Array[], position: number): void {
    if (!this.#isDirect) return;
    const isAligned = [position, ...views.map((view) => view.length)].every(
      (bytes) => bytes % DIRECT_ALIGNMENT_BYTES === 0,
    );
    if (!isAligned) throw this.#error('EINVAL', call);
  }

  #checkDisk(operation: 'read' | 'write'): void {
    if (this.#files.disk.fails(operation)) throw this.#error('EIO', operation);
  }

  #error(code: string, call: string): Error {
    return fileError(code, call, this.#path);
  }
}

function lengthOf(views: readonly Uint8Array[]): number {
  let length = 0;
  for (const view of views) length += view.length;
  return length;
}
