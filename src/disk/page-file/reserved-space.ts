import { dirname } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import { isOverdue, type OpenFile } from '../../base/environment/files.js';
import { DiskError } from '../../base/errors.js';
import { formatSize } from '../../base/sizes.js';

/** Error codes that mean that space cannot be reserved on this system. */
const CANNOT_RESERVE = new Set(['EOPNOTSUPP', 'ENOTSUP', 'ENOSYS', 'EINVAL', 'ENODEV']);
const NO_SPACE = new Set(['ENOSPC', 'EDQUOT']);

/**
 * Makes the file `capacityBytes` long. A longer file is truncated; missing space is reserved, without writing, if the system supports it.
 * Otherwise the file is sparse, and later writes may find the file system full. Throws `DiskError` if space is short, and leaves the
 * length as before; or with the system's error as its cause.
 */
export async function reserveSpace(
  file: OpenFile,
  {
    path,
    capacityBytes,
    env: { files, log },
  }: { readonly path: string; readonly capacityBytes: number; readonly env: Pick<Environment, 'files' | 'log'> },
): Promise<void> {
  const { sizeBytes } = await file.status();
  if (sizeBytes > capacityBytes) await file.truncate(capacityBytes);
  const wantedBytes = capacityBytes - (await file.status()).allocatedBytes;
  if (wantedBytes > 0) {
    const freeBytes = await files.freeBytes(dirname(path));
    if (freeBytes < wantedBytes) throw noSpace(path, wantedBytes, freeBytes);
    const failure = await failureOf(file.reserve(capacityBytes));
    if (NO_SPACE.has(failure?.code ?? '')) {
      await file.truncate(Math.min(sizeBytes, capacityBytes));
      throw noSpace(path, wantedBytes, await files.freeBytes(dirname(path)), failure);
    }
    if (isOverdue(failure)) throw failure;
    if (failure !== undefined) {
      const level = CANNOT_RESERVE.has(failure.code ?? '') ? 'info' : 'warn';
      log.log(level, 'disk tier: space cannot be reserved', { path, bytes: wantedBytes, reason: failure.message });
    }
  }
  if ((await file.status()).sizeBytes < capacityBytes) await file.truncate(capacityBytes);
}

function failureOf(work: Promise<void>): Promise<NodeJS.ErrnoException | undefined> {
  return work.then(
    () => undefined,
    (error: NodeJS.ErrnoException) => error,
  );
}

function noSpace(path: string, wantedBytes: number, freeBytes: number, cause?: Error): DiskError {
  return new DiskError(
    `${path} needs ${formatSize(wantedBytes)} more on its file system, where ${formatSize(freeBytes)} are free: make room or set a smaller disk_size`,
    { cause },
  );
}
