/** How to open a file. Without any of these it is opened for reading, and must be there. */
export interface OpenOptions {
  /** For reading and writing. */
  readonly write?: boolean;
  /** It is made when it is missing, with these permission bits. */
  readonly create?: boolean;
  readonly mode?: number;
  /** With `create`: fails with EEXIST when it is there. */
  readonly exclusive?: boolean;
  /** With `write`: its bytes are dropped. */
  readonly truncate?: boolean;
  /** Past the system's cache: fails with EINVAL where that cannot be had. Memory, offsets and lengths must be aligned then. */
  readonly direct?: boolean;
  /** It must be a directory, which is neither read nor written. */
  readonly directory?: boolean;
}

/** What there is at a path. */
export interface FileStatus {
  readonly sizeBytes: number;
  /** Bytes of disk that it takes. */
  readonly allocatedBytes: number;
  /** Permission bits. */
  readonly mode: number;
  readonly isFile: boolean;
  readonly isDirectory: boolean;
}

/**
 * An open file, at whatever path it is by now, or removed. Reads and writes at positions may overlap in time; buffers are in use until the promise
 * is settled.
 */
export interface OpenFile {
  /** Of the system, for the native addon; -1: the file is not one of the system's. */
  readonly fd: number;
  /** Resolves with the number of bytes read into `views`, one after the other: fewer than they take only at the end of the file. */
  read(views: readonly Uint8Array[], position: number): Promise<number>;
  /** Resolves with the number of bytes written, which may be fewer, but not 0: then the rest is to be written by another call. */
  write(views: readonly Uint8Array[], position: number): Promise<number>;
  /** Resolves when everything that was written before is on the disk, and would be there after a loss of power. */
  datasync(): Promise<void>;
  /** Cuts the file, or lengthens it by zeros that take no disk space. */
  truncate(lengthBytes: number): Promise<void>;
  /** As it is now. */
  status(): Promise<FileStatus>;
  /**
   * Gives the file disk space for all of its first `lengthBytes`, and makes a shorter one that long; what was not written reads as zeros. The code of the error is
   * ENOSPC or EDQUOT when there is too little, EOPNOTSUPP or ENOSYS where it cannot be done.
   */
  reserve(lengthBytes: number): Promise<void>;
  /** What is under way ends as it does; nothing else may be called afterwards. Idempotent. */
  close(): Promise<void>;
}

/**
 * The files of this host; a simulator or a test hands in its own. Errors are those of the system, with its `code` (ENOENT, EEXIST,
 * ENOSPC, EIO, EROFS, EACCES, ...).
 */
export interface Files {
  /** Whoever opens a file closes it. */
  open(path: string, options?: OpenOptions): Promise<OpenFile>;
  /** The whole file. */
  readFile(path: string): Promise<Buffer>;
  /** As `readFile`, while the caller waits: for what is read once, when a process starts. */
  readFileSync(path: string): Buffer;
  /** As `status`, while the caller waits. */
  statusSync(path: string): FileStatus;
  /** Replaces the whole file, or makes it. */
  writeFile(path: string, bytes: Uint8Array | string): Promise<void>;
  /** Of what a symbolic link leads to. */
  status(path: string): Promise<FileStatus>;
  /** Bytes that this user may still write to the file system that `path` is on. */
  freeBytes(path: string): Promise<number>;
  /** Names; with `recursive` paths below it, of what is deeper, too. */
  readdir(path: string, options?: { readonly recursive?: boolean }): Promise<string[]>;
  /** With `recursive` those above it, too, and it may be there already. */
  mkdir(path: string, options?: { readonly recursive?: boolean }): Promise<void>;
  /** Replaces a file at `to` in one step: whoever opens it gets the one or the other. Also of sockets, which listen on at the new path. */
  rename(from: string, to: string): Promise<void>;
  /**
   * Removes a file, a socket, or a symbolic link and not what it leads to; EISDIR for a directory. With `recursive` directories with what is below
   * them, too; with `force` it may be missing.
   */
  rm(path: string, options?: { readonly recursive?: boolean; readonly force?: boolean }): Promise<void>;
  /** A link at `path`, which must not be there; `target` may be any text that is not empty. */
  symlink(target: string, path: string): Promise<void>;
  /** The target of a link; EINVAL for anything else. */
  readlink(path: string): Promise<string>;
}

/** What is left of views, one after the other, without their first bytes. */
export function withoutFirst(views: readonly Uint8Array[], count: number): Uint8Array[] {
  const rest: Uint8Array[] = [];
  let skip = count;
  for (const view of views) {
    if (skip < view.length) rest.push(skip > 0 ? view.subarray(skip) : view);
    skip = Math.max(0, skip - view.length);
  }
  return rest;
}
