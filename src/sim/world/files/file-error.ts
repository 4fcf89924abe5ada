import { systemError } from '../kernel/system-error.js';

const TEXTS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  EEXIST: 'file already exists',
  EISDIR: 'illegal operation on a directory',
  ENOTDIR: 'not a directory',
  ENOTEMPTY: 'directory not empty',
  EINVAL: 'invalid argument',
  EBADF: 'bad file descriptor',
  ENOSPC: 'no space left on device',
  EROFS: 'read-only file system',
  EIO: 'i/o error',
  ELOOP: 'too many symbolic links encountered',
  ENXIO: 'no such device or address',
  EADDRINUSE: 'address already in use',
  ECONNREFUSED: 'connection refused',
};

/** An error as Node's file functions reject with it: `ENOENT: no such file or directory, open '/x'`. */
export function fileError(code: string, call: string, path: string, to?: string): NodeJS.ErrnoException {
  const where = to === undefined ? `'${path}'` : `'${path}' -> '${to}'`;
  return systemError(code, `${code}: ${TEXTS[code]}, ${call} ${where}`, { syscall: call, path });
}
