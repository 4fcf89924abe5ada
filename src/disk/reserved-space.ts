import { execFile } from 'node:child_process';
import { type FileHandle, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { getSystemErrorName, promisify } from 'node:util';
import { DiskError } from '../base/errors.js';
import type { Logger } from '../base/log.js';
import { formatSize } from '../base/sizes.js';
import { loadNative } from '../native/loader.js';

/** `blocks` of a file's status are of this size, whatever those of the file system are. */
const STAT_BLOCK_BYTES = 512;

/** The file system cannot reserve space, or there is nothing here that could ask it to. */
const CANNOT_RESERVE = new Set(['EOPNOTSUPP', 'ENOTSUP', 'ENOSYS', 'EINVAL', 'ENODEV']);
const NO_SPACE = new Set(['ENOSPC', 'EDQUOT']);

/** Bytes that the file takes on disk. */
export async function allocatedBytes(handle: FileHandle): Promise<number> {
  return (await handle.stat()).blocks * STAT_BLOCK_BYTES;
}

/**
 * Makes the file `capacityBytes` long: a longer one is cut, and what is missing is reserved, where the system can do that; nothing
 * is written. Otherwise the file is sparse, and later writes may find the file system full. Throws `DiskError` when there is
 * too little space, the file is as long as before then; or with the system's error as its cause.
 */
export async function reserveSpace(
  handle: FileHandle,
  { path, capacityBytes, log }: { readonly path: string; readonly capacityBytes: number; readonly log: Logger },
): Promise<void> {
  const { size } = await handle.stat();
  if (size > capacityBytes) await handle.truncate(capacityBytes);
  const wantedBytes = capacityBytes - (await allocatedBytes(handle));
  if (wantedBytes > 0) {
    const freeBytes = await freeSpace(path);
    if (freeBytes < wantedBytes) throw noSpace(path, wantedBytes, freeBytes);
    const failure = await preallocate(handle, path, capacityBytes);
    if (failure !== null && NO_SPACE.has(failure.code)) {
      await handle.truncate(Math.min(size, capacityBytes));
      throw noSpace(path, wantedBytes, await freeSpace(path), failure);
    }
    if (failure !== null) {
      const level = CANNOT_RESERVE.has(failure.code) ? 'info' : 'warn';
      log.log(level, 'disk tier: no space is reserved', { path, bytes: wantedBytes, reason: failure.message });
    }
  }
  if ((await handle.stat()).size < capacityBytes) await handle.truncate(capacityBytes);
}

/** Why nothing was reserved. */
class ReserveFailure extends Error {
  /** Name of the system's error, or empty. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** Null: all of it is reserved. */
async function preallocate(handle: FileHandle, path: string, length: number): Promise<ReserveFailure | null> {
  const { addon } = loadNative();
  if (addon === null) return preallocateByProgram(path, length);
  const errno = await addon.preallocate(handle.fd, 0, length);
  if (errno === 0) return null;
  const code = getSystemErrorName(-errno);
  return new ReserveFailure(code, `fallocate: ${code}`);
}

/** With `fallocate` of util-linux, if it is there. */
async function preallocateByProgram(path: string, length: number): Promise<ReserveFailure | null> {
  try {
    const env = { ...process.env, LC_ALL: 'C' };
    await promisify(execFile)('fallocate', ['--offset', '0', '--length', String(length), path], { env });
    return null;
  } catch (error) {
    const { code, stderr, message } = error as { code?: string | number; stderr?: string; message: string };
    if (code === 'ENOENT')
      return new ReserveFailure('ENOSYS', 'neither the native addon nor the program fallocate is here');
    return new ReserveFailure(codeOf(stderr ?? ''), stderr?.trim() || message);
  }
}

/** The program says it in words. */
function codeOf(text: string): string {
  if (/no space left/i.test(text)) return 'ENOSPC';
  if (/quota/i.test(text)) return 'EDQUOT';
  return /not supported|not implemented/i.test(text) ? 'EOPNOTSUPP' : '';
}

async function freeSpace(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(dirname(path));
  return bavail * bsize;
}

function noSpace(path: string, wantedBytes: number, freeBytes: number, cause?: Error): DiskError {
  return new DiskError(
    `${path} needs ${formatSize(wantedBytes)} more on its file system, where ${formatSize(freeBytes)} are free: make room or set a smaller disk_size`,
    { cause },
  );
}
