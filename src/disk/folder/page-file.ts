import { dirname } from 'node:path';
import { assert } from '../../base/assert.js';
import { type CancelSignal, checkNotAborted, onAbort } from '../../base/concurrency/cancellation.js';
import { Semaphore } from '../../base/concurrency/mutex.js';
import type { Environment } from '../../base/environment/environment.js';
import { isOverdue, type OpenFile } from '../../base/environment/files.js';
import { ArgumentError, ClosedError, DiskError } from '../../base/errors.js';
import {
  DISK_ALIGNMENT_BYTES,
  DISK_COPY_OFF_THREAD_MIN_BYTES,
  DISK_IN_FLIGHT_MAX_COUNT,
  DISK_PIECE_MAX_BYTES,
  DISK_STAGING_BUFFERS_COUNT,
} from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import { nativeCalls } from '../../memory/native-files.js';
import { PageCopies } from '../../memory/page-copies.js';
import { isWhole, type PageBytes } from '../../pool/page-batch.js';
import { AlignedBuffers, alignedUp, isInPlace } from './alignment.js';

/** Error codes that mean that space cannot be reserved on this system. */
const CANNOT_RESERVE = new Set(['EOPNOTSUPP', 'ENOTSUP', 'ENOSYS', 'EINVAL', 'ENODEV']);

const NO_SPACE = new Set(['ENOSPC', 'EDQUOT']);

interface PageFileOptions {
  /** Length of the file, a multiple of DISK_ALIGNMENT_BYTES. */
  readonly capacityBytes: number;
  /** Kind of I/O; default `auto`: direct if the file system supports it. */
  readonly mode?: 'auto' | 'direct' | 'buffered';
  readonly env: Environment;
}

/** Advice for errors at opening, by their codes. */
const ADVICE: Readonly<Record<string, string>> = {
  EACCES: 'let this user write there, or set another disk_path',
  EPERM: 'let this user write there, or set another disk_path',
  EROFS: 'its file system is read-only: mount it for writing, or set another disk_path',
  ENOENT: 'make its directory first',
  EISDIR: 'a directory is in its place: remove it, or set another disk_path',
  ENOSPC: 'make room, or set a smaller disk_size',
  EDQUOT: 'raise the quota, or set a smaller disk_size',
  EMFILE: 'raise the limit of open files (ulimit -n)',
};

/**
 * A file of fixed length with pages at multiples of DISK_ALIGNMENT_BYTES. It does not know which page is where; calls
 * at overlapping ranges may run in any order.
 *
 * The system reads from disk only into buffers of this class, so that a read that the disk completes late does not
 * write into memory that has another owner by then. It writes from the page's own memory if direct I/O can use that,
 * else from such a buffer. A write that the disk completes late may put other bytes into its range, in which there is
 * no page.
 */
export class PageFile {
  readonly mode: 'direct' | 'buffered';
  readonly capacityBytes: number;
  readonly #path: string;
  readonly #file: OpenFile;
  /** Whether other threads may copy pages. */
  readonly #canCopy: boolean;
  readonly #calls = nativeCalls();
  readonly #semaphore = new Semaphore(DISK_IN_FLIGHT_MAX_COUNT);
  readonly #buffers = new AlignedBuffers({ bufferBytes: DISK_PIECE_MAX_BYTES, count: DISK_STAGING_BUFFERS_COUNT });
  readonly #underWay = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  /**
   * Opens the file, which is created if it is missing (for this user only), and makes it `capacityBytes` long; see
   * {@link reserveSpace}. Throws `DiskError`, with the system's error as its cause, if it cannot be written, space is
   * short, or direct I/O is asked for and missing.
   */
  static async open(path: string, { capacityBytes, mode = 'auto', env }: PageFileOptions): Promise<PageFile> {
    assert(
      capacityBytes > 0 && capacityBytes % DISK_ALIGNMENT_BYTES === 0,
      () => `page file: a capacity of ${capacityBytes} bytes is not a multiple of ${DISK_ALIGNMENT_BYTES}`,
    );
    const space = { path, capacityBytes, env };
    const direct = mode === 'buffered' ? null : await openFile(space, 'direct');
    if (direct !== null) return new PageFile(direct, space, 'direct');
    if (mode === 'direct') {
      throw new DiskError(
        `${path}: there is no direct I/O on its file system; set another disk_path, or allow buffered I/O`,
      );
    }
    const buffered = (await openFile(space, 'buffered')) as OpenFile;
    if (mode === 'auto')
      env.log.log('info', 'disk tier: the file system has no direct I/O, using buffered I/O', { path });
    return new PageFile(buffered, space, 'buffered');
  }

  private constructor(file: OpenFile, { path, capacityBytes, env }: Space, mode: 'direct' | 'buffered') {
    this.#file = file;
    this.#canCopy = env.threads.canCopy;
    this.#path = path;
    this.capacityBytes = capacityBytes;
    this.mode = mode;
  }

  /**
   * Writes one page at `offset`, followed by zeros up to the next multiple of the alignment. The page's bytes are in
   * use until the promise is settled. Rejects with the system's error (ENOSPC, EIO, EROFS, ...). Any part of the range
   * may have been written by then; if the call is overdue, it may still be written later, with what the memory holds at
   * that time.
   */
  write(offset: number, page: PageBytes): Promise<void> {
    this.#checkRange('write', offset, page);
    return this.#run(() => this.#write(offset, page));
  }

  /**
   * Reads a page at `offset` into the targets, which are in use until the promise is settled, and resolves with the
   * CRC-32 of the bytes. Rejects with the system's error, with `DiskError` if the file was truncated, or soon after the
   * signal is aborted, whatever the disk does. After a rejection, any part of the targets may have been written.
   */
  read(offset: number, targets: PageBytes, signal?: CancelSignal): Promise<number> {
    this.#checkRange('read', offset, targets);
    const lending = new Lending(signal);
    return lending.until(this.#run(() => this.#read(offset, targets, lending)));
  }

  /** Gives the disk space from `offset` on back to the file system; the length stays. What was there reads as zeros. */
  giveBack(offset: number): Promise<void> {
    return this.#run(async () => {
      await this.#file.truncate(offset);
      await this.#file.truncate(this.capacityBytes);
    });
  }

  /** Resolves when all written pages are on the device. Rejects with the system's error. */
  sync(): Promise<void> {
    return this.#run(() => this.#file.datasync());
  }

  /** Resolves when the disk has read a block of the file and has synced the file. Rejects with the system's error. */
  probe(): Promise<void> {
    return this.#run(async () => {
      await this.#buffers.use((buffer) => this.#readAll(buffer.subarray(0, DISK_ALIGNMENT_BYTES), 0));
      await this.#file.datasync();
    });
  }

  /** Bytes that the file occupies on disk; some file systems add blocks of their own. */
  allocatedBytes(): Promise<number> {
    return this.#run(async () => (await this.#file.status()).allocatedBytes);
  }

  /** Starts no further calls, waits for those in progress, and closes the file. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= Promise.allSettled(this.#underWay).then(() => this.#file.close());
    return this.#closing;
  }

  async #run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined) throw new ClosedError(`page file ${this.#path}`);
    const running = this.#semaphore.use(work);
    this.#underWay.add(running);
    try {
      return await running;
    } finally {
      this.#underWay.delete(running);
    }
  }

  async #write(offset: number, page: PageBytes): Promise<void> {
    for (const { at, views, length } of piecesOf('write', page)) {
      const [view] = views;
      if (view !== undefined && views.length === 1 && isInPlace(view)) {
        await this.#writeAll(view, offset + at);
        continue;
      }
      await this.#buffers.use(async (buffer) => {
        await this.#copy(views, buffer.subarray(0, length));
        await this.#writeAll(buffer.subarray(0, alignedUp(length)).fill(0, length), offset + at);
      });
    }
  }

  async #read(offset: number, targets: PageBytes, lending: Lending): Promise<number> {
    let checksum: number | undefined;
    for (const { at, views, length } of piecesOf('read', targets)) {
      lending.check();
      const sum = await this.#buffers.use(async (buffer) => {
        await this.#readAll(buffer.subarray(0, alignedUp(length)), offset + at);
        return lending.during(() => this.#scatter(buffer.subarray(0, length), views));
      });
      if (length === targets.length) checksum = sum;
    }
    return checksum ?? lending.during(() => this.#checksumOf(targets));
  }

  async #writeAll(bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const at = position + done;
      const bytesWritten = await this.#file.write([bytes.subarray(done)], at, this.#calls);
      // A system that accepts no bytes must not turn this into an endless loop.
      if (bytesWritten === 0) throw new DiskError(`${this.#path}: the system wrote nothing at ${at}`);
      done += bytesWritten;
    }
  }

  async #readAll(bytes: Uint8Array, position: number): Promise<void> {
    const bytesRead = await this.#file.read([bytes], position, this.#calls);
    if (bytesRead === bytes.length) return;
    throw new DiskError(`${this.#path}: the file ends at ${position + bytesRead}: another program has truncated it`);
  }

  async #copy(sources: readonly Uint8Array[], target: Uint8Array): Promise<void> {
    const copies = new PageCopies({ isSummed: false });
    copies.add(sources, [target]);
    await this.#sumOf(copies, target.length);
  }

  #scatter(source: Uint8Array, targets: readonly Uint8Array[]): Promise<number> {
    const copies = new PageCopies();
    copies.add([source], targets);
    return this.#sumOf(copies, source.length);
  }

  #checksumOf({ views, length }: PageBytes): Promise<number> {
    const copies = new PageCopies();
    copies.add(views, null);
    return this.#sumOf(copies, length);
  }

  async #sumOf(copies: PageCopies, bytes: number): Promise<number> {
    const isForOthers = this.#canCopy && bytes >= DISK_COPY_OFF_THREAD_MIN_BYTES;
    const sums = isForOthers ? await copies.runOffThread() : copies.run();
    return sums[0] as number;
  }

  #checkRange(method: string, offset: number, { length }: PageBytes): void {
    const isAligned = Number.isSafeInteger(offset) && offset >= 0 && offset % DISK_ALIGNMENT_BYTES === 0;
    assert(
      isAligned && offset + length <= this.capacityBytes,
      () => `page file: cannot ${method} ${length} bytes at ${offset} of ${this.capacityBytes}`,
    );
  }

  /** Throws `InvariantError` unless the semaphore and the buffers are consistent. */
  verify(): void {
    this.#semaphore.verify();
    this.#buffers.verify();
  }
}

interface Space {
  readonly path: string;
  readonly capacityBytes: number;
  readonly env: PageFileOptions['env'];
}

/** Opens the file; null: direct I/O is asked for and not supported. */
async function openFile(space: Space, mode: 'direct' | 'buffered'): Promise<OpenFile | null> {
  const { path, env } = space;
  const isDirect = mode === 'direct';
  let file: OpenFile | undefined;
  try {
    file = await env.files.open(path, { write: true, create: true, mode: 0o600, direct: isDirect });
    if (!(await file.status()).isFile)
      throw new DiskError(`${path} is not a file: remove it, or set another disk_path`);
    await reserveSpace(file, space);
    if (isDirect) await readFirstBlock(file);
    return file;
  } catch (error) {
    await file?.close();
    // File systems without direct I/O fail with EINVAL, some at opening and some at reading.
    if (isDirect && codeOf(error) === 'EINVAL') return null;
    throw error instanceof DiskError ? error : cannotOpen(path, error);
  }
}

async function readFirstBlock(file: OpenFile): Promise<void> {
  const buffers = new AlignedBuffers({ bufferBytes: 64 * 1024, count: 1 });
  await buffers.use((buffer) => file.read([buffer.subarray(0, DISK_ALIGNMENT_BYTES)], 0));
}

function cannotOpen(path: string, cause: unknown): DiskError {
  const message = cause instanceof Error ? cause.message : String(cause);
  const advice = ADVICE[codeOf(cause) ?? ''] ?? 'see what the system says about it, or set another disk_path';
  return new DiskError(`${path} cannot be used: ${message}; ${advice}`, { cause });
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException | undefined)?.code;
}

interface Piece {
  /** Offset from the start of the page, a multiple of the alignment. */
  readonly at: number;
  readonly views: readonly Uint8Array[];
  readonly length: number;
}

/** Splits a page into pieces of DISK_PIECE_MAX_BYTES. Throws `ArgumentError` if its memory was freed meanwhile. */
function piecesOf(method: string, page: PageBytes): Piece[] {
  if (!isWhole(page))
    throw new ArgumentError(`page file: ${method}: the page's views have other than ${page.length} bytes`);
  const pieces: Piece[] = [];
  let views: Uint8Array[] = [];
  let at = 0;
  let length = 0;
  for (const view of page.views) {
    for (let from = 0; from < view.length; ) {
      const take = Math.min(view.length - from, DISK_PIECE_MAX_BYTES - length);
      views.push(take === view.length ? view : view.subarray(from, from + take));
      from += take;
      length += take;
      if (at + length < page.length && length < DISK_PIECE_MAX_BYTES) continue;
      pieces.push({ at, views, length });
      at += length;
      views = [];
      length = 0;
    }
  }
  return pieces;
}

/**
 * Memory of a caller that is used only at times, while slow work goes on. The caller gets it back when the signal is
 * aborted.
 */
class Lending {
  readonly #signal: CancelSignal | undefined;
  #use: Promise<unknown> = Promise.resolve();

  constructor(signal: CancelSignal | undefined) {
    this.#signal = signal;
  }

  /** Throws the signal's reason if the caller has the memory back already. */
  check(): void {
    checkNotAborted(this.#signal);
  }

  /** Uses the memory. Rejects with the signal's reason if the caller has it back already. */
  async during<T>(use: () => Promise<T>): Promise<T> {
    this.check();
    const using = use();
    this.#use = using.catch(() => {});
    return using;
  }

  /**
   * Settles as `work` does, or rejects with the signal's reason as soon as it is aborted and the memory is not in use.
   */
  until<T>(work: Promise<T>): Promise<T> {
    const signal = this.#signal;
    if (signal === undefined) return work;
    return new Promise((resolve, reject) => {
      const giveBack = (): void => void this.#use.then(() => reject(signal.reason));
      const stop = signal.aborted ? () => {} : onAbort(signal, giveBack);
      if (signal.aborted) giveBack();
      work.then(resolve, reject).finally(stop);
    });
  }
}

/**
 * Makes the file `capacityBytes` long. A longer file is truncated; missing space is reserved, without writing, if the
 * system supports it. Otherwise the file is sparse, and later writes may find the file system full. Throws `DiskError`
 * if space is short, and leaves the length as before; or with the system's error as its cause.
 */
async function reserveSpace(
  file: OpenFile,
  {
    path,
    capacityBytes,
    env: { files, log },
  }: { readonly path: string; readonly capacityBytes: number; readonly env: Environment },
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
