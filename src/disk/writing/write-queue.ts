import { assert, assertAtMost, assertEqual } from '../../base/assert.js';
import type { RequestOptions } from '../../core/index.js';
import { PageCopies } from '../../memory/page-copies.js';
import { isWhole, type PageBytes } from '../../pool/page-batch.js';
import type { PageOrigin } from '../../pool/page-index.js';
import type { LocalRead } from '../../pool/page-reading.js';
import { alignedUp } from '../page-file/alignment.js';

/** A page on its way to disk. */
export interface QueuedPage {
  readonly key: string;
  readonly page: PageBytes;
  readonly checksum: number;
  /** It may be set again before it is written. */
  origin: PageOrigin;
  /** That the page is a part of. */
  readonly request?: RequestOptions | undefined;
  /** Called once: the bytes are not needed any more. */
  readonly release: () => void;
  /** It is not to be listed: removed, or another page took its key. */
  isCancelled: boolean;
}

/**
 * Pages that wait to be written and those that are being written, bounded in the bytes of disk that they take; of each key the
 * latest one.
 *
 * Accounting: `bytes` is the sum over the pages that wait, which are in `#waiting` and not cancelled, and those that
 * were taken and have not ended, which are in `#taken`.
 */
export class WriteQueue {
  readonly maxBytes: number;
  /** Undefined where a page was taken. */
  readonly #waiting: (QueuedPage | undefined)[] = [];
  /** First of `#waiting` that has not been taken: shifting a long array is slow. */
  #first = 0;
  /** Up to here what was taken is not kept. */
  #cleared = 0;
  /** They may be cancelled. */
  readonly #taken = new Set<QueuedPage>();
  readonly #byKey = new Map<string, QueuedPage>();
  #bytes = 0;
  #onIdle: (() => void)[] = [];

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#bytes === 0;
  }

  /** The page that will be under this key; undefined: none is on its way. */
  get(key: string): QueuedPage | undefined {
    return this.#byKey.get(key);
  }

  /** Whether there is room for so many bytes more: a page larger than the whole queue may pass alone. */
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
   * The next pages to write, in order: one, or several of at most `maxBytes` together. They go on counting until {@link ended}.
   * None: none waits.
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
    // What was taken is not kept, and the rest not moved each time.
    for (let i = this.#cleared; i < this.#first; i++) this.#waiting[i] = undefined;
    this.#cleared = this.#first;
    if (this.#first * 2 < this.#waiting.length) return taken;
    this.#waiting.splice(0, this.#first);
    this.#first = this.#cleared = 0;
    return taken;
  }

  /** What {@link take} gave is written, or will not be. */
  ended(entry: QueuedPage): void {
    if (this.#byKey.get(entry.key) === entry) this.#byKey.delete(entry.key);
    this.#taken.delete(entry);
    this.#drop(entry);
  }

  /** The page of this key, if one is on its way, will not be listed; one that waits is not written. */
  cancel(key: string): void {
    const entry = this.#byKey.get(key);
    if (entry === undefined) return;
    entry.isCancelled = true;
    this.#byKey.delete(key);
    if (!this.#taken.has(entry)) this.#drop(entry);
  }

  /** Of the pages that wait, or are being written. */
  keys(): string[] {
    return [...this.#byKey.keys()];
  }

  /** Returns how many they were. */
  cancelAll(): number {
    const keys = this.keys();
    for (const key of keys) this.cancel(key);
    return keys.length;
  }

  /** Resolves when nothing is on its way. */
  idle(): Promise<void> {
    if (this.isEmpty) return Promise.resolve();
    return new Promise((resolve) => this.#onIdle.push(resolve));
  }

  #drop({ page, release }: QueuedPage): void {
    this.#bytes -= alignedUp(page.length);
    release();
    if (!this.isEmpty) return;
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** Pages that wait. */
  get waitingCount(): number {
    return this.#byKey.size - this.#liveTakenCount();
  }

  /** Pages that were taken and have not ended, by key; cancelled ones as well. */
  takenKeys(): string[] {
    return Array.from(this.#taken, ({ key }) => key);
  }

  /** Throws `InvariantError` unless the accounting of this class holds, and the latest page of each key is found by it. */
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

/** Copies a page that is on its way to disk: its bytes are in memory. */
export function readWaiting({ page, checksum }: QueuedPage, target: PageBytes): LocalRead {
  if (page.length !== target.length || !isWhole(target)) return 'wrong-length';
  const copies = new PageCopies();
  copies.add(page.views, target.views);
  return copies.run()[0] === checksum ? 'read' : 'damaged';
}
