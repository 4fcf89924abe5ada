import { assert, assertAtMost, reduced } from '../base/assert.js';
import {
  DISK_FULL_EVICTIONS_MAX_COUNT,
  DISK_GIVEN_BACK_FRACTION,
  DISK_QUEUE_MAX_BYTES,
  DISK_WRITE_TARGET_BYTES,
  DISK_WRITES_IN_FLIGHT_MAX_COUNT,
} from '../base/limits.js';
import type { PageBytes } from '../pool/page-batch.js';
import type { PageIndex, PublishedPage, Vacancy, Wish } from '../pool/page-index.js';
import type { DiskStoreOptions } from './disk-options.js';
import type { DiskState } from './disk-state.js';
import { alignedUp, ZEROS } from './folder/alignment.js';
import type { DiskFolder } from './folder/disk-folder.js';
import { type QueuedPage, WriteQueue } from './write-queue.js';

/**
 * Writes queued pages, several at a time and small ones together. Lists each page when its bytes are written, in the
 * order of the queue. Before a place is reused, the journal file records that its former page is removed.
 *
 * Accounting: until a page is listed or given up, it is unfilled and held in the index and counts in the queue.
 */
export class PageWriter {
  readonly folder: DiskFolder;
  readonly index: PageIndex;
  readonly state: DiskState;
  /** The reads in progress. A page that is being read keeps its place. */
  readonly readers = new KeyReaders();
  readonly options: DiskStoreOptions;
  readonly queue: WriteQueue;
  #writing = 0;
  /** Resolves when the page taken last is listed or given up. */
  #lastEnd: Promise<void> = Promise.resolve();
  #skippedPages = 0;
  #evictions = 0;
  #writtenPages = 0;

  constructor(folder: DiskFolder, index: PageIndex, state: DiskState, options: DiskStoreOptions) {
    this.folder = folder;
    this.index = index;
    this.state = state;
    this.options = options;
    this.queue = new WriteQueue(options.queueMaxBytes ?? DISK_QUEUE_MAX_BYTES, options.present);
  }

  get stats(): {
    readonly skippedPages: number;
    readonly evictions: number;
    readonly writtenPages: number;
  } {
    return {
      skippedPages: this.#skippedPages,
      evictions: this.#evictions,
      writtenPages: this.#writtenPages,
    };
  }

  /** Queues a page. Returns false if the page is skipped, which is counted. */
  add(entry: QueuedPage): boolean {
    if (this.isAhead(entry.origin) || !this.hasRoomFor(entry.page.length)) {
      this.skip();
      return false;
    }
    this.queue.add(entry);
    this.#pump();
    return true;
  }

  /** Whether a page is not written because its version or expiry is so far ahead that a wrong clock gave it out. */
  isAhead({ version = 0, expires = 0 }: { readonly version?: number; readonly expires?: number }): boolean {
    return this.options.isAhead?.(version, expires) === true;
  }

  /** Whether a page of that length would be queued now. */
  hasRoomFor(length: number): boolean {
    const isWritable = !this.state.isPaused && length <= this.folder.file.capacityBytes;
    return isWritable && this.queue.hasRoomFor(length);
  }

  /** Counts pages that are not written. */
  skip(pages = 1): void {
    this.#skippedPages += pages;
    this.options.env.metrics.count('meshcache_disk_skipped_pages_total', pages);
  }

  /** Resolves when all changes are in the journal file. */
  flushJournal(): Promise<void> {
    return this.folder.journal.flush();
  }

  #pump(): void {
    while (this.#writing < DISK_WRITES_IN_FLIGHT_MAX_COUNT) {
      const entries = this.queue.take(DISK_WRITE_TARGET_BYTES);
      if (entries.length === 0) return;
      this.#writing++;
      this.#lastEnd = this.#run(entries, this.#lastEnd);
    }
  }

  /** Writes pages with distinct keys, and lists those that are written when all earlier ones have ended. */
  async #run(entries: readonly QueuedPage[], before: Promise<void>): Promise<void> {
    const { index } = this;
    const written = new Map<QueuedPage, Vacancy>();
    try {
      // An older page of the same key may be being written or read; its place must be free first.
      const held = entries.filter(({ key }) => index.isHeld(key));
      if (held.length > 0) await before;
      for (const { key } of held) await this.readers.ended(key);
      await this.#writeAll(entries, written);
    } catch (error) {
      this.state.failed(error);
    }
    await before;
    for (const entry of entries) {
      const vacancy = written.get(entry);
      if (vacancy !== undefined) this.#list(entry, vacancy);
      else if (!entry.isCancelled) this.skip();
    }
    if (written.size > 0) this.state.succeeded();
    if (written.size > 0) this.flushJournal().catch((error: unknown) => this.state.failed(error));
    this.#writing = reduced('page writer: writing', this.#writing, 1);
    for (const entry of entries) this.queue.ended(entry);
    this.#pump();
  }

  /** Writes pages at their places, and adds those that succeeded to `written`; their places stay unfilled and held. */
  async #writeAll(entries: readonly QueuedPage[], written: Map<QueuedPage, Vacancy>): Promise<void> {
    const { journal } = this.folder;
    if (journal.isBroken) await this.#repairJournal();
    const placed = await this.#place(entries);
    const ends = await Promise.allSettled(
      contiguousRuns(placed).map(async (run) => {
        try {
          await this.folder.file.write((run[0] as PlacedPage).vacancy.offset, bytesOf(run));
          for (const { entry, vacancy } of run) written.set(entry, vacancy);
        } catch (error) {
          for (const { vacancy } of run) this.index.abandonHeld(vacancy);
          if (!isFull(error)) throw error;
          for (const { entry } of run) await this.#writeWhenFull(entry, written, error);
        }
      }),
    );
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }

  /** Rewrites a broken journal. If the file system is full, pages give up space for it. */
  async #repairJournal(): Promise<void> {
    const { journal } = this.folder;
    try {
      await journal.rewrite();
    } catch (error) {
      if (!isFull(error) || !(await this.#giveSpaceBack())) throw error;
      await journal.rewrite();
    }
  }

  /**
   * Drops the pages with the highest places, DISK_GIVEN_BACK_FRACTION of the capacity, and gives their space back to
   * the file system, for the journal. False: there are none, one of them is in use, or other pages are being written.
   * After a crash before the journal is written, the index lists pages of zeros, which fail their checksums.
   */
  async #giveSpaceBack(): Promise<boolean> {
    const { index, folder } = this;
    const { file, journal } = folder;
    // Pages may be being written at these places.
    if (this.#writing > 1) return false;
    const keys = index.keys();
    const pages = index.peekStored(keys).map((page, i) => ({ key: keys[i] as string, end: endOf(page) }));
    pages.sort((a, b) => b.end - a.end);
    const from = (pages[0]?.end ?? 0) - alignedUp(file.capacityBytes * DISK_GIVEN_BACK_FRACTION);
    const victims = pages.filter(({ end }) => end > from).map(({ key }) => key);
    if (victims.length === 0 || victims.some((key) => index.isHeld(key))) return false;
    for (const key of victims) {
      index.remove(key);
      journal.remove(key);
    }
    this.#evicted(victims);
    const kept = pages[victims.length]?.end ?? 0;
    await file.giveBack(kept);
    return true;
  }

  /** Writes a page to a full file system, at the places of evicted pages, which have disk space already. */
  async #writeWhenFull(entry: QueuedPage, written: Map<QueuedPage, Vacancy>, full: unknown): Promise<void> {
    const { index, folder } = this;
    for (let attempt = 0; attempt < DISK_FULL_EVICTIONS_MAX_COUNT && this.#evictNextFor(entry.key); attempt++) {
      const [placed] = await this.#place([entry]);
      if (placed === undefined) return;
      try {
        await folder.file.write(placed.vacancy.offset, bytesOf([placed]));
        written.set(entry, placed.vacancy);
        return;
      } catch (error) {
        index.abandonHeld(placed.vacancy);
        if (!isFull(error)) throw error;
      }
    }
    throw full;
  }

  /** Finds places for pages. The places are unfilled and held, and the journal file lists no other page there. */
  async #place(entries: readonly QueuedPage[]): Promise<PlacedPage[]> {
    const { folder, index, state } = this;
    const { journal } = folder;
    if (state.isPaused) return [];
    const wanted = entries.filter(({ isCancelled, key }) => !isCancelled && this.#makeIndexRoom(key));
    const here = index.peekStored(wanted.map(({ key }) => key));
    const wishes = wanted.map(({ key, page, request }, i): Wish => {
      return { key, length: page.length, here: here[i] ?? null, intent: 'new', request };
    });
    const { vacancies, gone } = index.place(wishes);
    // A page of this batch that lost its place again was never listed.
    for (const { key } of wishes) gone.delete(key);
    for (const key of gone) journal.remove(key);
    index.holdUnfilled(
      vacancies,
      vacancies.map(({ index: i }) => (wanted[i] as QueuedPage).origin),
    );
    this.#evicted([...gone]);
    try {
      // The flush is needed even without evictions, because places of pages that were removed earlier are reused.
      if (vacancies.length > 0) await this.flushJournal();
    } catch (error) {
      for (const vacancy of vacancies) index.abandonHeld(vacancy);
      throw error;
    }
    return vacancies.map((vacancy) => ({ entry: wanted[vacancy.index] as QueuedPage, vacancy }));
  }

  #makeIndexRoom(key: string): boolean {
    while (!this.folder.journal.hasRoomFor(key)) if (!this.#evictNextFor(key)) return false;
    return true;
  }

  #list(entry: QueuedPage, vacancy: Vacancy): void {
    const { folder, index } = this;
    const { key, page, checksum, origin } = entry;
    // Other pages may have taken the room in the index meanwhile.
    if (entry.isCancelled || !this.#makeIndexRoom(key)) {
      index.abandonHeld(vacancy);
      return;
    }
    try {
      folder.journal.put({ key, offset: vacancy.offset, length: page.length, checksum, ...origin });
    } catch (error) {
      index.abandonHeld(vacancy);
      this.state.failed(error);
      return;
    }
    index.fillHeld(vacancy, page.length, checksum, origin);
    this.#writtenPages++;
  }

  /** Handles pages that the index has evicted by itself. */
  dropped(keys: string[]): void {
    for (const key of keys) this.folder.journal.remove(key);
    this.#evicted(keys);
  }

  #evictNextFor(key: string): boolean {
    const victim = this.index.evictNext(key);
    if (victim === null) return false;
    this.folder.journal.remove(victim);
    this.#evicted([victim]);
    return true;
  }

  #evicted(keys: string[]): void {
    if (keys.length === 0) return;
    this.#evictions += keys.length;
    this.options.env.metrics.count('meshcache_disk_evictions_total', keys.length);
    this.tellEvicted(keys);
  }

  /** Calls `onEvict` with the keys of pages that are gone. */
  tellEvicted(keys: string[]): void {
    const { env, onEvict } = this.options;
    try {
      onEvict?.(keys);
    } catch (error) {
      env.log.log('error', 'disk tier: onEvict has thrown', { path: this.folder.path, error: String(error) });
    }
  }

  /** Throws `InvariantError` unless the accounting of this class holds, and no page waits that could be written. */
  verify(): void {
    const { queue } = this;
    queue.verify();
    const taken = new Set(queue.takenKeys());
    assertAtMost('page writer: writes under way', this.#writing, DISK_WRITES_IN_FLIGHT_MAX_COUNT);
    assert(this.#writing > 0 === taken.size > 0, () => `page writer: ${this.#writing} writes of ${taken.size} pages`);
    const isBusy = queue.waitingCount === 0 || this.#writing === DISK_WRITES_IN_FLIGHT_MAX_COUNT;
    assert(isBusy, () => `page writer: ${queue.waitingCount} pages wait, and ${this.#writing} writes are under way`);
    for (const key of this.index.unfilledKeys()) {
      assert(taken.has(key), () => `page writer: ${JSON.stringify(key)} has a place and is not being written`);
    }
  }
}

/** Where the place of a page ends; 0: there is no page. */
function endOf(page: PublishedPage | null): number {
  return page === null ? 0 : page.offset + alignedUp(page.length);
}

function isFull(error: unknown): boolean {
  const { code, cause } = (error ?? {}) as { readonly code?: unknown; readonly cause?: unknown };
  return code === 'ENOSPC' || (cause !== undefined && isFull(cause));
}

interface PlacedPage {
  readonly entry: QueuedPage;
  readonly vacancy: Vacancy;
}

/** Groups pages with adjacent places, so that one call writes each group. */
function contiguousRuns(placed: readonly PlacedPage[]): PlacedPage[][] {
  const runs: PlacedPage[][] = [];
  let end = -1;
  for (const page of placed.toSorted((a, b) => a.vacancy.offset - b.vacancy.offset)) {
    if (page.vacancy.offset === end) runs.at(-1)?.push(page);
    else runs.push([page]);
    end = page.vacancy.offset + alignedUp(page.entry.page.length);
  }
  return runs;
}

function bytesOf(run: readonly PlacedPage[]): PageBytes {
  const views: Uint8Array[] = [];
  let length = 0;
  run.forEach(({ entry: { page } }, i) => {
    views.push(...page.views);
    length += page.length;
    const padding = alignedUp(page.length) - page.length;
    if (padding === 0 || i === run.length - 1) return;
    views.push(ZEROS.subarray(0, padding));
    length += padding;
  });
  return { views, length };
}

/** Reads in progress, by key. */
export class KeyReaders {
  readonly #byKey = new Map<string, Set<Promise<unknown>>>();

  /** Counts the read until it is settled; resolves or rejects as it does. */
  async during<T>(key: string, read: Promise<T>): Promise<T> {
    const reads = this.#byKey.get(key) ?? new Set();
    this.#byKey.set(key, reads);
    reads.add(read);
    try {
      return await read;
    } finally {
      reads.delete(read);
      if (reads.size === 0) this.#byKey.delete(key);
    }
  }

  /** Resolves when all present reads of this key have ended. */
  async ended(key: string): Promise<void> {
    await Promise.allSettled(this.#byKey.get(key) ?? []);
  }

  /** Throws `InvariantError` unless each key has reads in progress. */
  verify(): void {
    for (const [key, reads] of this.#byKey) {
      assert(reads.size > 0, () => `key readers: no read of ${JSON.stringify(key)}, which is kept`);
    }
  }
}
