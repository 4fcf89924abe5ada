import type { Environment } from '../environment/environment.js';
import { type FileStatus, type Files, isWritableByAll } from '../environment/files.js';
import { ConfigError } from '../errors.js';

/** Permission bit that lets users outside the owner's group read the file. */
const READABLE_BY_OTHERS = 0o004;

/** How errors call the file. */
type FileKind = 'file' | 'PEM file';

/**
 * Error for the file at `path`, the value of configuration key `key`. `problem` continues the message and says what is
 * allowed.
 */
export function fileFault(key: string, path: string, problem: string, cause?: unknown): ConfigError {
  return new ConfigError(`configuration key "${key}": ${path} ${problem}`, cause === undefined ? {} : { cause });
}

/** Error for a file that cannot be read; `cause` is the error of the system. */
function unreadable(key: string, path: string, cause: unknown, kind: FileKind = 'file'): ConfigError {
  const { code } = cause as NodeJS.ErrnoException;
  return fileFault(key, path, `cannot be read (${code}); it must be a ${kind} that this process may read`, cause);
}

/**
 * Reads the file at `path`, the value of configuration key `key`, when the process starts. The file decides who is
 * trusted, so this also throws {@link ConfigError} if another user of the machine could change it.
 */
export function readNamedFile(key: string, path: string, files: Files, kind: FileKind = 'file'): Buffer {
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

/** Reads the file again while the node runs. Rejects as {@link readNamedFile} throws. */
export async function readNamedFileAgain(
  key: string,
  path: string,
  files: Files,
  kind: FileKind = 'file',
): Promise<Buffer> {
  const [status, bytes] = await Promise.all([files.status(path), files.readFile(path)]).catch((cause: unknown) => {
    throw unreadable(key, path, cause, kind);
  });
  checkOwner(key, path, status);
  return bytes;
}

/** Whether every user of the machine may read the file at `path`, which must exist. */
export function isReadableByOthers(path: string, files: Files): boolean {
  return (files.statusSync(path).mode & READABLE_BY_OTHERS) !== 0;
}

/** Warns if every user of the machine may read a file with a secret, the value of configuration key `key`. */
export function warnIfReadable(key: string, path: string, { files, log }: Pick<Environment, 'files' | 'log'>): void {
  if (isReadableByOthers(path, files))
    log.log('warn', `${key} is readable by every user of this machine; chmod 600`, { path });
}

function checkOwner(key: string, path: string, status: FileStatus): void {
  if (status.isForeign)
    throw fileFault(key, path, 'belongs to another user, who could change it; chown it to root or to this user');
  if (isWritableByAll(status)) throw fileFault(key, path, 'can be changed by every user of this machine; chmod o-w');
}
