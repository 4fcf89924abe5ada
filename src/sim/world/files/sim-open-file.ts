import type { FileStatus, OpenFile } from '../../../base/environment/files.js';
import type { FileContent } from './file-content.js';
import { fileError } from './file-error.js';
import { type DirectoryInode, type FileInode, statusOf } from './file-tree.js';
import type { SimFiles } from './sim-files.js';

const DIRECT_ALIGNMENT_BYTES = 512;

/** An open file of a simulated process. */
export class SimOpenFile implements OpenFile {
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
    // A write to the system's memory pays for its bytes when it is flushed.
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

  /** Checks the alignment of direct I/O; that of the memory cannot be seen here. */
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
