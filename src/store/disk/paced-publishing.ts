import { Mutex } from '../../base/concurrency/mutex.js';
import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import {
  COPY_SLICE_MAX_BYTES,
  DISK_WRITE_RETRY_MAX_MS,
  DISK_WRITE_RETRY_MIN_MS,
  DISK_WRITE_SLICE_FRACTION,
  DISK_WRITE_WAIT_MAX_MS,
} from '../../base/limits.js';
import { isWhole } from '../../pool/page-batch.js';
import type { PageBytes, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import type { Slice } from '../call/page-slices.js';
import type { Publishing } from './publishing.js';

/** The pages of a pool that wait for the disk and are not evicted, as those see it who add to them. */
export interface Backlog {
  /** Bytes that may wait; a larger page may alone. */
  readonly maxBytes: number;
  /** Whether so many bytes more may wait now. */
  hasRoomFor(bytes: number): boolean;
  /** Whether the disk could take a page of that length at all. */
  fits(length: number): boolean;
  /** False: the disk fails, or has not ended any write for too long. There is no use in waiting for it. */
  isMoving(): boolean;
  /** Milliseconds after which the disk is not moving any more unless it ends a write; infinite when it has none. */
  stallsInMs(): number;
  /** Pages that wait may be evicted from now on. */
  letGo(): void;
}

export interface PacedPublishingParts {
  readonly pool: Pick<PublishedPool, 'capacity' | 'publishPages' | 'lease' | 'unlease' | 'remove' | 'stats'>;
  readonly backlog: Backlog;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/** One call. */
interface Call extends Publishing {
  /** It waits for nothing after this time of the clock. */
  readonly untilMs: number;
  /** The number of clears before it. */
  readonly clears: number;
  /** Keys of pages that it has put into the pool, and that nobody was told of yet: they were behind one that has found no room. */
  readonly untold: Set<string>;
}

/**
 * Publishes pages no faster than the disk takes them, so that every page is on the disk before the pool evicts it.
 *
 * Calls take turns in the order in which they came, each for all of its pages: of two calls with one key the later one
 * wins. A slice is published when what it adds to the backlog has room there; a page that finds no room in the pool (its pages wait
 * for the disk, are read, or are in quarantine) is tried again. A call waits DISK_WRITE_WAIT_MAX_MS in all, its turn included, and
 * not for a disk that is not moving: then it goes on without waiting, and its pages take their chances.
 *
 * Nothing that a call waits for needs a turn here: writes, reads, leases of promoted pages and quarantines end by themselves.
 */
export class PacedPublishing {
  readonly #parts: PacedPublishingParts;
  readonly #sliceBytes: number;
  readonly #turns = new Mutex();
  #clears = 0;
  #isStopped = false;
  #isClosed = false;
  /** Tells the call that waits that something has changed. */
  #wake: () => void = () => {};

  constructor(parts: PacedPublishingParts) {
    this.#parts = parts;
    this.#sliceBytes = Math.min(COPY_SLICE_MAX_BYTES, parts.backlog.maxBytes * DISK_WRITE_SLICE_FRACTION);
  }

  publish(publishing: Publishing): Promise<void> {
    const untilMs = this.#parts.clock.nowMs() + DISK_WRITE_WAIT_MAX_MS;
    const call: Call = { ...publishing, untilMs, clears: this.#clears, untold: new Set() };
    return this.#turns.run(async () => {
      await this.#publish(call);
      // Nobody would find them, and set again they would be taken for announced.
      this.#takeBack([...call.untold], call);
    });
  }

  /** The backlog has got smaller: the call that waits looks again. */
  changed(): void {
    this.#wake();
  }

  /** Everything has been removed: calls under way publish nothing more. */
  cleared(): void {
    this.#clears++;
    this.#wake();
  }

  /** Nothing is waited for any more. */
  stop(): void {
    this.#isStopped = true;
    this.#wake();
  }

  /** Nor is the pool touched any more. */
  close(): void {
    this.#isClosed = true;
    this.stop();
  }

  async #publish(call: Call): Promise<void> {
    const { clock } = this.#parts;
    let maxCount = Number.POSITIVE_INFINITY;
    for (let start = 0; start < call.keys.length; ) {
      if (start > 0) await clock.yield();
      const slice = this.#sliceFrom(start, maxCount, call);
      await this.#roomInBacklog(slice, call);
      if (!this.#mayGoOn(start, call)) return;
      const count = await this.#publishSlice(slice, call);
      start += count;
      // After a refusal page by page, until one finds room again: none of a slice is to evict another one of it.
      maxCount = count === slice.end - slice.start ? Number.POSITIVE_INFINITY : 1;
    }
  }

  /** From `start` on, what may be published at once. */
  #sliceFrom(start: number, maxCount: number, call: Call): Slice {
    const maxBytes = this.#mayWait(call) ? this.#sliceBytes : COPY_SLICE_MAX_BYTES;
    let end = start;
    let bytes = 0;
    do bytes += (call.pages[end++] as PageBytes).length;
    while (
      end < call.pages.length &&
      end - start < maxCount &&
      bytes + (call.pages[end] as PageBytes).length <= maxBytes
    );
    return { start, end };
  }

  async #roomInBacklog({ start, end }: Slice, call: Call): Promise<void> {
    const { backlog, pool, clock } = this.#parts;
    let bytes = 0;
    for (const { length } of call.pages.slice(start, end)) {
      if (length <= pool.capacity && backlog.fits(length)) bytes += length;
    }
    while (bytes > 0 && !backlog.hasRoomFor(bytes) && this.#mayWait(call)) {
      await this.#pause(Math.min(call.untilMs - clock.nowMs(), backlog.stallsInMs()));
    }
    if (!backlog.isMoving()) backlog.letGo();
  }

  /** Publishes a slice, or as much of it as finds room, from the first page on; returns how many pages are done with. */
  async #publishSlice(slice: Slice, call: Call): Promise<number> {
    const { pool, clock } = this.#parts;
    const { start, end } = slice;
    let pauseMs = DISK_WRITE_RETRY_MIN_MS;
    for (let attempt = 0; ; attempt++) {
      const last = attempt === 0 ? end : start + 1;
      const keys = call.keys.slice(start, last);
      const pages = call.pages.slice(start, last);
      const published = await pool.publishPages(keys, pages, call.origin, call.request.next());
      if (this.#isClosed) return last - start;
      if (call.clears !== this.#clears) {
        // The clear came before them, unless they went with it.
        this.#takeBack(
          keys.filter((_, i) => published[i]?.alreadyPresent === false),
          call,
        );
        return last - start;
      }
      const leases = pool.lease(keys);
      published.forEach((page, i) => {
        if (page?.alreadyPresent === false) call.untold.add(keys[i] as string);
      });
      const refused = pages.findIndex(
        (page, i) => leases[i] === null && this.#mayFindRoom(page, published[i] ?? null, attempt, call),
      );
      const count = refused < 0 ? keys.length : refused;
      try {
        // Nothing is between this and the lease: what is told of is in the pool.
        if (count > 0)
          call.onPublished({ start, end: start + count }, this.#told(keys, published.slice(0, count), call));
      } finally {
        pool.unlease(leases.filter((lease) => lease !== null));
      }
      if (count > 0) return count;
      if (attempt === 0 && keys.length > 1) continue;
      await this.#pause(Math.min(call.untilMs - clock.nowMs(), pauseMs));
      pauseMs = Math.min(pauseMs * 2, DISK_WRITE_RETRY_MAX_MS);
      if (!this.#mayGoOn(start, call)) return call.keys.length - start;
    }
  }

  #takeBack(keys: readonly string[], { onTakenBack }: Call): void {
    if (this.#isClosed) return;
    const gone = keys.filter((key) => this.#parts.pool.remove(key));
    if (gone.length > 0) onTakenBack(gone);
  }

  /** A page that was published at an earlier attempt is new to those who are told of it now. */
  #told(keys: readonly string[], published: readonly (PublishedPage | null)[], { untold }: Call) {
    return published.map((page, i) => {
      const isNew = untold.delete(keys[i] as string);
      return isNew && page !== null ? { ...page, alreadyPresent: false } : page;
    });
  }

  /** Whether it is worth trying again to publish a page that is not in the pool. */
  #mayFindRoom(page: PageBytes, published: PublishedPage | null, attempt: number, call: Call): boolean {
    const { pool } = this.#parts;
    if (page.length > pool.capacity || !isWhole(page) || !this.#mayWait(call)) return false;
    // It was there, and has been evicted for another one at once.
    if (published !== null) return true;
    const { pinned, quarantinedBytes } = pool.stats();
    return attempt === 0 || pinned > 0 || quarantinedBytes > 0;
  }

  #mayGoOn(start: number, call: Call): boolean {
    return call.mayGoOn(call.keys.length - start) && call.clears === this.#clears;
  }

  #mayWait(call: Call): boolean {
    const { backlog, clock } = this.#parts;
    const isWanted = !this.#isStopped && call.clears === this.#clears;
    return isWanted && clock.nowMs() < call.untilMs && backlog.isMoving();
  }

  /** Waits until something has changed, or for so long. */
  async #pause(ms: number): Promise<void> {
    const { clock, metrics } = this.#parts;
    const startMs = clock.nowMs();
    await new Promise<void>((resolve) => {
      const cancel = clock.after(Math.max(0, ms), resolve, { keepAlive: true });
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
    this.#wake = () => {};
    // A write may have ended while this process was busy: it is heard of before the disk is judged.
    await clock.yield();
    metrics.count('meshcache_disk_write_wait_seconds_total', (clock.nowMs() - startMs) / 1000);
  }
}
