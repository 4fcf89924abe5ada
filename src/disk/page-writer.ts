import type { Environment } from '../base/environment.js';
import {
  DISK_FULL_EVICTIONS_MAX_COUNT,
  DISK_LOG_INTERVAL_MS,
  DISK_RETRY_AFTER_MS,
  DISK_WRITES_IN_FLIGHT_MAX_COUNT,
} from '../base/limits.js';
import type { PageIndex, Vacancy } from '../pool/page-index.js';
import type { DiskFolder } from './disk-folder.js';
import { type QueuedPage, WriteQueue } from './write-queue.js';

export interface PageWriterParts {
  readonly path: string;
  readonly folder: Pick<DiskFolder, 'file' | 'journal'>;
  readonly index: PageIndex;
  readonly env: Environment;
  readonly queueMaxBytes: number;
  /** Told the keys of pages that have gone for want of space. */
  readonly onEvict: (keys: string[]) => void;
}

/**
 * Writes queued pages, several at a time, and lists each, in the order of the queue, when its bytes are written. Before its place was
 * given to it, the journal file says that the page which was there is gone.
 *
 * Accounting: a page being written is unfilled and held in the index, and counts in the queue, until it is listed or given up.
 */
export class PageWriter {
  readonly queue: WriteQueue;
  readonly #parts: PageWriterParts;
  #writing = 0;
  /** Resolves when the page taken last is listed or given up. */
  #lastEnd: Promise<void> = Promise.resolve();
  #skippedPages = 0;
  #evictions = 0;
  #writtenPages = 0;
  #errors = 0;
  /** Nothing is written before this time of the clock, after a failure. */
  #retryAtMs = Number.NEGATIVE_INFINITY;
  #tellAtMs = Number.NEGATIVE_INFINITY;
  /** What the journal was told since a write failed is not in its file until it is rewritten. */
  #isJournalBroken = false;

  constructor(parts: PageWriterParts) {
    this.#parts = parts;
    this.queue = new WriteQueue(parts.queueMaxBytes);
  }

  get stats(): {
    readonly skippedPages: number;
    readonly evictions: number;
    readonly writtenPages: number;
    readonly writeErrors: number;
  } {
    return {
      skippedPages: this.#skippedPages,
      evictions: this.#evictions,
      writtenPages: this.#writtenPages,
      writeErrors: this.#errors,
    };
  }

  /** False: the page is skipped, and counted. */
  add(entry: QueuedPage): boolean {
    const { folder, env } = this.#parts;
    const { length } = entry.page;
    const isWritable = env.clock.nowMs() >= this.#retryAtMs && length <= folder.file.capacityBytes;
    if (!isWritable || !this.queue.hasRoomFor(length)) {
      this.skip();
      return false;
    }
    this.queue.add(entry);
    this.#pump();
    return true;
  }

  /** Counts a page that is not written. */
  skip(): void {
    this.#skippedPages++;
    this.#parts.env.metrics.count('meshcache_disk_skipped_pages_total');
  }

  /** Resolves when what is known of written pages is in the journal file. */
  async flushJournal(): Promise<void> {
    try {
      await this.#parts.folder.journal.flush();
    } catch (error) {
      this.#isJournalBroken = true;
      throw error;
    }
  }

  /** Reading or writing has failed: counted, told now and then, and a disk in trouble is not written for a while. */
  failed(error: unknown): void {
    const { path, env } = this.#parts;
    const nowMs = env.clock.nowMs();
    this.#errors++;
    env.metrics.count('meshcache_disk_write_errors_total');
    this.#retryAtMs = nowMs + DISK_RETRY_AFTER_MS;
    if (nowMs < this.#tellAtMs) return;
    this.#tellAtMs = nowMs + DISK_LOG_INTERVAL_MS;
    env.log.log('error', 'disk tier: reading or writing fails', { path, error: String(error) });
  }

  #pump(): void {
    while (this.#writing < DISK_WRITES_IN_FLIGHT_MAX_COUNT) {
      const entry = this.queue.take();
      if (entry === undefined) return;
      this.#writing++;
      this.#lastEnd = this.#run(entry, this.#lastEnd);
    }
  }

  async #run(entry: QueuedPage, before: Promise<void>): Promise<void> {
    try {
      // An older page of this key may be on its way, and is not to be listed.
      if (this.#parts.index.isHeld(entry.key)) await before;
      const vacancy = await this.#write(entry);
      await before;
      if (vacancy !== null) this.#list(entry, vacancy);
      else if (!entry.isCancelled) this.skip();
    } catch (error) {
      if (!entry.isCancelled) this.skip();
      this.failed(error);
      await before;
    } finally {
      this.#writing--;
      this.queue.ended(entry);
      this.#pump();
    }
  }

  /** The place of the page, whose bytes are written there; null: there is none. */
  async #write(entry: QueuedPage): Promise<Vacancy | null> {
    const { folder, index, env } = this.#parts;
    for (let attempt = 0; ; attempt++) {
      if (entry.isCancelled || env.clock.nowMs() < this.#retryAtMs) return null;
      if (this.#isJournalBroken) await this.#mendJournal();
      const vacancy = await this.#place(entry);
      if (vacancy === null) return null;
      try {
        await folder.file.write(vacancy.offset, entry.page);
        return vacancy;
      } catch (error) {
        index.abandonHeld(entry.key);
        // Places that had pages before have their space.
        const isFull = (error as NodeJS.ErrnoException).code === 'ENOSPC';
        if (!isFull || attempt >= DISK_FULL_EVICTIONS_MAX_COUNT || !this.#evictNext()) throw error;
      }
    }
  }

  /** A place for the page, unfilled and held; the journal file has nobody else there any more. */
  async #place({ key, page }: QueuedPage): Promise<Vacancy | null> {
    const { folder, index } = this.#parts;
    while (!folder.journal.hasRoomFor(key)) if (!this.#evictNext()) return null;
    const { vacancies, gone } = index.place([{ key, length: page.length, here: null, intent: 'new' }]);
    for (const evicted of gone) folder.journal.remove(evicted);
    const [vacancy] = vacancies;
    if (vacancy !== undefined) index.holdUnfilled(vacancies);
    this.#evicted([...gone]);
    if (vacancy === undefined) return null;
    try {
      // Also of pages that were removed before: their places are free.
      await this.flushJournal();
    } catch (error) {
      index.abandonHeld(key);
      throw error;
    }
    return vacancy;
  }

  #list(entry: QueuedPage, vacancy: Vacancy): void {
    const { folder, index } = this.#parts;
    const { key, page, checksum } = entry;
    if (entry.isCancelled) {
      index.abandonHeld(key);
      return;
    }
    try {
      folder.journal.put({ key, offset: vacancy.offset, length: page.length, checksum });
    } catch (error) {
      index.abandonHeld(key);
      throw error;
    }
    index.fillHeld(vacancy, page.length, checksum);
    this.#writtenPages++;
    this.flushJournal().catch((error: unknown) => this.failed(error));
  }

  async #mendJournal(): Promise<void> {
    await this.#parts.folder.journal.rewrite();
    this.#isJournalBroken = false;
  }

  #evictNext(): boolean {
    const key = this.#parts.index.evictNext();
    if (key === null) return false;
    this.#parts.folder.journal.remove(key);
    this.#evicted([key]);
    return true;
  }

  #evicted(keys: string[]): void {
    if (keys.length === 0) return;
    this.#evictions += keys.length;
    this.#parts.env.metrics.count('meshcache_disk_evictions_total', keys.length);
    this.#parts.onEvict(keys);
  }
}
