import type { FileStatus, Files } from '../environment/files.js';
import { ConfigError } from '../errors.js';

/** Permission bits that let users outside the owner's group read and write the file. */
const READABLE_BY_OTHERS = 0o004;
const WRITABLE_BY_OTHERS = 0o002;

/** What is in a file, as far as errors say it. */
type FileKind = 'file' | 'PEM file';

/** What is wrong with the file at `path`, the value of configuration key `key`. `problem` goes on from there, and says what is allowed. */
export function fileFault(key: string, path: string, problem: string, cause?: unknown): ConfigError {
  return new ConfigError(`configuration key "${key}": ${path} ${problem}`, cause === undefined ? {} : { cause });
}

/** The file at `path` cannot be read; `cause` is the error of the system. */
export function unreadable(key: string, path: string, cause: unknown, kind: FileKind = 'file'): ConfigError {
  const { code } = cause as NodeJS.ErrnoException;
  return fileFault(key, path, `cannot be read (${code}); it must be a ${kind} that this process may read`, cause);
}

/**
 * Reads the file at `path`, the value of configuration key `key`, when the process starts. It says who is trusted: throws {@link ConfigError}
 * also if another user of the machine could change it.
 */
export function readNamedFile(
  key: string,
  path: string,
  files: Pick<Files, 'readFileSync' | 'statusSync'>,
  kind: FileKind = 'file',
): Buffer {
  let status: FileStatus;
  let bytes: Buffer;
  try {
    status = files.statusSync(path);
    bytes = files.readFileSync(path);
  } catch (cause) {
    throw unreadable(key, path, cause, kind);
  }
  checkOwner(key, path, status);
  return bytes;
}

/** Reads the file while the node runs. Rejects as {@link readNamedFile} throws. */
export async function readNamedFileAgain(
  key: string,
  path: string,
  files: Pick<Files, 'readFile' | 'status'>,
  kind: FileKind = 'file',
): Promise<Buffer> {
  const [status, bytes] = await Promise.all([files.status(path), files.readFile(path)]).catch((cause: unknown) => {
    throw unreadable(key, path, cause, kind);
  });
  checkOwner(key, path, status);
  return bytes;
}

/** Whether every user of the machine may read the file at `path`, which is there. */
export function isReadableByOthers(path: string, files: Pick<Files, 'statusSync'>): boolean {
  return (files.statusSync(path).mode & READABLE_BY_OTHERS) !== 0;
}

function checkOwner(key: string, path: string, { isForeign, mode }: FileStatus): void {
  if (isForeign)
    throw fileFault(key, path, 'belongs to another user, who could change it; chown it to root or to this user');
  if ((mode & WRITABLE_BY_OTHERS) !== 0)
    throw fileFault(key, path, 'can be changed by every user of this machine; chmod o-w');
}
