import { dirname, join } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import { type Files, isOverdue } from '../../base/environment/files.js';
import { DiskError } from '../../base/errors.js';
import {
  DISK_ALIGNMENT_BYTES,
  DISK_INDEX_BYTES_PER_PAGE,
  DISK_INDEX_FRACTION,
  DISK_INDEX_MIN_BYTES,
  DISK_MIN_BYTES,
  DISK_OVERHEAD_BYTES,
} from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { formatSize } from '../../base/sizes.js';
import { type IndexEntry, JOURNAL_MAGIC, Journal, JournalDamage, type JournalOptions } from '../journal/journal.js';
import { flush, flushNames } from '../journal/journal-file.js';
import { alignedUp } from './alignment.js';
import { DirectoryLock, distrustOfFolder, LOCK_FOLDER } from './directory-lock.js';
import { PageFile } from './page-file.js';

/** Format of the files with the store's id and with the last good start of its node. */
const FORMAT = 1;
const STORE_FILE = 'store.json';
const INDEX_FILE = 'index';
const PAGES_FILE = 'pages';
/** Folder for an index that could not be used, without its pages; only the latest one is kept. */
const SET_ASIDE = 'set-aside';

interface DiskFolderOptions {
  readonly path: string;
  readonly maxBytes: number;
  /** Bytes of `maxBytes` that the index may take. */
  readonly indexBytes: number;
  readonly nodeId: string;
  readonly mode: 'auto' | 'direct' | 'buffered';
  readonly env: Environment;
  readonly snapshot: JournalOptions['snapshot'];
}

/** A directory that only this process uses, with the store found in it. */
export interface DiskFolder {
  readonly path: string;
  readonly lock: DirectoryLock;
  readonly file: PageFile;
  readonly journal: Journal;
  readonly startNote: StartFile;
  /** Entries of the index, the least recently used first. */
  readonly entries: readonly IndexEntry[];
}

/** Default size of the index of a disk tier of `maxBytes`. */
export function defaultIndexBytes(maxBytes: number): number {
  return Math.max(DISK_INDEX_MIN_BYTES, Math.floor(maxBytes * DISK_INDEX_FRACTION));
}

/** Sizes of a disk tier. */
export interface DiskSizes {
  /** Bytes of disk for the tier. */
  readonly maxBytes: number;
  /** Bytes of `maxBytes` that the index may take; undefined: the default. */
  readonly indexBytes?: number;
}

/** The sizes of a disk tier for `pages` pages of `pageBytes`; only a few more pages fit. */
export function diskSizeFor(pages: number, pageBytes: number): Required<DiskSizes> {
  const indexBytes = Math.max(DISK_INDEX_MIN_BYTES, Math.ceil(pages * DISK_INDEX_BYTES_PER_PAGE));
  const spaceBytes = pages * alignedUp(pageBytes);
  return { maxBytes: Math.max(DISK_MIN_BYTES, spaceBytes + indexBytes + DISK_OVERHEAD_BYTES), indexBytes };
}

/**
 * Locks the directory, which is created if it is missing, and opens the store in it. A store that is damaged or of an
 * unknown version is set aside without its pages, and a new one is created. Throws `DiskError` if the directory is in
 * use or not writable, or if space is short, and removes what it has created.
 */
export async function openDiskFolder(options: DiskFolderOptions): Promise<DiskFolder> {
  const { path, maxBytes, indexBytes, nodeId, env } = options;
  if (!Number.isSafeInteger(maxBytes) || maxBytes < DISK_MIN_BYTES) {
    throw new DiskError(`disk tier at ${path}: needs at least ${formatSize(DISK_MIN_BYTES)}, got ${String(maxBytes)}`);
  }
  if (!Number.isSafeInteger(indexBytes) || indexBytes < DISK_INDEX_MIN_BYTES || indexBytes > maxBytes / 2) {
    throw new DiskError(
      `disk tier at ${path}: disk_index_size: its index may have ${formatSize(DISK_INDEX_MIN_BYTES)} to half of the disk, got ${Number.isSafeInteger(indexBytes) ? formatSize(indexBytes) : String(indexBytes)}`,
    );
  }
  const made: string[] = [];
  const distrust = await makeFolder(path, env.files, made)
    .then(async () => distrustOfFolder(path, await env.files.status(path)))
    .catch((cause: unknown) => {
      const advice = isOverdue(cause) ? 'look at the disk' : 'choose a path that this user may write';
      const reason = `${path} cannot be made: ${messageOf(cause)}; ${advice}`;
      throw new DiskError(`disk tier: ${reason}`, { cause });
    });
  if (distrust !== undefined) throw new DiskError(`disk tier: ${distrust.why}; ${distrust.advice}`);
  let lock: DirectoryLock | undefined;
  try {
    lock = await DirectoryLock.acquire(path, { nodeId, env });
    return await openLocked(options, lock);
  } catch (cause) {
    // Removing the lock would wait for a disk that does not answer. The end of this process frees it.
    if (!isOverdue(cause)) await lock?.release();
    await removeMade(path, made, env.files);
    if (cause instanceof DiskError) throw cause;
    throw new DiskError(`disk tier at ${path} cannot be opened: ${messageOf(cause)}`, { cause });
  }
}

/** Resolves when the disk reads, writes and syncs, and the journal has all changes. Rejects with the system's error. */
export async function probeFolder({ journal, file }: DiskFolder): Promise<void> {
  await file.probe();
  await (journal.isBroken ? journal.rewrite() : journal.flush());
}

/**
 * Creates missing directories level by level, so that an error names the first one that cannot be created. Adds each to
 * `made`, the outermost first.
 */
async function makeFolder(path: string, files: Files, made: string[]): Promise<void> {
  try {
    await files.mkdir(path);
    made.push(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
    await makeFolder(dirname(path), files, made);
    await files.mkdir(path);
    made.push(path);
  }
}

/**
 * Removes the directories that were made for a store, unless there is a store now. Directories in which another process
 * has put something stay.
 */
async function removeMade(path: string, made: readonly string[], files: Files): Promise<void> {
  if (
    await files.status(join(path, STORE_FILE)).then(
      () => true,
      () => false,
    )
  )
    return;
  for (const each of [join(path, LOCK_FOLDER), ...made.toReversed()]) await files.rmdir(each).catch(() => {});
}

async function openLocked(options: DiskFolderOptions, lock: DirectoryLock): Promise<DiskFolder> {
  const { path, env, maxBytes, indexBytes, snapshot, mode } = options;
  const journalOptions = { maxBytes: indexBytes, env, snapshot };
  const found = await openFound(path, journalOptions).catch(async (error: unknown) => {
    if (!(error instanceof JournalDamage)) throw error;
    await setAside(path, error.message, env);
    return null;
  });
  let { journal, entries } = found ?? { journal: undefined, entries: [] };
  try {
    const aside = await asideBytes(path, env.files);
    const spaceBytes = maxBytes - indexBytes - DISK_OVERHEAD_BYTES - aside;
    if (spaceBytes < maxBytes / 4)
      throw new DiskError(
        `disk tier: ${join(path, SET_ASIDE)} takes ${formatSize(aside)} of ${formatSize(maxBytes)}: remove it, or set a larger disk_size`,
      );
    const capacityBytes = Math.floor(spaceBytes / DISK_ALIGNMENT_BYTES) * DISK_ALIGNMENT_BYTES;
    if (journal === undefined) {
      const storeId = Buffer.from(env.random.bytes(16)).toString('hex');
      // The store file comes first, because it marks the other files as those of a store.
      await writeStoreFile(path, storeId, env.files);
      journal = await Journal.create(join(path, INDEX_FILE), { ...journalOptions, storeId });
    }
    const file = await PageFile.open(join(path, PAGES_FILE), { capacityBytes, mode, env });
    // Names are flushed before the index lists pages, so that a loss of power cannot leave it without the page file.
    await flushNames(path, env.files);
    return { path, lock, file, journal, startNote: await StartFile.open(path, env), entries };
  } catch (error) {
    await journal?.close();
    if (found === null) await removeStore(path, env.files);
    throw error;
  }
}

/** Removes the files of a store that was created and could not be opened. */
async function removeStore(path: string, files: Files): Promise<void> {
  for (const name of [PAGES_FILE, INDEX_FILE, STORE_FILE]) {
    await files.rm(join(path, name), { force: true }).catch(() => {});
  }
}

/**
 * Opens an existing store; null: there is none. Throws `JournalDamage` if it cannot be used, and `DiskError` if the
 * files are not of a store.
 */
async function openFound(path: string, options: Omit<JournalOptions, 'storeId'>) {
  const { files } = options.env;
  const [, hasIndex, hasPages] = await Promise.all(
    [STORE_FILE, INDEX_FILE, PAGES_FILE].map((name) => hasFile(path, name, files)),
  );
  const store = (await files.readFile(join(path, STORE_FILE)).catch(ifMissing))?.toString() ?? null;
  if (store === null) {
    if (hasIndex && (await isJournal(join(path, INDEX_FILE), files)))
      throw new JournalDamage(`${STORE_FILE} is missing`);
    if (hasIndex || hasPages)
      throw new DiskError(
        `disk tier: ${path} has a file ${hasIndex ? INDEX_FILE : PAGES_FILE} that is no store's: choose an empty directory, or move it away`,
      );
    return null;
  }
  const storeId = storeIdOf(store);
  // The first opening was interrupted, or all files are gone: nothing can be lost.
  if (!hasIndex && !hasPages) return null;
  if (!hasIndex) throw new JournalDamage(`${INDEX_FILE} is missing`);
  const found = await Journal.open(join(path, INDEX_FILE), { ...options, storeId });
  if (hasPages || found.entries.length === 0) return found;
  await found.journal.close();
  throw new JournalDamage(`${PAGES_FILE} is missing`);
}

async function isJournal(path: string, files: Files): Promise<boolean> {
  const file = await files.open(path);
  try {
    const start = Buffer.alloc(JOURNAL_MAGIC.length);
    await file.read([start], 0);
    return start.toString('latin1') === JOURNAL_MAGIC;
  } finally {
    await file.close();
  }
}

function storeIdOf(text: string): string {
  let store: { format?: unknown; store_id?: unknown } | null;
  try {
    store = JSON.parse(text) as typeof store;
  } catch {
    throw new JournalDamage(`${STORE_FILE} is damaged`);
  }
  const { format, store_id: storeId } = store ?? {};
  if (format !== FORMAT)
    throw new JournalDamage(`format ${shown(format)} is unknown to this version, which has ${FORMAT}`);
  if (typeof storeId !== 'string' || !/^[0-9a-f]{32}$/.test(storeId))
    throw new JournalDamage(`${STORE_FILE} is damaged`);
  return storeId;
}

/** Writes the store file; resolves when its content and name are on disk, because losing it would cost all pages. */
async function writeStoreFile(path: string, storeId: string, files: Files): Promise<void> {
  const temporary = join(path, `${STORE_FILE}.new`);
  await files.writeFile(temporary, `${JSON.stringify({ format: FORMAT, store_id: storeId })}\n`);
  await flush(temporary, files, { write: true });
  await files.rename(temporary, join(path, STORE_FILE));
  await flushNames(path, files);
}

/**
 * Sets a store aside and deletes its pages, which are useless without their index and would take the space of the new
 * store.
 */
async function setAside(path: string, reason: string, { files, log, metrics }: Environment): Promise<void> {
  const aside = join(path, SET_ASIDE);
  await files.rm(aside, { recursive: true, force: true });
  await files.mkdir(aside);
  for (const name of [STORE_FILE, INDEX_FILE]) await files.rename(join(path, name), join(aside, name)).catch(ifMissing);
  const pages = join(path, PAGES_FILE);
  const isFolder = (await files.status(pages).catch(ifMissing))?.isDirectory ?? false;
  // A folder of that name was not made by a store, so it is kept.
  if (isFolder) await files.rename(pages, join(aside, PAGES_FILE));
  else await files.rm(pages, { force: true });
  log.log('error', 'disk tier: the existing store cannot be used and is set aside; starting with an empty one', {
    path,
    reason,
    set_aside: aside,
  });
  metrics.count('meshcache_disk_set_aside_total');
}

async function asideBytes(path: string, files: Files): Promise<number> {
  const aside = join(path, SET_ASIDE);
  const names = (await files.readdir(aside, { recursive: true }).catch(ifMissing)) ?? [];
  const sizes = await Promise.all(names.map(async (name) => (await files.status(join(aside, name))).sizeBytes));
  return sizes.reduce((sum, size) => sum + size, 0);
}

function ifMissing(error: unknown): null {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
  throw error;
}

/** Whether the file exists. Throws `DiskError` if another user owns it, `JournalDamage` if it is not a file. */
async function hasFile(path: string, name: string, files: Files): Promise<boolean> {
  const found = await files.status(join(path, name)).catch(ifMissing);
  if (found?.isForeign) {
    throw new DiskError(
      `${join(path, name)} belongs to another user; choose an empty folder of this user, or remove it`,
    );
  }
  if (found !== null && !found.isFile) throw new JournalDamage(`${name} is not a file`);
  return found !== null;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const NAME = 'start.json';

/**
 * The file of a disk tier that names the last start of its node that knew all pages to be good (`FORMAT.md`). It is not
 * synced, because a missing, outdated or damaged file costs pages at most.
 */
class StartFile {
  readonly #path: string;
  readonly #env: Environment;
  #start: number;
  /** Resolves when the last write has ended. */
  #written: Promise<void> = Promise.resolve();

  /** Reads the file in the directory `folder`, if there is one. */
  static async open(folder: string, env: Environment): Promise<StartFile> {
    const path = join(folder, NAME);
    return new StartFile(path, await read(path, env), env);
  }

  private constructor(path: string, start: number, env: Environment) {
    this.#path = path;
    this.#start = start;
    this.#env = env;
  }

  /** The start, see `digestOfStart`; 0: not known. */
  get start(): number {
    return this.#start;
  }

  /** Writes another start in the background. */
  note(start: number): void {
    this.#start = start;
    this.#written = this.#written.then(() => this.#write(start));
  }

  /** Resolves when everything noted has been written, or has failed to be. */
  async close(): Promise<void> {
    await this.#written;
  }

  async #write(start: number): Promise<void> {
    const { files, log } = this.#env;
    const temporary = `${this.#path}.new`;
    try {
      await files.writeFile(temporary, `${JSON.stringify({ format: FORMAT, start })}\n`);
      await files.rename(temporary, this.#path);
    } catch (error) {
      log.log(
        'warn',
        'disk tier: the last start cannot be noted; if this node is away for long, its pages may be lost',
        {
          path: this.#path,
          error: String(error),
        },
      );
    }
  }
}

async function read(path: string, { files }: Environment): Promise<number> {
  try {
    const { format, start } = JSON.parse((await files.readFile(path)).toString()) as Record<string, unknown>;
    return format === FORMAT && Number.isSafeInteger(start) && (start as number) > 0 ? (start as number) : 0;
  } catch {
    return 0;
  }
}
