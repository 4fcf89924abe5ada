import { Mutex } from '../base/concurrency/mutex.js';
import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { ArgumentError, ClosedError } from '../base/errors.js';
import {
  DISK_ALIGNMENT_BYTES,
  DISK_DRAIN_TIMEOUT_MS,
  DISK_END_TIMEOUT_MS,
  DISK_QUEUE_MAX_BYTES,
  PAGE_MAX_BYTES,
} from '../base/limits.js';
import type { EvictionPolicy, RequestOptions } from '../core/index.js';
import { crc32 } from '../memory/checksum.js';
import { isWhole, type PageBytes } from '../pool/page-batch.js';
import { NO_ORIGIN, PageIndex, type PageOrigin, type PublishedPage } from '../pool/page-index.js';
import type { LocalRead } from '../pool/page-reading.js';
import type { DiskInfo } from './disk-info.js';
import { type DiskFolder, defaultIndexBytes, openDiskFolder } from './folder/disk-folder.js';
import type { IndexEntry, Snapshot } from './journal/journal.js';
import { KeyReaders } from './key-readers.js';
import type { PageSum, PutOptions, PutOutcome, RenewedPage } from './put-page.js';
import { RESTORE_SLICE_PAGES, restorePages, snapshotOf } from './restoring.js';
import { PageWriter } from './writing/page-writer.js';
import { readWaiting, type WriteQueue } from './writing/write-queue.js';

export type { DiskInfo } from './disk-info.js';
export { type DiskSizes, diskSizeFor } from './folder/disk-folder.js';
export type { PutOptions, PutOutcome, RenewedPage } from './put-page.js';

/** What {@link DiskStore.open} takes beside path and size. */
export interface DiskStoreOptions {
  /** Told the keys of pages that have left without being asked to: for want of space, or because they were damaged. */
  readonly onEvict?: (keys: string[]) => void;
  /** Of who uses the directory: for the message to whoever else wants it. */
  readonly nodeId: string;
  readonly env: Environment;
  /** Which page goes when there is no room; default: `lru`. */
  readonly policy?: EvictionPolicy;
  /** Pages that may wait to be written; further ones are skipped. */
  readonly queueMaxBytes?: number;
  /** What the index may take of `maxBytes`; default: a 32nd. Small pages with long keys need more to fill the disk. */
  readonly indexBytes?: number;
  /** Default `auto`: direct where the file system has it. */
  readonly mode?: 'auto' | 'direct' | 'buffered';
}

/**
 * Pages in a directory of the disk: at most `maxBytes` there, everything included; the eviction policy says which ones go first. What is
 * in it is found again when it is opened anew, in the same order of use; what else a policy knows of pages is not. After a crash what was
 * written a moment before may be missing.
 *
 * A page is found when its bytes are written, and before that while they wait in memory. Before its place is given to another page, the journal
 * says that it is gone; and every read checks the checksum: what is stale or damaged all the same is a miss, and dropped.
 *
 * Accounting: every page of the index that can be found is in the journal, or will be with the next flush.
 */
export class DiskStore {
  /** Of the pages that were found when it was opened; 0: none has one. */
  readonly newestVersion: number;
  readonly #folder: DiskFolder;
  readonly #index: PageIndex;
  readonly #writer: PageWriter;
  readonly #queue: WriteQueue;
  readonly #env: Environment;
  readonly #onEvict: (keys: string[]) => void;
  readonly #path: string;
  #corruptPages = 0;
  #readPages = 0;
  readonly #reading = new Set<Promise<unknown>>();
  readonly #readers = new KeyReaders();
  /** Copies of pages that wait are made one at a time, each in a turn of the event loop of its own. */
  readonly #copyMutex = new Mutex();
  #closing: Promise<void> | undefined;
  #lastInfo: DiskInfo | undefined;

  /**
   * Opens the store in the directory `path`, which is made when it is missing; `maxBytes` may differ from before. Throws `DiskError`: another
   * process uses it, it cannot be written, there is too little space. What is damaged or of another version is set aside.
   */
  static async open(path: string, maxBytes: number, options: DiskStoreOptions): Promise<DiskStore> {
    let index: PageIndex | undefined;
    const snapshot = (): Snapshot => snapshotOf(index);
    const { nodeId, env, policy = 'lru', mode = 'auto', indexBytes = defaultIndexBytes(maxBytes) } = options;
    const folder = await openDiskFolder({ path, maxBytes, indexBytes, nodeId, mode, env, snapshot });
    const { capacityBytes } = folder.file;
    const nowMs = () => env.clock.nowMs();
    index = new PageIndex({ capacityBytes, policy, alignmentBytes: DISK_ALIGNMENT_BYTES, nowMs });
    const store = new this(path, folder, index, options);
    try {
      await store.#restore(folder.entries);
      return store;
    } catch (error) {
      await store.close();
      throw error;
    }
  }

  /** @hidden By {@link open} only. */
  protected constructor(path: string, folder: DiskFolder, index: PageIndex, options: DiskStoreOptions) {
    const { env } = options;
    this.newestVersion = folder.entries.reduce((newest, { version = 0 }) => Math.max(newest, version), 0);
    this.#path = path;
    this.#folder = folder;
    this.#index = index;
    this.#env = env;
    this.#onEvict = (keys) => {
      try {
        options.onEvict?.(keys);
      } catch (error) {
        env.log.log('error', 'disk tier: onEvict has thrown', { path, error: String(error) });
      }
    };
    this.#writer = new PageWriter({
      path,
      folder,
      index,
      env,
      queueMaxBytes: options.queueMaxBytes ?? DISK_QUEUE_MAX_BYTES,
      onEvict: this.#onEvict,
      readsEnded: (key) => this.#readers.ended(key),
    });
    this.#queue = this.#writer.queue;
  }

  /** Writes a copy of `bytes` in the background; a page that is there already is only used. */
  put(key: string, bytes: Uint8Array): void {
    checkKey(key);
    if (!(bytes instanceof Uint8Array) || bytes.length === 0 || bytes.length > PAGE_MAX_BYTES) {
      throw new ArgumentError(
        `disk put: needs a Uint8Array of 1 to ${PAGE_MAX_BYTES} bytes, got ${String(bytes?.length)}`,
      );
    }
    this.#checkOpen();
    const { length } = bytes;
    const checksum = crc32(bytes, 0);
    this.removeOther(key, { length, checksum });
    if (this.#isThere(key, { length, checksum })) return;
    if (this.hasRoomFor(length)) this.putPage(key, { views: [bytes.slice()], length }, checksum, () => {});
    else this.#writer.skip();
  }

  /**
   * Writes a page in the background whose bytes have this checksum. With `queued` they are in use, and must not
   * change, until `release` is called; otherwise it is not called.
   */
  putPage(key: string, page: PageBytes, checksum: number, release: () => void, about?: PutOptions): PutOutcome {
    this.#checkOpen();
    // Whatever becomes of the new page, the old one is not what was set last.
    this.removeOther(key, { length: page.length, checksum });
    const { request, ...origin }: PutOptions = about ?? NO_ORIGIN;
    if (this.#isThere(key, { length: page.length, checksum }, request)) {
      this.renew(key, { length: page.length, checksum, ...origin });
      return 'present';
    }
    return this.#writer.add({ key, page, checksum, origin, request, release, isCancelled: false })
      ? 'queued'
      : 'skipped';
  }

  /** Whether a page of that length would be queued now, and not skipped. */
  hasRoomFor(length: number): boolean {
    return this.#writer.hasRoomFor(length);
  }

  /** Whether a page of that length is not larger than the whole store. */
  fits(length: number): boolean {
    return length <= this.#folder.file.capacityBytes;
  }

  /** The disk has failed a moment ago, and is not written for a while. */
  get isPaused(): boolean {
    return this.#writer.isPaused;
  }

  /** Counts pages that were not put for want of room. */
  skipped(pages: number): void {
    this.#writer.skip(pages);
  }

  /** Resolves when everything that was put is written, or was given up. */
  async flush(): Promise<void> {
    await this.#queue.idle();
    // The journal has logged it, and the next write mends it; counted as a failure, it would put that write off.
    await this.#writer.flushJournal().catch(() => {});
  }

  /** A copy of the page, the most recently used one then; null: a miss. */
  async get(key: string): Promise<Uint8Array | null> {
    checkKey(key);
    this.#checkOpen();
    const length = this.#there(key)?.length;
    if (length === undefined) return null;
    const bytes = new Uint8Array(length);
    return (await this.getInto(key, bytes)) ? bytes : null;
  }

  /** Reads into `target`, which must have the page's length; what false leaves there is undefined. */
  async getInto(key: string, target: Uint8Array): Promise<boolean> {
    checkKey(key);
    if (!(target instanceof Uint8Array)) throw new ArgumentError(`disk get: needs a Uint8Array, got ${typeof target}`);
    const [outcome] = await this.readPages([key], [{ views: [target], length: target.length }]);
    return outcome === 'read';
  }

  /**
   * Reads pages, all at once; one outcome a key. Counts as a use of those that are here, in the order of the keys. What an outcome
   * other than `read` leaves in a target is undefined. The targets are in use until the promise has resolved.
   */
  async readPages(
    keys: readonly string[],
    targets: readonly PageBytes[],
    request?: RequestOptions,
  ): Promise<LocalRead[]> {
    this.#checkOpen();
    this.#index.touchBatch(keys, request);
    const all = Promise.all(keys.map((key, i) => this.#read(key, targets[i] as PageBytes)));
    this.#reading.add(all);
    try {
      return await all;
    } finally {
      this.#reading.delete(all);
    }
  }

  /** Whether the page can be read, from the disk or from what waits to be written. Not a use. */
  exists(key: string): boolean {
    checkKey(key);
    return this.hasBatch([key])[0] === 1;
  }

  /** 1 for each key that is written, or waits to be. Not a use. */
  hasBatch(keys: readonly string[]): Uint8Array {
    this.#checkOpen();
    const flags = this.#index.hasBatch(keys);
    if (!this.#queue.isEmpty) for (const i of flags.keys()) if (this.#queue.get(keys[i] as string)) flags[i] = 1;
    return flags;
  }

  /** Of the pages that are written, null for others. Not a use. */
  peekBatch(keys: readonly string[]): (PublishedPage | null)[] {
    this.#checkOpen();
    return this.#index.peekBatch(keys);
  }

  /** Counts as a use of those that are here, in the order of the keys. */
  touchBatch(keys: readonly string[], request?: RequestOptions): void {
    this.#checkOpen();
    this.#index.touchBatch(keys, request);
    for (const page of this.#index.peekBatch(keys)) if (page !== null) this.#folder.journal.use(page.offset);
  }

  /** Keys of all pages that are written, the next one to go first. */
  keys(): string[] {
    this.#checkOpen();
    return this.#index.keys();
  }

  /** The same, some at a time; what comes or goes meanwhile may be left out. Ends when the store is closed. */
  *keysInSlices(): Generator<string[], void> {
    this.#checkOpen();
    const order = this.#index.order();
    for (let first = 0; first < order.length && this.#closing === undefined; first += RESTORE_SLICE_PAGES) {
      const keys = this.#index.keysOf(order.subarray(first, first + RESTORE_SLICE_PAGES));
      yield keys.filter((key) => key !== undefined);
    }
  }

  /** After {@link close}: as they were last. */
  stats(): [usedBytes: number, numKeys: number] {
    const { usedBytes, entries } = this.info();
    return [usedBytes, entries];
  }

  /** After {@link close}: as it was last. */
  info(): DiskInfo {
    return this.#lastInfo ?? this.#currentInfo();
  }

  /** Asked-for removal: `onEvict` is not called. */
  remove(key: string): void {
    checkKey(key);
    this.#checkOpen();
    this.#remove(key);
  }

  /** Removes what is written or waits under the key, unless it has these very bytes. True: it was written. */
  removeOther(key: string, { length, checksum }: PageSum): boolean {
    this.#checkOpen();
    const there = this.#there(key);
    return there !== undefined && !(there.length === length && there.checksum === checksum) && this.#remove(key);
  }

  /** Removes those that are older than the version given for their key, written or waiting. True: any was written. */
  removeOlder(keys: readonly string[], voidBelow: readonly number[]): boolean {
    this.#checkOpen();
    const written = this.#index.peekBatch(keys);
    let wasWritten = false;
    keys.forEach((key, i) => {
      const version = this.#queue.get(key)?.origin.version ?? written[i]?.version;
      if (version !== undefined && version < (voidBelow[i] as number) && this.#remove(key)) wasWritten = true;
    });
    return wasWritten;
  }

  /** A page has been set again: what is written, or waits, with these very bytes is not taken for older than it is after a restart. */
  renew(key: string, { length, checksum, version, kind }: RenewedPage): void {
    this.#checkOpen();
    const isRenewed = (there: PageOrigin): boolean => version > there.version || kind !== there.kind;
    const origin = { version, kind, isCopy: false };
    const waiting = this.#queue.get(key);
    const isSame = waiting?.page.length === length && waiting.checksum === checksum;
    if (isSame && isRenewed(waiting.origin)) waiting.origin = origin;
    const page = this.#index.peekBatch([key])[0] ?? null;
    if (page?.length !== length || page.checksum !== checksum || !isRenewed(page)) return;
    this.#index.setOrigin(page, origin);
    this.#folder.journal.update({ key, offset: page.offset, length, checksum, ...origin });
  }

  /** Resolves when no crash can bring back what has been removed: that is written, or the whole index is given up. */
  async removalsWritten(): Promise<void> {
    // A journal that cannot be written has done away with its file.
    await this.#writer.flushJournal().catch(() => {});
  }

  /** Removes every page, also those that wait; returns the keys of those that were written. */
  clear(): string[] {
    this.#checkOpen();
    this.#queue.cancelAll();
    this.#folder.journal.clear();
    return this.#index.clear();
  }

  /** Removes what is written or waits under keys that `isWanted` is true of; returns those of what was written. */
  clearWhere(isWanted: (key: string) => boolean): string[] {
    for (const key of this.#queue.keys()) if (isWanted(key)) this.#queue.cancel(key);
    const written = this.keys().filter(isWanted);
    return written.filter((key) => this.#remove(key));
  }

  /**
   * Writes what waits, for DISK_DRAIN_TIMEOUT_MS at the most, syncs and gives the directory back. Idempotent. Reads
   * under way end as they do. A disk that does not answer any more keeps the directory, and what it may still use.
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
      queueBytes: this.#queue.bytes,
      ...this.#writer.stats,
      corruptPages: this.#corruptPages,
      readPages: this.#readPages,
      ioMode: this.#folder.file.mode,
    };
  }

  async #close(): Promise<void> {
    const { clock, log } = this.#env;
    await within(clock, DISK_DRAIN_TIMEOUT_MS, this.#queue.idle());
    const bytes = this.#queue.bytes;
    const pages = this.#queue.cancelAll();
    if (pages > 0) {
      this.#writer.skip(pages);
      log.log('warn', 'disk tier: closed before all pages were written', { path: this.#path, pages, bytes });
    }
    if (await within(clock, DISK_END_TIMEOUT_MS, this.#release())) return;
    log.log('error', 'disk tier: the disk does not answer', {
      path: this.#path,
      after_ms: DISK_END_TIMEOUT_MS,
    });
  }

  async #release(): Promise<void> {
    const { journal, file, lock } = this.#folder;
    await this.#queue.idle();
    await Promise.allSettled([...this.#reading]);
    await file.sync().catch((error: unknown) => this.#writer.failed(error));
    await file.close();
    await journal.close().catch((error: unknown) => this.#writer.failed(error));
    this.#lastInfo = this.#currentInfo();
    this.#index.free();
    await lock.release();
  }

  /** Pages that do not fit any more, since the disk is smaller, are dropped. */
  async #restore(entries: readonly IndexEntry[]): Promise<void> {
    const { clock, log } = this.#env;
    const { capacityBytes } = this.#folder.file;
    const dropped = await restorePages(this.#index, entries, { capacityBytes, clock });
    // Last: from the first flush on, the journal may be rewritten by what is here.
    for (const key of dropped) this.#folder.journal.remove(key);
    if (dropped.length > 0)
      log.log('warn', 'disk tier: pages do not fit any more', { path: this.#path, pages: dropped.length });
    if (entries.length > 0) log.log('info', 'disk tier: pages found', { path: this.#path, pages: this.#index.size });
  }

  /** The page is written, or on its way, with these very bytes; counts as a use then. */
  #isThere(key: string, { length, checksum }: PageSum, request?: RequestOptions): boolean {
    const there = this.#there(key);
    if (there?.length !== length || there.checksum !== checksum) return false;
    this.touchBatch([key], request);
    return true;
  }

  /** The page that waits under the key, else the one that is written. */
  #there(key: string): { readonly length: number; readonly checksum: number } | undefined {
    const waiting = this.#queue.get(key);
    if (waiting !== undefined) return { length: waiting.page.length, checksum: waiting.checksum };
    return this.#index.peekBatch([key])[0] ?? undefined;
  }

  /** False: nothing was written under the key. */
  #remove(key: string): boolean {
    this.#queue.cancel(key);
    if (!this.#index.remove(key)) return false;
    this.#folder.journal.remove(key);
    void this.removalsWritten();
    return true;
  }

  async #read(key: string, target: PageBytes): Promise<LocalRead> {
    if (this.#queue.get(key) !== undefined) {
      const outcome = await this.#copyMutex.run(() => this.#readWaiting(key, target));
      if (outcome !== undefined) return outcome;
    }
    const [found] = this.#index.peekBatch([key]);
    if (found === undefined || found === null) return 'absent';
    if (found.length !== target.length || !isWhole(target)) return 'wrong-length';
    return this.#readWritten(key, found, target);
  }

  /** From memory; undefined: it does not wait any more. */
  async #readWaiting(key: string, target: PageBytes): Promise<LocalRead | undefined> {
    await this.#env.clock.yield();
    const waiting = this.#queue.get(key);
    return waiting && readWaiting(waiting, target);
  }

  async #readWritten(key: string, found: PublishedPage, target: PageBytes): Promise<LocalRead> {
    this.#index.hold([key]);
    let checksum: number | undefined;
    try {
      checksum = await this.#readers.during(key, this.#folder.file.read(found.offset, target));
    } catch (error) {
      this.#writer.failed(error);
    }
    // The most recently used one from now on.
    this.#index.release([key]);
    if (checksum !== found.checksum) {
      this.#dropCorrupt(key, found);
      return 'damaged';
    }
    if (this.#isListed(key, found)) this.#folder.journal.use(found.offset);
    this.#readPages++;
    return 'read';
  }

  /** Another page may have taken its key. */
  #isListed(key: string, { offset, checksum }: PublishedPage): boolean {
    const [here] = this.#index.peekBatch([key]);
    return here?.offset === offset && here.checksum === checksum;
  }

  #dropCorrupt(key: string, found: PublishedPage): void {
    this.#corruptPages++;
    this.#env.metrics.count('meshcache_disk_corrupt_pages_total');
    if (!this.#isListed(key, found)) return;
    this.#index.remove(key);
    this.#folder.journal.remove(key);
    this.#onEvict([key]);
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw new ClosedError('the disk store');
  }

  /** @internal Throws `InvariantError` unless index, queue, journal and file agree. Nothing to check once it is closed. */
  verify(): void {
    if (this.#index.isFreed) return;
    this.#index.verify();
    this.#writer.verify();
    this.#readers.verify();
    this.#folder.file.verify();
    this.#folder.journal.verify();
  }
}

function checkKey(key: string): void {
  if (typeof key === 'string' && key.length > 0) return;
  throw new ArgumentError(`disk: a key must be text that is not empty, got ${String(key)}`);
}
