import type { Files } from '../environment/files.js';
import { ConfigError } from '../errors.js';

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

/** Reads the file at `path`, the value of configuration key `key`, when the process starts. Throws {@link ConfigError}. */
export function readNamedFile(
  key: string,
  path: string,
  files: Pick<Files, 'readFileSync'>,
  kind: FileKind = 'file',
): Buffer {
  try {
    return files.readFileSync(path);
  } catch (cause) {
    throw unreadable(key, path, cause, kind);
  }
}
