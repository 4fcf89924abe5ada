import { assert, assertAtMost, assertEqual } from '../../base/assert.js';
import { Mutex } from '../../base/concurrency/mutex.js';
import type { Environment } from '../../base/environment/environment.js';
import { ArgumentError, ClosedError, DiskError } from '../../base/errors.js';
import {
  DISK_ALIGNMENT_BYTES,
  JOURNAL_BLOCK_MAX_BYTES,
  JOURNAL_LIVE_FRACTION,
  JOURNAL_MIN_BYTES,
  JOURNAL_REWRITE_FRACTION,
  JOURNAL_USE_DELAY_MS,
  JOURNAL_USES_MAX_COUNT,
} from '../../base/limits.js';
import { JournalFile } from './journal-file.js';
import { type IndexEntry, putRecordBytes, RecordWriter } from './journal-format.js';
import { JournalRewriting, rewrittenBytes, type Snapshot } from './journal-rewriting.js';

export { type IndexEntry, JOURNAL_MAGIC, JournalDamage } from './journal-format.js';
export type { Snapshot } from './journal-rewriting.js';

export interface JournalOptions {
  /** 16 random bytes in lower-case hexadecimal. The journal of another store is refused. */
  readonly storeId: string;
  /** What the journal takes on disk, at most, the file that replaces it while it is rewritten included. */
  readonly maxBytes: number;
  readonly env: Pick<Environment, 'files' | 'clock' | 'log'>;
  /**
   * The pages that are listed now: called once for each rewriting, its entries slice by slice while other work goes on. It must
   * be in step with what the journal was told, and complete from the first flush on.
   */
  readonly snapshot: () => Snapshot;
}

const EMPTY: Snapshot = { count: 0, keysAt: () => [], entriesOf: () => [] };
/** Part of the limit by which the file may grow before a rewriting that has failed is tried again. */
const RETRY_FRACTION = 1 / 16;
const BLOCK_FRACTION = 1 / 16;

/**
 * Which pages lie where, as a file that is only ever appended to and, when it has become long, rewritten. Replaying it gives
 * the pages and the order of their use. FORMAT.md draws the file.
 *
 * What is said is in the file when a {@link flush} that was called afterwards has resolved. A write that fails breaks the
 * journal: every flush rejects until a {@link rewrite} succeeds; the file on disk stays as it was before. Unless a page has been
 * removed that it still has: then it is deleted, which takes no space.
 *
 * Accounting: `#liveBytes` is what the records of all pages take. It is exact while a page is removed before its key
 * or its place is put anew, which is for the store to do; otherwise it is too much, and exact again when it is opened.
 */
export class Journal {
  readonly #path: string;
  readonly #options: JournalOptions;
  readonly #env: JournalOptions['env'];
  /** Of both files; each may take part of a block of the file system more. */
  readonly #budgetBytes: number;
  readonly #records: RecordWriter;
  readonly #mutex = new Mutex();
  /** Offsets of pages that were used since the last record, the most recent last. */
  readonly #uses = new Set<number>();
  #file: JournalFile;
  #rewriting: JournalRewriting | undefined;
  #rewritten: Promise<void> = Promise.resolve();
  #rewriteAtBytes: number;
  #entries = 0;
  #liveBytes = 0;
  #rewrites = 0;
  #failure: { readonly error: unknown } | undefined;
  /** Something was removed that the file still has. */
  #hasRemovals = false;
  #givingUp: Promise<void> | undefined;
  #writing: Promise<void> = Promise.resolve();
  #nextFlush: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  /** A new journal without pages; `DiskError` when there is one. */
  static async create(path: string, options: JournalOptions): Promise<Journal> {
    checkMaxBytes(options.maxBytes);
    const isThere = await options.env.files.status(path).then(
      () => true,
      () => false,
    );
    if (isThere) throw new DiskError(`there is an index at ${path} already; open it, or move it away`);
    const first = { storeId: options.storeId, snapshot: EMPTY, liveBytes: 0, files: options.env.files };
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
   * An existing journal and its pages, least recently used first. Throws `JournalDamage`, and leaves the file as it is,
   * when it cannot be used; otherwise the system's error.
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
   * A page is listed, as the most recently used one; it takes the place of one with the same key or the same offset. Throws
   * `ArgumentError` when the key is not well-formed Unicode or too long.
   */
  put(entry: IndexEntry): void {
    this.#record(() => this.#records.put(entry));
    this.#rewriting?.put(entry.key);
    this.#entries++;
    this.#liveBytes += putRecordBytes(entry.key);
  }

  /** A page that is listed, and lies where it did, has been set again. */
  update(entry: IndexEntry): void {
    this.#record(() => this.#records.put(entry));
    this.#rewriting?.put(entry.key);
  }

  /** The page with this key, which is listed, is gone. */
  remove(key: string): void {
    this.#record(() => this.#records.remove(key));
    this.#removed();
    this.#entries--;
    this.#liveBytes -= putRecordBytes(key);
  }

  /** The page at `offset` is the most recently used one; in the file within JOURNAL_USE_DELAY_MS. */
  use(offset: number): void {
    this.#checkOpen();
    if (!this.#isRecording) return;
    this.#uses.delete(offset);
    this.#uses.add(offset);
    if (this.#uses.size >= JOURNAL_USES_MAX_COUNT) this.#recordUses();
    this.#schedule();
  }

  /** All pages are gone. */
  clear(): void {
    this.#uses.clear();
    this.#record(() => this.#records.clear());
    this.#removed();
    this.#entries = 0;
    this.#liveBytes = 0;
  }

  /** Whether one more page with this key fits; if not, others must be removed before it is put. */
  hasRoomFor(key: string): boolean {
    return this.#liveBytes + putRecordBytes(key) <= this.#budgetBytes * JOURNAL_LIVE_FRACTION;
  }

  /**
   * Resolves when everything said so far is in the file, as the system sees it; a crash of the machine may still take it.
   * Rejects with the system's error, and from then on until the journal is rewritten.
   */
  flush(): Promise<void> {
    return this.#closing === undefined ? this.#flush() : Promise.reject(new ClosedError('the index of the disk'));
  }

  /** Replaces the file by one without what is out of date. Mends a broken journal. Rejects with the system's error. */
  rewrite(): Promise<void> {
    if (this.#closing !== undefined) return Promise.reject(new ClosedError('the index of the disk'));
    return this.#startRewriting();
  }

  /** Writes and syncs what was said, and closes the file. Idempotent. Rejects when something has not been written. */
  close(): Promise<void> {
    this.#closing ??= this.#close(this.#flush());
    return this.#closing;
  }

  stats(): { bytes: number; entries: number; rewrites: number } {
    const bytes = this.#file.bytes + (this.#rewriting?.bytes ?? 0);
    return { bytes, entries: this.#entries, rewrites: this.#rewrites };
  }

  /** A broken journal needs no records: the snapshot that mends it has all of them. */
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

  /** Its failure is remembered and reported by the next flush. */
  #flushInBackground(): void {
    this.#flush().catch(() => {});
  }

  /** Calls that come while a write is under way share the next one. */
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
      await this.#givingUp;
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

  /** What was not written is in a rewriting that is under way, or in the snapshot of a later one. */
  async #fail(error: unknown, blocks: readonly Buffer[], hadRemovals: boolean): Promise<never> {
    this.#failure = { error };
    this.#env.log.log('warn', 'disk tier: the index cannot be written', { path: this.#path, error: String(error) });
    if (hadRemovals) this.#hasRemovals = true;
    if (this.#rewriting === undefined) await this.#giveUp();
    else for (const block of blocks) this.#rewriting.add(block);
    throw error;
  }

  /** Until it is rewritten, nothing of what was said since the failure is kept: the file goes when it has what was removed. */
  async #giveUp(): Promise<void> {
    this.#forgetRecords();
    if (!this.#hasRemovals) return;
    this.#hasRemovals = false;
    this.#givingUp = this.#env.files.rm(this.#path, { force: true }).catch(() => {});
    await this.#givingUp;
  }

  #removed(): void {
    this.#hasRemovals = true;
    if (!this.#isRecording) void this.#giveUp();
  }

  #forgetRecords(): void {
    this.#records.take();
    this.#uses.clear();
  }

  /** Starts a rewriting when it is time, and waits for its end when the limit would be exceeded before. */
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
      // Its file was to mend what had failed before.
      if (this.#failure !== undefined) await this.#giveUp();
      throw error;
    }
  }

  /** A file that is beyond the limit from the start, since that was lowered, can only be replaced by going beyond it. */
  #checkRoomToRewrite({ maxBytes }: JournalRewriting): void {
    const bothBytes = this.#file.bytes + maxBytes;
    if (bothBytes <= this.#budgetBytes || this.#file.bytes > this.#budgetBytes) return;
    throw new DiskError(
      `the index at ${this.#path} may take ${this.#options.maxBytes} bytes, and needs ${bothBytes} to be rewritten; ask for room before pages are put`,
    );
  }

  /** By what is there: too low a count would fail every rewriting. */
  #recount(): void {
    const { entries, liveBytes } = counted(this.#options.snapshot());
    this.#entries = entries;
    this.#liveBytes = liveBytes;
  }

  async #replaceBy(rewriting: JournalRewriting): Promise<void> {
    const file = await rewriting.replace(this.#path);
    const old = this.#file;
    this.#file = file;
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
      this.#rewriting?.stop();
      await this.#rewritten.catch(() => {});
      try {
        await this.#file.sync();
      } finally {
        await this.#file.close();
      }
    }
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw new ClosedError('the index of the disk');
  }

  /**
   * Throws `InvariantError` unless its counts are those of the pages of a snapshot: for a store that removes a page before its key or its place
   * is put anew, from the first flush on. Takes time in proportion to the pages.
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

/** The pages of a snapshot, and what their records take. */
function counted({ count, keysAt }: Snapshot): { readonly entries: number; readonly liveBytes: number } {
  let liveBytes = 0;
  for (const key of keysAt(0, count)) liveBytes += key === undefined ? 0 : putRecordBytes(key);
  return { entries: count, liveBytes };
}

function checkMaxBytes(maxBytes: number): void {
  if (Number.isSafeInteger(maxBytes) && maxBytes >= JOURNAL_MIN_BYTES) return;
  throw new ArgumentError(`a journal needs at least ${JOURNAL_MIN_BYTES} bytes, got ${String(maxBytes)}`);
}
