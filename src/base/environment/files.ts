/**
 * Error code of a call that the file system did not answer in time, and of every further call on the same folder until
 * that call has ended. The call may still take effect until then.
 */
export const CALL_OVERDUE = 'ETIMEDOUT';

/**
 * Whether this is, or was caused by, the error of a call to {@link Files} that the file system does not answer. The
 * content of the disk is as good as before.
 */
export function isOverdue(error: unknown): boolean {
  const { code, cause } = (error ?? {}) as { readonly code?: unknown; readonly cause?: unknown };
  return code === CALL_OVERDUE || (cause !== undefined && isOverdue(cause));
}

/** Whether the system may still use the memory of the failed call. */
export function isStillRunning(error: unknown): boolean {
  return isOverdue(error) && (error as { isStillRunning?: boolean }).isStillRunning === true;
}

/**
 * How to open a file. Without options, the file is opened for reading and must exist. Opening a symbolic link for
 * writing fails with ELOOP.
 */
export interface OpenOptions {
  /** Opens the file for reading and writing. */
  readonly write?: boolean;
  /** Creates the file if it is missing, with the permission bits `mode`. */
  readonly create?: boolean;
  readonly mode?: number;
  /** With `create`: fails with EEXIST if the file exists. */
  readonly exclusive?: boolean;
  /** With `write`: empties the file. */
  readonly truncate?: boolean;
  /** With `write`: every write goes to the end of the file, whatever its position. */
  readonly append?: boolean;
  /**
   * Bypasses the system's cache; fails with EINVAL where that is impossible. Memory, offsets and lengths must then be
   * aligned.
   */
  readonly direct?: boolean;
  /** Opens a directory, which is neither read nor written. */
  readonly directory?: boolean;
}

/** Kind, size and permissions of the entry at a path. */
export interface FileStatus {
  readonly sizeBytes: number;
  /** Bytes that the file occupies on disk. */
  readonly allocatedBytes: number;
  /** Permission bits. */
  readonly mode: number;
  readonly isFile: boolean;
  readonly isDirectory: boolean;
  /** Whether the owner is neither root nor the user of this process. */
  readonly isForeign: boolean;
  /** Two paths with equal identities lead to the same file; empty: unknown. */
  readonly identity: string;
}

/** Whether every user of the machine may write to the file. */
export function isWritableByAll({ mode }: FileStatus): boolean {
  return (mode & 0o002) !== 0;
}

/**
 * Makes calls to the system on threads of its own. Each resolves with the number of bytes (fewer in a read only where
 * the file ends) or with the negative errno; as soon as the system has answered, it sets `state` to 0. The memory of a
 * view must be shared, and is in use until then.
 */
export interface FileCaller {
  /** Reads into the view, from `position` in the file. */
  readAt(fd: number, view: Uint8Array, position: number, state: Int32Array): Promise<number>;
  /** Writes the view, or only its first bytes. */
  writeAt(fd: number, view: Uint8Array, position: number, state: Int32Array): Promise<number>;
}

/**
 * An open file. It stays open if it is renamed or removed. Reads and writes may overlap in time; buffers are in use
 * until the promise is settled. Buffers in shared memory are used without a copy, and stay in use after an error whose
 * `isStillRunning` is true.
 */
export interface OpenFile {
  /**
   * File descriptor for the native addon; -1: the file does not belong to the operating system, so no `FileCaller` is
   * used.
   */
  readonly fd: number;
  /**
   * Reads into `views`, one after the other, from `position`. Resolves with the number of bytes, which is smaller than
   * their total only at the end of the file.
   */
  read(views: readonly Uint8Array[], position: number, by?: FileCaller): Promise<number>;
  /**
   * Resolves with the number of bytes written, at least 1. If it is less than the total, the caller writes the rest.
   */
  write(views: readonly Uint8Array[], position: number, by?: FileCaller): Promise<number>;
  /** Resolves when everything written before is on disk and would survive a loss of power. */
  datasync(): Promise<void>;
  /** Shortens the file, or extends it with zeros that take no disk space. */
  truncate(lengthBytes: number): Promise<void>;
  /** The current status of the file. */
  status(): Promise<FileStatus>;
  /**
   * Reserves disk space for the first `lengthBytes` of the file and extends a shorter file to that length; unwritten
   * bytes read as zeros. The error's code is ENOSPC or EDQUOT if space is short, EOPNOTSUPP or ENOSYS where reserving
   * is impossible.
   */
  reserve(lengthBytes: number): Promise<void>;
  /**
   * Closes the file; operations in progress end by themselves. No other method may be called afterwards. Idempotent.
   */
  close(): Promise<void>;
}

/**
 * The files of this host; a simulator or a test supplies its own. Errors are those of the system, with its `code`
 * (ENOENT, EEXIST, ENOSPC, EIO, EROFS, EACCES, ...). Every call ends: with the code ETIMEDOUT if the file system has
 * not answered after some seconds.
 */
export interface Files {
  /** Opens a file, which the caller must close. */
  open(path: string, options?: OpenOptions): Promise<OpenFile>;
  /** Reads the whole file. Fails with the code EFTYPE if it is not a regular file, with EISDIR for a folder. */
  readFile(path: string): Promise<Buffer>;
  /** Reads the whole file synchronously, as `readFile` does; for files that are read once, when a process starts. */
  readFileSync(path: string): Buffer;
  /** The status of a path, synchronously. */
  statusSync(path: string): FileStatus;
  /** Replaces the content of the file, or creates it so that only this user may read it. ELOOP for a symbolic link. */
  writeFile(path: string, bytes: Uint8Array | string): Promise<void>;
  /** The status of a path; symbolic links are followed. */
  status(path: string): Promise<FileStatus>;
  /** Bytes that this user may still write to the file system of `path`; Infinity: it has no limit of its own. */
  freeBytes(path: string): Promise<number>;
  /** Names of the directory's entries; with `recursive`, paths of all entries below it. */
  readdir(path: string, options?: { readonly recursive?: boolean }): Promise<string[]>;
  /**
   * Creates a directory that only this user may enter. With `recursive` it also creates missing parents, and the
   * directory may exist.
   */
  mkdir(path: string, options?: { readonly recursive?: boolean }): Promise<void>;
  /** Renames a file and atomically replaces one at `to`. A renamed socket goes on listening at its new path. */
  rename(from: string, to: string): Promise<void>;
  /**
   * Removes a file, a socket or a symbolic link, but not the target of a link; EISDIR for a directory. With `recursive`
   * it also removes directories with their content; with `force` the path may be missing.
   */
  rm(path: string, options?: { readonly recursive?: boolean; readonly force?: boolean }): Promise<void>;
  /** Removes an empty directory; ENOTEMPTY for one with content. */
  rmdir(path: string): Promise<void>;
  /** Creates a symbolic link at `path`, which must not exist. `target` is any text that is not empty. */
  symlink(target: string, path: string): Promise<void>;
  /** The target of a symbolic link; EINVAL for anything else. */
  readlink(path: string): Promise<string>;
}

/** The views without their first `count` bytes in total. */
export function withoutFirst(views: readonly Uint8Array[], count: number): Uint8Array[] {
  const rest: Uint8Array[] = [];
  let skip = count;
  for (const view of views) {
    if (skip < view.length) rest.push(skip > 0 ? view.subarray(skip) : view);
    skip = Math.max(0, skip - view.length);
  }
  return rest;
}
