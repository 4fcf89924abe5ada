import { dirname } from 'node:path';
import { assert, assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import { Mutex } from '../../base/concurrency/mutex.js';
import type { Environment } from '../../base/environment/environment.js';
import { isOverdue } from '../../base/environment/files.js';
import { ArgumentError, ClosedError, DiskError } from '../../base/errors.js';
import {
  DISK_ALIGNMENT_BYTES,
  DISK_RETRY_AFTER_MS,
  JOURNAL_BLOCK_MAX_BYTES,
  JOURNAL_LIVE_FRACTION,
  JOURNAL_MIN_BYTES,
  JOURNAL_REWRITE_FRACTION,
  JOURNAL_USE_DELAY_MS,
  JOURNAL_USES_MAX_COUNT,
} from '../../base/limits.js';
import { flushNames, JournalFile } from './journal-file.js';
import { type IndexEntry, putRecordBytes, RecordWriter } from './journal-format.js';
import { counted, EMPTY_SNAPSHOT, JournalRewriting, rewrittenBytes, type Snapshot } from './journal-rewriting.js';

export { type IndexEntry, JOURNAL_MAGIC, JournalDamage } from './journal-format.js';
export type { Snapshot } from './journal-rewriting.js';

export interface JournalOptions {
  /** Id of the store, 16 random bytes in lower-case hexadecimal. The journal of another store is refused. */
  readonly storeId: string;
  /** Most disk space of the journal, including the new file while it is rewritten. */
  readonly maxBytes: number;
  readonly env: Environment;
  /**
   * Takes a snapshot of the listed pages. It is called once for each rewriting, which reads the snapshot's entries in
   * slices while other work goes on. It must match the calls to the journal, and be complete from the first flush on.
   */
  readonly snapshot: () => Snapshot;
}

/** Part of the limit by which the file may grow before a failed rewriting is tried again. */
const RETRY_FRACTION = 1 / 16;
const BLOCK_FRACTION = 1 / 16;

/**
 * The index of the page file: a file that is only appended to and, when it has become long, rewritten. Replaying it
 * gives the pages and the order of their use. FORMAT.md describes the file.
 *
 * A change is in the file when a later {@link flush} has resolved. A failed write breaks the journal: every flush
 * rejects until a {@link rewrite} succeeds, and the file on disk stays as before. But if the file still lists a page
 * that was removed, it is deleted, which needs no space.
 *
 * Accounting: `#liveBytes` is the size of the records of all pages, if all of them expire. It is no larger if the store
 * removes a page before it puts another one under its key or at its place; otherwise it is larger until the journal is
 * opened again.
 */
export class Journal {
  readonly #path: string;
  readonly #options: JournalOptions;
  readonly #env: JournalOptions['env'];
  /** Budget for both files; each may take a part of a file system block more. */
  readonly #budgetBytes: number;
  readonly #records: RecordWriter;
  readonly #mutex = new Mutex();
  /** Offsets of pages used since the last record, the most recent last. */
  readonly #uses = new Set<number>();
  #file: JournalFile;
  #rewriting: JournalRewriting | undefined;
  #rewritten: Promise<void> = Promise.resolve();
  #rewriteAtBytes: number;
  #entries = 0;
  #liveBytes = 0;
  #rewrites = 0;
  #failure: { readonly error: unknown } | undefined;
  /** Whether the file still lists a removed page. */
  #hasRemovals = false;
  #givingUp: Promise<void> = Promise.resolve();
  #isDeleting = false;
  #isUndeletedTold = false;
  #cancelRetry: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();
  #nextFlush: Promise<void> | undefined;
  #syncing: Promise<void> = Promise.resolve();
  #nextSync: Promise<void> | undefined;
  /** Whether the name of the file on the medium may still lead to an earlier one. */
  #isNameNew = false;
  #cancelTimer: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  /** Creates a journal without pages; throws `DiskError` if the file exists. */
  static async create(path: string, options: JournalOptions): Promise<Journal> {
    checkMaxBytes(options.maxBytes);
    const isThere = await options.env.files.status(path).then(
      () => true,
      () => false,
    );
    if (isThere) throw new DiskError(`there is an index at ${path} already; open it, or move it away`);
    const first = { storeId: options.storeId, snapshot: EMPTY_SNAPSHOT, liveBytes: 0, files: options.env.files };
    const beginning = new JournalRewriting(`${path}.new`, first);
    try {
      await beginning.write();
      return new Journal(path, options, await beginning.replace(path));
    } catch (error) {
      await beginning.discard();
      throw error;
    }
  }

  /**
   * Opens an existing journal and returns it with its pages, the least recently used first. Throws `JournalDamage` and
   * leaves the file unchanged if it cannot be used; otherwise the system's error.
   */
  static async open(path: string, options: JournalOptions): Promise<{ journal: Journal; entries: IndexEntry[] }> {
    checkMaxBytes(options.maxBytes);
    await options.env.files.rm(`${path}.new`, { force: true });
    const { file, entries, liveBytes } = await JournalFile.open(path, options.storeId, options.env);
    const journal = new Journal(path, options, file);
    journal.#entries = entries.length;
    journal.#liveBytes = liveBytes;
    return { journal, entries };
  }

  private constructor(path: string, options: JournalOptions, file: JournalFile) {
    this.#path = path;
    this.#options = options;
    this.#env = options.env;
    this.#budgetBytes = options.maxBytes - 2 * DISK_ALIGNMENT_BYTES;
    this.#records = new RecordWriter(Math.min(JOURNAL_BLOCK_MAX_BYTES, this.#budgetBytes * BLOCK_FRACTION));
    this.#rewriteAtBytes = this.#budgetBytes * JOURNAL_REWRITE_FRACTION;
    this.#file = file;
  }

  /**
   * Lists a page as the most recently used one; it replaces pages with the same key or offset. Throws `ArgumentError`
   * if the key is not well-formed Unicode or too long.
   */
  put(entry: IndexEntry): void {
    this.#record(() => this.#records.put(entry));
    this.#rewriting?.put(entry.key);
    this.#entries++;
    this.#liveBytes += putRecordBytes(entry.key);
  }

  /** Updates a listed page that has been set again and keeps its place. */
  update(entry: IndexEntry): void {
    this.#record(() => this.#records.put(entry));
    this.#rewriting?.put(entry.key);
  }

  /** Removes the listed page with this key. */
  remove(key: string): void {
    this.#record(() => this.#records.remove(key));
    this.#removed();
    this.#entries = reduced('journal: entries', this.#entries, 1);
    this.#liveBytes = reduced('journal: live bytes', this.#liveBytes, putRecordBytes(key));
  }

  /** Records that the page at `offset` is the most recently used one, within JOURNAL_USE_DELAY_MS. */
  use(offset: number): void {
    this.#checkOpen();
    if (!this.#isRecording) return;
    this.#uses.delete(offset);
    this.#uses.add(offset);
    if (this.#uses.size >= JOURNAL_USES_MAX_COUNT) this.#recordUses();
    this.#schedule();
  }

  /** Whether one more page with this key fits; otherwise others must be removed first. */
  hasRoomFor(key: string): boolean {
    return this.#liveBytes + putRecordBytes(key) <= this.#budgetBytes * JOURNAL_LIVE_FRACTION;
  }

  /**
   * Resolves when all changes so far are written to the file; a crash of the machine may still lose them. Rejects with
   * the system's error, and from then on until the journal is rewritten.
   */
  flush(): Promise<void> {
    return this.#closing === undefined ? this.#flush() : Promise.reject(new ClosedError('the index of the disk'));
  }

  /**
   * Resolves when no loss of power can undo the removals so far: they are on the medium, or the file has been deleted
   * because it could not be written. Rejects if neither is possible; the file is then deleted as soon as it can be.
   */
  sync(): Promise<void> {
    if (this.#closing !== undefined) return this.#closing;
    this.#nextSync ??= this.#syncing.then(() => {
      const sync = this.#sync();
      this.#nextSync = undefined;
      this.#syncing = sync.catch(() => {});
      return sync;
    });
    return this.#nextSync;
  }

  /**
   * Replaces the file by one without outdated records, which repairs a broken journal. Rejects with the system's error.
   */
  rewrite(): Promise<void> {
    if (this.#closing !== undefined) return Promise.reject(new ClosedError('the index of the disk'));
    return this.#startRewriting();
  }

  /** Writes and syncs all changes and closes the file. Idempotent. Rejects if a change was not written. */
  close(): Promise<void> {
    this.#closing ??= this.#close(this.#flush());
    return this.#closing;
  }

  /** Whether changes are kept only by a {@link rewrite}, because the file could not be written. */
  get isBroken(): boolean {
    return this.#failure !== undefined;
  }

  /** Whether the file still lists removed pages, because it could be neither written nor deleted so far. */
  get keepsRemoved(): boolean {
    return this.isBroken && this.#hasRemovals;
  }

  stats(): { bytes: number; entries: number; rewrites: number } {
    const bytes = this.#file.bytes + (this.#rewriting?.bytes ?? 0);
    return { bytes, entries: this.#entries, rewrites: this.#rewrites };
  }

  /** Whether changes are recorded. A broken journal needs no records, because it is repaired from a snapshot. */
  get #isRecording(): boolean {
    return this.#failure === undefined || this.#rewriting !== undefined;
  }

  #record(write: () => void): void {
    this.#checkOpen();
    if (!this.#isRecording) return;
    this.#recordUses();
    write();
    if (this.#records.bytes >= JOURNAL_BLOCK_MAX_BYTES) this.#flushInBackground();
    else this.#schedule();
  }

  #recordUses(): void {
    for (const offset of this.#uses) this.#records.use(offset);
    this.#uses.clear();
  }

  #schedule(): void {
    this.#cancelTimer ??= this.#env.clock.after(JOURNAL_USE_DELAY_MS, () => {
      this.#cancelTimer = undefined;
      this.#flushInBackground();
    });
  }

  #stopTimer(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  /** Flushes without waiting; the next flush reports a failure. */
  #flushInBackground(): void {
    this.#flush().catch(() => {});
  }

  /** Writes all changes; calls during a write share the next one. */
  #flush(): Promise<void> {
    this.#nextFlush ??= this.#writing.then(() => {
      const flush = this.#writeAll();
      this.#nextFlush = undefined;
      this.#writing = flush.catch(() => {});
      return flush;
    });
    return this.#nextFlush;
  }

  async #writeAll(): Promise<void> {
    this.#stopTimer();
    if (this.#failure !== undefined) {
      await this.#givingUp.catch(() => {});
      throw this.#failure.error;
    }
    this.#recordUses();
    const blocks = this.#records.take();
    const hadRemovals = this.#hasRemovals;
    this.#hasRemovals = false;
    for (const [i, block] of blocks.entries()) {
      const fail = (error: unknown) => this.#fail(error, blocks.slice(i), hadRemovals);
      await this.#makeRoom(block.length).catch(fail);
      await this.#mutex.run(async () => {
        await this.#file.append(block).catch(fail);
        this.#rewriting?.add(block);
      });
    }
  }

  /**
   * Brings all changes to the medium. If that fails, a rewriting in progress has them too; without one, the file is
   * deleted.
   */
  async #sync(): Promise<void> {
    try {
      await this.#flush();
      await this.#mutex.run(() => this.#syncFile().catch((error: unknown) => this.#fail(error, [], true)));
    } catch {
      await this.#rewritten.catch(() => {});
      if (this.#failure === undefined) return this.#sync();
      await this.#givingUp;
    }
  }

  async #syncFile(): Promise<void> {
    await this.#file.sync();
    if (!this.#isNameNew) return;
    await flushNames(dirname(this.#path), this.#env.files);
    this.#isNameNew = false;
  }

  /** Handles a failed write; its changes are in a rewriting in progress, or in the snapshot of a later one. */
  #fail(error: unknown, blocks: readonly Buffer[], hadRemovals: boolean): never {
    this.#failure = { error };
    this.#env.log.log('warn', 'disk tier: the index cannot be written', { path: this.#path, error: String(error) });
    if (hadRemovals) this.#hasRemovals = true;
    if (this.#rewriting === undefined) this.#giveUp();
    else for (const block of blocks) this.#rewriting.add(block);
    throw error;
  }

  /**
   * Breaks the journal: changes are not kept until it is rewritten, and the file is deleted if it lists removed pages.
   */
  #giveUp(): void {
    this.#forgetRecords();
    if (!this.#hasRemovals || this.#isDeleting) return;
    this.#isDeleting = true;
    const deleting = this.#mutex.run(() => this.#delete());
    this.#givingUp = deleting.finally(() => {
      this.#isDeleting = false;
    });
    this.#givingUp.catch(() => {});
  }

  /** Deletes a broken file that lists removed pages; if that fails, it is tried again. */
  async #delete(): Promise<void> {
    if (this.#failure === undefined) return;
    this.#hasRemovals = false;
    try {
      await this.#env.files.rm(this.#path, { force: true });
      await flushNames(dirname(this.#path), this.#env.files);
      this.#isUndeletedTold = false;
    } catch (error) {
      this.#hasRemovals = true;
      this.#tellUndeleted(error);
      this.#cancelRetry?.();
      if (this.#closing === undefined)
        this.#cancelRetry = this.#env.clock.after(DISK_RETRY_AFTER_MS, () => this.#retryDeleting());
      throw error;
    }
  }

  /** Logs that a file with removed pages remains; only once until the file is gone. */
  #tellUndeleted(error: unknown): void {
    if (this.#isUndeletedTold) return;
    this.#isUndeletedTold = true;
    const what =
      'disk tier: the index lists removed pages and cannot be deleted; delete it before this node starts again';
    this.#env.log.log('warn', what, { path: this.#path, error: String(error) });
  }

  #retryDeleting(): void {
    if (this.#failure !== undefined && this.#rewriting === undefined) this.#giveUp();
  }

  #removed(): void {
    this.#hasRemovals = true;
    if (!this.#isRecording) this.#giveUp();
  }

  #forgetRecords(): void {
    this.#records.take();
    this.#uses.clear();
  }

  /** Starts a rewriting when it is due, and waits for its end if the limit would be exceeded before that. */
  async #makeRoom(bytes: number): Promise<void> {
    for (;;) {
      const grownBytes = this.#file.bytes + bytes;
      const rewriting = this.#rewriting;
      if (rewriting !== undefined) {
        if (grownBytes + rewriting.maxBytes + bytes <= this.#budgetBytes) return;
        await this.#rewritten;
        continue;
      }
      const isNewFileSure = grownBytes + rewrittenBytes(this.#liveBytes) <= this.#budgetBytes;
      if (grownBytes <= this.#rewriteAtBytes && isNewFileSure) return;
      this.#startRewriting().catch(() => {});
    }
  }

  #startRewriting(): Promise<void> {
    if (this.#rewriting !== undefined) return this.#rewritten;
    const { storeId, snapshot } = this.#options;
    const rewriting = new JournalRewriting(`${this.#path}.new`, {
      storeId,
      snapshot: snapshot(),
      liveBytes: this.#liveBytes,
      files: this.#env.files,
    });
    this.#rewriting = rewriting;
    this.#rewritten = this.#runRewriting(rewriting);
    return this.#rewritten;
  }

  async #runRewriting(rewriting: JournalRewriting): Promise<void> {
    try {
      this.#checkRoomToRewrite(rewriting);
      await rewriting.write();
      await this.#mutex.run(() => this.#replaceBy(rewriting));
    } catch (error) {
      await rewriting.discard().catch(() => {});
      this.#rewriteAtBytes = this.#file.bytes + this.#budgetBytes * RETRY_FRACTION;
      this.#rewriting = undefined;
      this.#recount();
      // The overdue call may still replace the file, and what is written to the old one would be lost.
      if (isOverdue(error)) this.#failure ??= { error };
      if (isOverdue(error)) this.#hasRemovals = true;
      // This rewriting was meant to repair an earlier failure.
      if (this.#failure !== undefined) this.#giveUp();
      await this.#givingUp.catch(() => {});
      throw error;
    }
  }

  /**
   * Throws unless a rewriting fits. A file that exceeds a lowered limit from the start can only be replaced by
   * exceeding the limit.
   */
  #checkRoomToRewrite({ maxBytes }: JournalRewriting): void {
    const bothBytes = this.#file.bytes + maxBytes;
    if (bothBytes <= this.#budgetBytes || this.#file.bytes > this.#budgetBytes) return;
    throw new DiskError(
      `the index at ${this.#path} may take ${this.#options.maxBytes} bytes, and needs ${bothBytes} to be rewritten; ask for room before pages are put`,
    );
  }

  /** Recounts `#liveBytes`, because a count that is too low would make every rewriting fail. */
  #recount(): void {
    const { entries, liveBytes } = counted(this.#options.snapshot());
    this.#entries = entries;
    this.#liveBytes = liveBytes;
  }

  async #replaceBy(rewriting: JournalRewriting): Promise<void> {
    const file = await rewriting.replace(this.#path);
    const old = this.#file;
    this.#file = file;
    this.#isNameNew = true;
    this.#rewriting = undefined;
    this.#failure = undefined;
    this.#rewrites++;
    if (this.#closing === undefined) this.#schedule();
    this.#rewriteAtBytes = Math.max(
      this.#budgetBytes * JOURNAL_REWRITE_FRACTION,
      file.bytes + this.#budgetBytes * RETRY_FRACTION,
    );
    await old.close().catch(() => {});
  }

  async #close(flush: Promise<void>): Promise<void> {
    try {
      await flush;
    } finally {
      this.#stopTimer();
      this.#cancelRetry?.();
      this.#rewriting?.stop();
      await this.#rewritten.catch(() => {});
      this.#retryDeleting();
      await this.#givingUp.catch(() => {});
      await this.#syncing;
      try {
        await this.#syncFile();
      } finally {
        await this.#file.close();
      }
    }
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw new ClosedError('the index of the disk');
  }

  /**
   * Throws `InvariantError` unless the journal's counts match the pages of a snapshot. Valid from the first flush on,
   * for a store that removes a page before it puts another one under its key or at its place. Takes time in proportion
   * to the number of pages.
   */
  verify(): void {
    const { entries, liveBytes } = counted(this.#options.snapshot());
    assertEqual('journal: pages', this.#entries, entries);
    assertEqual('journal: bytes of their records', this.#liveBytes, liveBytes);
    assertAtMost('journal: uses that wait', this.#uses.size, JOURNAL_USES_MAX_COUNT);
    const kept = this.#uses.size + this.#records.bytes;
    assert(this.#isRecording || kept === 0, () => `journal: broken, and keeps ${kept} bytes and uses`);
  }
}

function checkMaxBytes(maxBytes: number): void {
  if (Number.isSafeInteger(maxBytes) && maxBytes >= JOURNAL_MIN_BYTES) return;
  throw new ArgumentError(`a journal needs at least ${JOURNAL_MIN_BYTES} bytes, got ${String(maxBytes)}`);
}
