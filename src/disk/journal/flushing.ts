import type { Files, OpenOptions } from '../../base/environment/files.js';

/** Error codes of file systems that cannot flush directories. */
const CANNOT_FLUSH: ReadonlySet<string> = new Set(['EINVAL', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP']);

/**
 * Flushes the names of the files in a directory. File systems that cannot do that (CIFS, FUSE) write them at a time of
 * their own.
 */
export async function flushNames(path: string, files: Files): Promise<void> {
  await flush(path, files, { directory: true }).catch((error: NodeJS.ErrnoException) => {
    if (!CANNOT_FLUSH.has(error.code ?? '')) throw error;
  });
}

/** Resolves when the content of the file, or the names in the directory, are on the medium. */
export async function flush(path: string, files: Files, options: OpenOptions): Promise<void> {
  const file = await files.open(path, options);
  try {
    await file.datasync();
  } finally {
    await file.close();
  }
}
