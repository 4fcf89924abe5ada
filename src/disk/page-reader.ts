import type { CancelSignal } from '../base/concurrency/cancellation.js';
import { Mutex } from '../base/concurrency/mutex.js';
import { isOverdue } from '../base/environment/files.js';
import { isWhole, type PageBytes } from '../pool/page-batch.js';
import type { PublishedPage } from '../pool/page-index.js';
import type { LocalRead } from '../pool/page-reading.js';
import type { PageWriter } from './page-writer.js';
import { readWaiting } from './write-queue.js';

/**
 * Reads pages of a disk store: from the disk, or from memory while they wait to be written. A page whose bytes do not
 * match its checksum is dropped.
 */
export class PageReader {
  readonly #writer: PageWriter;
  #corruptPages = 0;
  #readPages = 0;
  readonly #reading = new Set<Promise<unknown>>();
  /** Admits one copy of a waiting page at a time, each in a separate turn of the event loop. */
  readonly #copyMutex = new Mutex();

  constructor(writer: PageWriter) {
    this.#writer = writer;
  }

  /** Pages that were dropped because they were damaged, and pages that were read from the disk. */
  get stats(): { readonly corruptPages: number; readonly readPages: number } {
    return { corruptPages: this.#corruptPages, readPages: this.#readPages };
  }

  /**
   * Reads all pages at once, with one outcome per key. The targets are in use until the promise resolves, which is soon
   * after the signal is aborted, whatever the disk does.
   */
  async read(keys: readonly string[], targets: readonly PageBytes[], signal?: CancelSignal): Promise<LocalRead[]> {
    const all = Promise.all(keys.map((key, i) => this.#read(key, targets[i] as PageBytes, signal)));
    this.#reading.add(all);
    try {
      return await all;
    } finally {
      this.#reading.delete(all);
    }
  }

  /** Resolves when the reads in progress have ended. */
  async idle(): Promise<void> {
    await Promise.allSettled([...this.#reading]);
  }

  async #read(key: string, target: PageBytes, signal: CancelSignal | undefined): Promise<LocalRead> {
    const { index, queue } = this.#writer;
    if (queue.find(key) !== undefined) {
      const outcome = await this.#copyMutex.run(() => this.#readWaiting(key, target));
      if (outcome !== undefined) return outcome;
    }
    if (signal?.aborted) return 'absent';
    const [found] = index.peekBatch([key]);
    if (found === undefined || found === null) return 'absent';
    if (found.length !== target.length || !isWhole(target)) return 'wrong-length';
    return this.#readWritten(key, found, { target, signal });
  }

  /** Reads a waiting page from memory; undefined: it no longer waits. */
  async #readWaiting(key: string, target: PageBytes): Promise<LocalRead | undefined> {
    const { queue, options } = this.#writer;
    await options.env.clock.yield();
    const waiting = queue.find(key);
    return waiting && readWaiting(waiting, target);
  }

  async #readWritten(
    key: string,
    found: PublishedPage,
    { target, signal }: { readonly target: PageBytes; readonly signal: CancelSignal | undefined },
  ): Promise<LocalRead> {
    const { folder, index, readers } = this.#writer;
    index.hold([key]);
    let checksum: number | undefined;
    let isUnknown = false;
    try {
      checksum = await readers.during(key, folder.file.read(found.offset, target, signal));
    } catch (error) {
      isUnknown = isOverdue(error) || signal?.aborted === true;
      if (signal?.aborted !== true) this.#writer.state.failed(error);
    }
    // A release makes the page the most recently used one.
    index.release([key]);
    // If the disk does not answer, or the read was aborted, the page is still as before.
    if (isUnknown) return 'absent';
    if (checksum !== found.checksum) {
      this.#dropCorrupt(key, found);
      return 'damaged';
    }
    if (this.#isListed(key, found)) folder.journal.use(found.offset);
    this.#readPages++;
    return 'read';
  }

  /** Whether the index still has this page under the key, and not another one in its place. */
  #isListed(key: string, { offset, checksum }: PublishedPage): boolean {
    const [here] = this.#writer.index.peekBatch([key]);
    return here?.offset === offset && here.checksum === checksum;
  }

  #dropCorrupt(key: string, found: PublishedPage): void {
    const { folder, index, options } = this.#writer;
    this.#corruptPages++;
    options.env.metrics.count('meshcache_disk_corrupt_pages_total');
    if (!this.#isListed(key, found)) return;
    index.remove(key);
    folder.journal.remove(key);
    this.#writer.tellEvicted([key]);
  }

  /** Throws `InvariantError` unless the readers of each key are counted. */
  verify(): void {
    this.#writer.readers.verify();
  }
}
