import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { isOverdue } from '../base/environment/files.js';
import { ArgumentError, ClosedError, DiskError } from '../base/errors.js';
import {
  DISK_ALIGNMENT_BYTES,
  DISK_DRAIN_TIMEOUT_MS,
  DISK_END_TIMEOUT_MS,
  DISK_REMOVALS_TIMEOUT_MS,
  PAGE_MAX_BYTES,
} from '../base/limits.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PoolTenantStats, RequestOptions } from '../core/index.js';
import { crc32 } from '../memory/checksum.js';
import type { PageBytes } from '../pool/page-batch.js';
import { isOf, NO_ORIGIN, PageIndex, type PageOrigin, type PagesOf, type PublishedPage } from '../pool/page-index.js';
import type { LocalRead } from '../pool/page-reading.js';
import {
  checkKey,
  type DiskReadOptions,
  type DiskStoreOptions,
  type PageSum,
  type PutOptions,
  type PutOutcome,
  type RenewedPage,
  renewed,
} from './disk-options.js';
import type { DiskInfo } from './disk-report.js';
import { DiskState } from './disk-state.js';
import { type DiskFolder, defaultIndexBytes, openDiskFolder } from './folder/disk-folder.js';
import { NamespaceFile } from './folder/namespace-file.js';
import type { IndexEntry, Snapshot } from './journal/journal.js';
import { PageReader } from './page-reader.js';
import { PageWriter } from './page-writer.js';
import { RESTORE_SLICE_PAGES, restorePages, snapshotOf } from './restoring.js';

export type { DiskReadOptions, DiskStoreOptions, PutOptions, PutOutcome, RenewedPage } from './disk-options.js';
export type { DiskInfo } from './disk-report.js';
export { type DiskSizes, diskSizeFor } from './folder/disk-folder.js';

/**
 * Pages in a directory of the disk, of at most `maxBytes` in all; the eviction policy chooses which pages leave first.
 * When the directory is opened again, its pages are found in the same order of use; further knowledge of a policy is
 * lost. After a crash, the latest writes may be missing.
 *
 * A page can be read as soon as it is put: from memory while it waits to be written, then from disk. The journal
 * records the removal of a page before its place is given to another one, and every read verifies the checksum: a stale
 * or damaged page is a miss and is dropped.
 *
 * Accounting: every readable page of the index is in the journal, or will be after the next flush.
 */
export class DiskStore {
  /** The newest version of the pages that were found at opening; 0: none has a version. */
  readonly newestVersion: number;
  /** @internal Records the last start of the node that knew all pages to be good. */
  readonly startNote: DiskFolder['startNote'];
  readonly #folder: DiskFolder;
  readonly #index: PageIndex;
  readonly #state: DiskState;
  readonly #writer: PageWriter;
  readonly #env: Environment;
  readonly #reader: PageReader;
  #namespaces: NamespaceFile | undefined;
  #closing: Promise<void> | undefined;
  #lastInfo: DiskInfo | undefined;

  /**
   * Opens the store in the directory `path`, which is created if it is missing; `maxBytes` may differ from before.
   * Throws `DiskError` if another process uses the directory, it cannot be written, or space is short. Files that are
   * damaged or of another version are set aside.
   */
  static async open(path: string, maxBytes: number, options: DiskStoreOptions): Promise<DiskStore> {
    let index: PageIndex | undefined;
    const snapshot = (): Snapshot => snapshotOf(index);
    const { nodeId, env, present, policy = 'lru', mode = 'auto', indexBytes = defaultIndexBytes(maxBytes) } = options;
    const folder = await openDiskFolder({ path, maxBytes, indexBytes, nodeId, mode, env, snapshot });
    const { capacityBytes } = folder.file;
    const nowMs = () => env.clock.nowMs();
    const namespaces = options.tenants && (await NamespaceFile.open(path, options.tenants, folder.entries, env));
    const tenants = options.tenants?.of('disk', capacityBytes);
    index = new PageIndex({ capacityBytes, policy, alignmentBytes: DISK_ALIGNMENT_BYTES, nowMs, present, tenants });
    const store = new this(folder, index, options);
    store.#namespaces = namespaces;
    try {
      await store.#restore(folder.entries);
      return store;
    } catch (error) {
      await store.close();
      throw error;
    }
  }

  /** @hidden Use {@link open}. */
  protected constructor(folder: DiskFolder, index: PageIndex, options: DiskStoreOptions) {
    const { env } = options;
    this.newestVersion = folder.entries.reduce((newest, { version = 0 }) => Math.max(newest, version), 0);
    this.startNote = folder.startNote;
    this.#folder = folder;
    this.#index = index;
    this.#env = env;
    this.#state = new DiskState(folder, options);
    const writer = new PageWriter(folder, index, this.#state, options);
    this.#writer = writer;
    const give = (prefix: string, tenant: number) => writer.dropped(index.tenants.give(prefix, tenant));
    options.tenants?.addTier(() => this.keysInSlices(), give);
    this.#reader = new PageReader(writer);
  }

  /** Writes a copy of `bytes` in the background; if the same page is stored already, this counts only as a use. */
  put(key: string, bytes: Uint8Array): void {
    checkKey(key);
    if (!(bytes instanceof Uint8Array) || bytes.length === 0 || bytes.length > PAGE_MAX_BYTES) {
      throw new ArgumentError(
        `disk put: needs a Uint8Array of 1 to ${PAGE_MAX_BYTES} bytes, got ${String(bytes?.length)}`,
      );
    }
    this.dropExpired([key]);
    const { length } = bytes;
    const checksum = crc32(bytes, 0);
    this.removeOther(key, { length, checksum });
    if (this.#there(key) !== undefined) {
      this.touchBatch([key]);
      return;
    }
    if (this.hasRoomFor(length)) this.putPage(key, { views: [bytes.slice()], length }, checksum, () => {});
    else this.#writer.skip();
  }

  /**
   * Writes a page with this checksum in the background. With the outcome `queued`, the bytes are in use and must not
   * change until `release` is called; otherwise it is not called.
   */
  putPage(key: string, page: PageBytes, checksum: number, release: () => void, about?: PutOptions): PutOutcome {
    this.#checkOpen();
    const { request, isNew = false, ...origin }: PutOptions = about ?? NO_ORIGIN;
    const { length } = page;
    const there = isNew ? this.#waiting(key) : this.#there(key);
    if (there?.length === length && there.checksum === checksum) {
      this.touchBatch([key], request);
      this.renew(key, { length, checksum, ...origin });
      return 'present';
    }
    // The old page is outdated even if the new one is not written.
    if (there !== undefined) this.#remove(key);
    return this.#writer.add({ key, page, checksum, origin, request, release, isCancelled: false })
      ? 'queued'
      : 'skipped';
  }

  /** Whether a page of that length would be queued now rather than skipped. */
  hasRoomFor(length: number): boolean {
    return this.#writer.hasRoomFor(length);
  }

  /** Whether a page of that length fits in an empty store. */
  fits(length: number): boolean {
    return length <= this.#folder.file.capacityBytes;
  }

  /** Whether writing is paused after a failure, and whether the disk does not answer at all. */
  get state(): { readonly isPaused: boolean; readonly isHung: boolean } {
    return this.#state;
  }

  /** Counts pages that were not put because there was no room. */
  skipped(pages: number): void {
    this.#writer.skip(pages);
  }

  /** Resolves when every page that was put is written or given up. */
  async flush(): Promise<void> {
    await this.#writer.queue.idle();
    // The journal has logged the failure, and the next write repairs it; counting it as a failure would delay that
    // write.
    await this.#writer.flushJournal().catch(() => {});
  }

  /** A copy of the page, which becomes the most recently used one; null: a miss. */
  async get(key: string): Promise<Uint8Array | null> {
    checkKey(key);
    this.#checkOpen();
    const length = this.#there(key)?.length;
    if (length === undefined) return null;
    const bytes = new Uint8Array(length);
    return (await this.getInto(key, bytes)) ? bytes : null;
  }

  /**
   * Reads into `target`, which must have the page's length. If the result is false, the content of `target` is
   * undefined.
   */
  async getInto(key: string, target: Uint8Array): Promise<boolean> {
    checkKey(key);
    if (!(target instanceof Uint8Array)) throw new ArgumentError(`disk get: needs a Uint8Array, got ${typeof target}`);
    const [outcome] = await this.readPages([key], [{ views: [target], length: target.length }]);
    return outcome === 'read';
  }

  /**
   * Reads pages concurrently, with one outcome per key. Counts as a use of the stored ones, in the order of the keys.
   * With any outcome but `read`, the content of a target is undefined. The targets are in use until the promise
   * resolves, which is soon after the signal is aborted, whatever the disk does.
   */
  async readPages(
    keys: readonly string[],
    targets: readonly PageBytes[],
    { request, signal }: DiskReadOptions = {},
  ): Promise<LocalRead[]> {
    this.#checkOpen();
    this.#index.touchBatch(keys, request);
    return this.#reader.read(keys, targets, signal);
  }

  /** Whether the page can be read, from disk or while it waits to be written. Does not count as a use. */
  exists(key: string): boolean {
    checkKey(key);
    return this.hasBatch([key])[0] === 1;
  }

  /**
   * For each key, 1 if its page is written or waits to be, else 0. With `canRead`, 1 only if the page can be read now.
   * Does not count as a use.
   */
  hasBatch(keys: Keys, { canRead = false } = {}): Uint8Array {
    this.#checkOpen();
    const isHidden = canRead && this.#state.isHung;
    const flags = isHidden ? new Uint8Array(stringsOf(keys).length) : this.#index.hasBatch(keys);
    if (this.#writer.queue.isEmpty) return flags;
    const strings = stringsOf(keys);
    for (let i = 0; i < flags.length; i++) if (this.#writer.queue.find(strings[i] as string)) flags[i] = 1;
    return flags;
  }

  /** Descriptions of written pages, null for other keys. Does not count as a use. */
  peekBatch(keys: Keys): (PublishedPage | null)[] {
    this.#checkOpen();
    return this.#index.peekBatch(keys);
  }

  /** Counts a use of each stored page, in the order of the keys. */
  touchBatch(keys: readonly string[], request?: RequestOptions): void {
    this.#checkOpen();
    this.#index.touchBatch(keys, request);
    for (const page of this.#index.peekBatch(keys)) if (page !== null) this.#folder.journal.use(page.offset);
  }

  /** Keys of all written pages, the next victim first. */
  keys(): string[] {
    this.#checkOpen();
    return this.#index.keys();
  }

  /** Whether there may be copies of pages that the node with this origin has set; 0: that any node has set. */
  hasCopiesOf(origin: number): boolean {
    return !this.#writer.queue.isEmpty || this.#index.hasCopiesOf(origin);
  }

  /** Keys of the pages that wait to be written. */
  queuedKeys(): string[] {
    return [...this.#writer.queue.keys()];
  }

  /**
   * Keys of all written pages, slice by slice; pages that are put or removed meanwhile may be left out. Ends when the
   * store is closed.
   */
  *keysInSlices(): Generator<string[], void> {
    this.#checkOpen();
    for (const keys of this.#index.keysInSlices(RESTORE_SLICE_PAGES)) {
      yield keys;
      if (this.#closing !== undefined) return;
    }
  }

  /** Bytes and number of pages; after {@link close}, the last values. */
  stats(): [usedBytes: number, numKeys: number] {
    const { usedBytes, entries } = this.info();
    return [usedBytes, entries];
  }

  /** Content and counts; after {@link close}, the last values. */
  info(): DiskInfo {
    return this.#lastInfo ?? this.#currentInfo();
  }

  /** Statistics of each tenant by number; empty if there is only one, or after {@link close}. */
  tenantStats(): PoolTenantStats[] {
    return this.#index.tenants.stats();
  }

  /** Removes a page; `onEvict` is not called. */
  remove(key: string): void {
    checkKey(key);
    this.#checkOpen();
    this.#remove(key);
  }

  /** Removes the written or waiting page of the key, unless it has the given bytes. Returns true if it was written. */
  removeOther(key: string, { length, checksum }: PageSum): boolean {
    this.#checkOpen();
    const there = this.#there(key);
    return there !== undefined && !(there.length === length && there.checksum === checksum) && this.#remove(key);
  }

  /** Removes the written pages of these keys that are expired. */
  dropExpired(keys: Keys): void {
    this.#checkOpen();
    for (const key of this.#index.states.makingWay(keys)) this.#removeWritten(key);
  }

  /** Removes written pages that are expired, at most `maxCount`; returns their keys. */
  removeExpired(maxCount: number): string[] {
    const keys: string[] = [];
    if (this.#closing !== undefined) return keys;
    for (let key = this.#index.nextExpired(); key !== undefined; key = this.#index.nextExpired()) {
      this.#removeWritten(key);
      if (keys.push(key) >= maxCount) break;
    }
    return keys;
  }

  /** The earliest expiry of a written page; 0: none expires. */
  get firstExpiry(): number {
    return this.#index.firstExpiry;
  }

  /**
   * Removes written and waiting pages that are older than the version given for their key, as far as `of` includes
   * them. Returns true if any of them was written.
   */
  removeOlder(keys: readonly string[], voidBelow: readonly number[], of: PagesOf = 'all'): boolean {
    this.#checkOpen();
    const written = this.#index.peekStored(keys);
    let wasWritten = false;
    keys.forEach((key, i) => {
      const origin = this.#writer.queue.get(key)?.origin ?? written[i] ?? undefined;
      if (origin === undefined || origin.version >= (voidBelow[i] as number) || !isOf(origin, of)) return;
      if (this.#remove(key)) wasWritten = true;
    });
    return wasWritten;
  }

  /**
   * Gives the stored page with these bytes the version and the expiry of a later set, so that it does not count as
   * older after a restart.
   */
  renew(key: string, { length, checksum, version, kind, expires, setBy }: RenewedPage): void {
    this.#checkOpen();
    if (this.#writer.isAhead({ version, expires })) return void this.#remove(key);
    const set: PageOrigin = { version, kind, expires, setBy };
    const waiting = this.#writer.queue.get(key);
    if (waiting?.page.length === length && waiting.checksum === checksum) {
      waiting.origin = renewed(waiting.origin, set) ?? waiting.origin;
    }
    const page = this.#index.peekStored([key])[0] ?? null;
    const origin = page?.length === length && page.checksum === checksum ? renewed(page, set) : undefined;
    if (page === null || origin === undefined) return;
    this.#index.setOrigin(page, origin);
    this.#folder.journal.update({ key, offset: page.offset, length, checksum, ...origin });
  }

  /** Whether a crash would bring back removed pages, because the disk has failed or does not answer. */
  get keepsRemoved(): boolean {
    return this.#folder.journal.keepsRemoved;
  }

  /**
   * Resolves when no crash and no loss of power can bring back removed pages: the removals are on the medium, or the
   * whole index was discarded. Rejects with `DiskError` if the disk allows neither, or does not answer in time;
   * recording them is tried again.
   */
  async removalsWritten(): Promise<void> {
    const written = this.#folder.journal.sync().catch((cause: unknown) => {
      // The journal has logged any other failure.
      if (isOverdue(cause)) this.#state.failed(cause);
      throw new DiskError(`disk tier: ${this.#folder.path}: removed pages cannot be recorded: ${String(cause)}`, {
        cause,
      });
    });
    if (await within(this.#env.clock, DISK_REMOVALS_TIMEOUT_MS, written)) return;
    throw new DiskError(
      `disk tier: ${this.#folder.path}: removals were not recorded in ${DISK_REMOVALS_TIMEOUT_MS} ms`,
    );
  }

  /**
   * Writes waiting pages for at most DISK_DRAIN_TIMEOUT_MS, syncs, and releases the directory. Idempotent. Reads in
   * progress end by themselves. If the disk does not answer, the directory and memory that it may still use stay held.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #currentInfo(): DiskInfo {
    return {
      usedBytes: this.#index.usedBytes,
      capacityBytes: this.#folder.file.capacityBytes,
      entries: this.#index.size,
      queueBytes: this.#writer.queue.bytes,
      ...this.#writer.stats,
      ...this.#reader.stats,
      writeErrors: this.#state.errors,
      failure: this.#state.failure,
      ioMode: this.#folder.file.mode,
    };
  }

  async #close(): Promise<void> {
    const { clock, log } = this.#env;
    this.#state.close();
    if (!this.#state.isHung) await within(clock, DISK_DRAIN_TIMEOUT_MS, this.#writer.queue.idle());
    const bytes = this.#writer.queue.bytes;
    const pages = this.#writer.queue.cancelAll();
    if (pages > 0) {
      this.#writer.skip(pages);
      log.log('warn', 'disk tier: closed before all pages were written', { path: this.#folder.path, pages, bytes });
    }
    if (await within(clock, DISK_END_TIMEOUT_MS, this.#release())) return;
    log.log('error', 'disk tier: the disk does not answer', { path: this.#folder.path, after_ms: DISK_END_TIMEOUT_MS });
  }

  async #release(): Promise<void> {
    const { journal, file, lock } = this.#folder;
    await this.#writer.queue.idle();
    await this.#reader.idle();
    await this.#namespaces?.close();
    await this.startNote.close();
    await file.sync().catch((error: unknown) => this.#state.failed(error));
    // A broken journal is rewritten, which succeeds if the disk has recovered.
    if (journal.isBroken) await journal.rewrite().catch((error: unknown) => this.#state.failed(error));
    await file.close().catch((error: unknown) => this.#state.failed(error));
    await journal.close().catch((error: unknown) => this.#state.failed(error));
    this.#lastInfo = this.#currentInfo();
    this.#index.free();
    // Removing the lock would wait for the disk. The end of this process frees it.
    if (!this.#state.isHung) await lock.release();
  }

  /** Puts the pages of the journal into the index. Pages that do not fit in a smaller disk tier are dropped. */
  async #restore(entries: readonly IndexEntry[]): Promise<void> {
    const { clock, log } = this.#env;
    const { capacityBytes } = this.#folder.file;
    const dropped = await restorePages(this.#index, entries, { capacityBytes, clock });
    // Removals come last: from the first flush on, the journal may be rewritten from the index.
    for (const key of dropped) this.#folder.journal.remove(key);
    this.#writer.dropped(this.#index.tenants.evictOverMax());
    if (dropped.length > 0)
      log.log('warn', 'disk tier: pages dropped that do not fit in the smaller disk tier', {
        path: this.#folder.path,
        pages: dropped.length,
      });
    if (entries.length > 0)
      log.log('info', 'disk tier: pages restored', { path: this.#folder.path, pages: this.#index.size });
  }

  /** The waiting page of the key, else the written one, even if it is expired. */
  #there(key: string): PageSum | undefined {
    return this.#waiting(key) ?? this.#index.peekStored([key])[0] ?? undefined;
  }

  #waiting(key: string): PageSum | undefined {
    const waiting = this.#writer.queue.get(key);
    return waiting && { length: waiting.page.length, checksum: waiting.checksum };
  }

  /** Removes the page of the key. Returns false if none was written. */
  #remove(key: string): boolean {
    this.#writer.queue.cancel(key);
    return this.#removeWritten(key);
  }

  #removeWritten(key: string): boolean {
    if (!this.#index.remove(key)) return false;
    this.#folder.journal.remove(key);
    this.#writer.flushJournal().catch((error: unknown) => isOverdue(error) && this.#state.failed(error));
    return true;
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw new ClosedError('the disk store');
  }

  /**
   * @internal Throws `InvariantError` unless index, queue, journal and file are consistent. Checks nothing after
   * closing.
   */
  verify(): void {
    if (this.#index.isFreed) return;
    this.#index.verify();
    this.#writer.verify();
    this.#reader.verify();
    this.#folder.file.verify();
    this.#folder.journal.verify();
  }
}
