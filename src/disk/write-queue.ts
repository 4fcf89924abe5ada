import { assert, assertAtMost, assertEqual, reduced } from '../base/assert.js';
import { isExpired } from '../base/expiry.js';
import type { RequestOptions } from '../core/index.js';
import { PageCopies } from '../memory/page-copies.js';
import { isWhole, type PageBytes } from '../pool/page-batch.js';
import type { PageOrigin } from '../pool/page-index.js';
import type { LocalRead } from '../pool/page-reading.js';
import { alignedUp } from './folder/alignment.js';

/** A page that waits to be written to disk, or is being written. */
export interface QueuedPage {
  readonly key: string;
  readonly page: PageBytes;
  readonly checksum: number;
  /** Origin of the page, which changes if the page is set again before it is written. */
  origin: PageOrigin;
  /** The request that the page belongs to. */
  readonly request?: RequestOptions | undefined;
  /** Called once, when the bytes are not needed any more. */
  readonly release: () => void;
  /** Whether the page must not be listed, because it was removed or another page took its key. */
  isCancelled: boolean;
}

/**
 * Pages that wait to be written or are being written, bounded by their disk space. For each key, only the latest page
 * counts.
 *
 * Accounting: `bytes` is the total of the waiting pages, which are in `#waiting` and not cancelled, and of the taken
 * pages that have not ended, which are in `#taken`.
 */
export class WriteQueue {
  readonly maxBytes: number;
  /** Waiting pages; undefined where a page was taken. */
  readonly #waiting: (QueuedPage | undefined)[] = [];
  /** Index of the first page in `#waiting` that was not taken, because shifting a long array is slow. */
  #first = 0;
  /** Index in `#waiting` up to which taken pages are cleared. */
  #cleared = 0;
  /** Taken pages, some of which may be cancelled. */
  readonly #taken = new Set<QueuedPage>();
  readonly #byKey = new Map<string, QueuedPage>();
  #bytes = 0;
  #onIdle: (() => void)[] = [];

  readonly #present: () => number;

  /** `present`: the present of the hybrid clock, by which pages expire. Default: none expires. */
  constructor(maxBytes: number, present: () => number = () => 0) {
    this.maxBytes = maxBytes;
    this.#present = present;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#bytes === 0;
  }

  /** The queued page of this key, for readers; undefined: there is none, or it is expired. */
  find(key: string): QueuedPage | undefined {
    const entry = this.#byKey.get(key);
    const expires = entry?.origin.expires ?? 0;
    // Most pages never expire, and need no look at the clock.
    return expires !== 0 && isExpired(expires, this.#present()) ? undefined : entry;
  }

  /** The queued page of this key, even if it is expired; undefined: there is none. */
  get(key: string): QueuedPage | undefined {
    return this.#byKey.get(key);
  }

  /** Whether `length` more bytes fit; a page larger than the whole queue fits alone. */
  hasRoomFor(length: number): boolean {
    return this.#bytes === 0 || this.#bytes + alignedUp(length) <= this.maxBytes;
  }

  add(entry: QueuedPage): void {
    this.cancel(entry.key);
    this.#byKey.set(entry.key, entry);
    this.#waiting.push(entry);
    this.#bytes += alignedUp(entry.page.length);
  }

  /**
   * Takes the next pages to write, in order: one, or several of at most `maxBytes` in all; empty if none waits. They
   * count until {@link ended}.
   */
  take(maxBytes: number): QueuedPage[] {
    const taken: QueuedPage[] = [];
    let bytes = 0;
    for (; this.#first < this.#waiting.length; this.#first++) {
      const entry = this.#waiting[this.#first] as QueuedPage;
      if (entry.isCancelled) continue;
      bytes += alignedUp(entry.page.length);
      if (taken.length > 0 && bytes > maxBytes) break;
      this.#taken.add(entry);
      taken.push(entry);
    }
    // Taken pages are cleared at once; the array itself is compacted only now and then.
    for (let i = this.#cleared; i < this.#first; i++) this.#waiting[i] = undefined;
    this.#cleared = this.#first;
    if (this.#first * 2 < this.#waiting.length) return taken;
    this.#waiting.splice(0, this.#first);
    this.#first = this.#cleared = 0;
    return taken;
  }

  /** Ends a taken page, written or not. */
  ended(entry: QueuedPage): void {
    if (this.#byKey.get(entry.key) === entry) this.#byKey.delete(entry.key);
    this.#taken.delete(entry);
    this.#drop(entry);
  }

  /**
   * Cancels the queued page of this key, if there is one: it will not be listed, and not be written if it still waits.
   */
  cancel(key: string): void {
    const entry = this.#byKey.get(key);
    if (entry === undefined) return;
    entry.isCancelled = true;
    this.#byKey.delete(key);
    if (!this.#taken.has(entry)) this.#drop(entry);
  }

  /** Keys of the pages that wait or are being written. */
  keys(): string[] {
    return [...this.#byKey.keys()];
  }

  /** Cancels all pages; returns their number. */
  cancelAll(): number {
    const keys = this.keys();
    for (const key of keys) this.cancel(key);
    return keys.length;
  }

  /** Resolves when no page waits or is being written. */
  idle(): Promise<void> {
    if (this.isEmpty) return Promise.resolve();
    return new Promise((resolve) => this.#onIdle.push(resolve));
  }

  #drop({ page, release }: QueuedPage): void {
    this.#bytes = reduced('write queue: bytes', this.#bytes, alignedUp(page.length));
    release();
    if (!this.isEmpty) return;
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** Number of waiting pages. */
  get waitingCount(): number {
    return this.#byKey.size - this.#liveTakenCount();
  }

  /** Keys of taken pages that have not ended, including cancelled ones. */
  takenKeys(): string[] {
    return Array.from(this.#taken, ({ key }) => key);
  }

  /** Throws `InvariantError` unless the accounting of this class holds and each key finds its latest page. */
  verify(): void {
    const waiting = this.#waiting.slice(this.#first).filter((entry) => entry?.isCancelled === false) as QueuedPage[];
    const all = [...waiting, ...this.#taken];
    assertEqual('write queue: pages', new Set(all).size, all.length);
    const bytes = all.reduce((sum, { page }) => sum + alignedUp(page.length), 0);
    assertEqual('write queue: bytes', this.#bytes, bytes);
    if (all.length > 1) assertAtMost('write queue: bytes of several pages', bytes, this.maxBytes);
    const live = all.filter(({ isCancelled }) => !isCancelled);
    for (const entry of live) {
      const isFound = this.#byKey.get(entry.key) === entry;
      assert(isFound, () => `write queue: ${JSON.stringify(entry.key)} is on its way and not found by its key`);
    }
    assertEqual('write queue: keys', this.#byKey.size, live.length);
    assert(all.length > 0 || this.#onIdle.length === 0, 'write queue: empty, and somebody waits for that');
  }

  #liveTakenCount(): number {
    let count = 0;
    for (const { isCancelled } of this.#taken) if (!isCancelled) count++;
    return count;
  }
}

/** Copies the bytes of a queued page, which are in memory. */
export function readWaiting({ page, checksum }: QueuedPage, target: PageBytes): LocalRead {
  if (page.length !== target.length || !isWhole(target)) return 'wrong-length';
  const copies = new PageCopies();
  copies.add(page.views, target.views);
  return copies.run()[0] === checksum ? 'read' : 'damaged';
}
