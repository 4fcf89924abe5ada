import { type CancelSignal, onAbort, unlessAborted } from '../../base/concurrency/cancellation.js';
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
import { sliceKeys, stringsOf } from '../../core/binding/key-batch.js';
import { isWhole } from '../../pool/page-batch.js';
import type { PageBytes, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import type { PageLimits } from '../../pool/tenants/page-limits.js';
import type { Cleared, Slice } from '../call/key-steps.js';
import type { Publishing } from './publishing.js';

/** The backlog of a pool, as calls that add to it see it: pages that wait for the disk and are not evicted. */
export interface Backlog {
  /** Bytes that may wait; a single larger page may too. */
  readonly maxBytes: number;
  /** Whether this many more bytes may wait now. */
  hasRoomFor(bytes: number): boolean;
  /** Whether the disk could ever take a page of this length. */
  fits(length: number): boolean;
  /** False if the disk fails, or has finished no write for too long, so that waiting for it is pointless. */
  isMoving(): boolean;
  /** Milliseconds until the disk counts as stalled unless it finishes a write; infinite if it has no writes. */
  stallsInMs(): number;
  /** Allows eviction of the waiting pages. */
  letGo(): void;
}

export interface PacedPublishingParts {
  readonly pool: Pick<PublishedPool, 'publishPages' | 'lease' | 'unlease' | 'remove' | 'stats'>;
  readonly limits: PageLimits;
  readonly backlog: Backlog;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/** A call that publishes pages, and its progress. */
interface Call {
  readonly publishing: Publishing;
  /** Time until which the call may wait. */
  readonly untilMs: number;
  /** Whether its pages have been cleared. */
  isCleared: boolean;
  /**
   * Pages of the call that are in the pool and not yet reported, because an earlier page found no room. By key, in the
   * state in which the call first found or put them.
   */
  readonly untold: Map<string, PublishedPage>;
}

/**
 * Publishes pages no faster than the disk takes them, so that every page is on the disk before the pool evicts it.
 *
 * Calls take turns in order of arrival, each for all of its pages: of two calls with one key, the later one wins. A
 * slice is published when the backlog has room for it. A page is retried if it finds no room in the pool because the
 * pool's pages wait for the disk, are being read, or are in quarantine. A call waits DISK_WRITE_WAIT_MAX_MS in all, its
 * turn included, and never for a stalled disk. After that it goes on without waiting, and its pages may be evicted
 * before they are written.
 *
 * During its turn a call waits only for things that end without a turn here (writes, reads, leases of promoted pages,
 * quarantines), so that turns cannot block each other for good.
 */
export class PacedPublishing {
  readonly #parts: PacedPublishingParts;
  readonly #sliceBytes: number;
  readonly #turns = new Mutex();
  readonly #calls = new Set<Call>();
  #isStopped = false;
  #isClosed = false;
  /** Wakes the waiting call when something may have changed. */
  #wake: () => void = () => {};

  constructor(parts: PacedPublishingParts) {
    this.#parts = parts;
    this.#sliceBytes = Math.min(COPY_SLICE_MAX_BYTES, parts.backlog.maxBytes * DISK_WRITE_SLICE_FRACTION);
  }

  publish(publishing: Publishing): Promise<void> {
    const untilMs = this.#parts.clock.nowMs() + DISK_WRITE_WAIT_MAX_MS;
    const call: Call = { publishing, untilMs, isCleared: false, untold: new Map() };
    let hasTurn = false;
    this.#calls.add(call);
    const turn = this.#turns.run(async () => {
      try {
        if (publishing.signal?.aborted) return;
        hasTurn = true;
        await this.#publish(call);
        this.#takeBack(call);
      } finally {
        this.#calls.delete(call);
      }
    });
    const { signal } = publishing;
    return signal === undefined ? turn : unlessAborted(turn, signal).then(() => (hasTurn ? turn : undefined));
  }

  /** Called when the backlog has shrunk: the waiting call checks again. */
  changed(): void {
    this.#wake();
  }

  /** Called when pages are cleared: earlier calls that set them publish nothing more. */
  cleared({ voidBelow, isCleared }: Cleared): void {
    for (const call of this.#calls) {
      if (call.publishing.origin.version < voidBelow && stringsOf(call.publishing.keys).some(isCleared))
        call.isCleared = true;
    }
    this.#wake();
  }

  /** Ends all waits. */
  stop(): void {
    this.#isStopped = true;
    this.#wake();
  }

  /** Stops: calls no longer wait, and no longer touch the pool. */
  close(): void {
    this.#isClosed = true;
    this.stop();
  }

  async #publish(call: Call): Promise<void> {
    const { clock } = this.#parts;
    let maxCount = Number.POSITIVE_INFINITY;
    for (let start = 0; start < call.publishing.pages.length; ) {
      if (start > 0) await clock.yield();
      const slice = this.#sliceFrom(start, maxCount, call);
      await this.#roomInBacklog(slice, call);
      if (!this.#mayGoOn(start, call)) return;
      const count = await this.#publishSlice(slice, call);
      start += count;
      // After a refusal, pages are published one by one until one finds room again, so that no page of a slice evicts
      // another one of it.
      maxCount = count === slice.end - slice.start ? Number.POSITIVE_INFINITY : 1;
    }
  }

  /** The pages from `start` on that may be published at once. */
  #sliceFrom(start: number, maxCount: number, call: Call): Slice {
    const maxBytes = this.#mayWait(call) ? this.#sliceBytes : COPY_SLICE_MAX_BYTES;
    let end = start;
    let bytes = 0;
    do bytes += (call.publishing.pages[end++] as PageBytes).length;
    while (
      end < call.publishing.pages.length &&
      end - start < maxCount &&
      bytes + (call.publishing.pages[end] as PageBytes).length <= maxBytes
    );
    return { start, end };
  }

  async #roomInBacklog({ start, end }: Slice, call: Call): Promise<void> {
    const { backlog, limits, clock } = this.#parts;
    const keys = stringsOf(sliceKeys(call.publishing.keys, start, end));
    let bytes = 0;
    for (const [i, { length }] of call.publishing.pages.slice(start, end).entries()) {
      if (!limits.isTooLarge(keys[i] as string, length) && backlog.fits(length)) bytes += length;
    }
    while (bytes > 0 && !backlog.hasRoomFor(bytes) && this.#mayWait(call)) {
      await this.#pause(Math.min(call.untilMs - clock.nowMs(), backlog.stallsInMs()), call.publishing.signal);
    }
    if (!backlog.isMoving()) backlog.letGo();
  }

  /** Publishes a slice, from its first page on, as far as there is room; returns the number of pages that are done. */
  async #publishSlice(slice: Slice, call: Call): Promise<number> {
    const { pool, clock } = this.#parts;
    const { start, end } = slice;
    let pauseMs = DISK_WRITE_RETRY_MIN_MS;
    for (let attempt = 0; ; attempt++) {
      const last = attempt === 0 ? end : start + 1;
      const batch = sliceKeys(call.publishing.keys, start, last);
      const keys = stringsOf(batch);
      const pages = call.publishing.pages.slice(start, last);
      const published = await pool.publishPages(batch, pages, call.publishing.origin, call.publishing.request.next());
      if (this.#isClosed) return last - start;
      published.forEach((page, i) => {
        const key = keys[i] as string;
        if (page !== null && (!page.alreadyPresent || !call.untold.has(key))) call.untold.set(key, page);
      });
      if (call.isCleared) {
        // The pages were cleared before they were published, so those that the clear has not removed are taken back.
        this.#takeBack(call);
        return last - start;
      }
      const leases = pool.lease(batch);
      const refused = pages.findIndex(
        (page, i) =>
          leases[i] === null &&
          !this.#parts.limits.isTooLarge(keys[i] as string, page.length) &&
          this.#mayFindRoom(page, published[i] ?? null, attempt, call),
      );
      const count = refused < 0 ? keys.length : refused;
      try {
        // No other work runs between the lease and this report, so every reported page is in the pool.
        if (count > 0) {
          const told = this.#told(keys, published.slice(0, count), call);
          call.publishing.published({ start, end: start + count }, told, sliceKeys(batch, 0, count));
        }
      } finally {
        pool.unlease(leases.filter((lease) => lease !== null));
      }
      if (count > 0) return count;
      if (attempt === 0 && keys.length > 1) continue;
      await this.#pause(Math.min(call.untilMs - clock.nowMs(), pauseMs), call.publishing.signal);
      pauseMs = Math.min(pauseMs * 2, DISK_WRITE_RETRY_MAX_MS);
      if (!this.#mayGoOn(start, call)) return call.publishing.pages.length - start;
    }
  }

  /**
   * Removes the unreported pages that the call has put into the pool: no reader would find them, and setting them again
   * would take them for announced. Computed pages that were there before stay, and are announced as the call has left
   * them.
   */
  #takeBack({ untold, publishing }: Call): void {
    const pages = [...untold];
    untold.clear();
    if (this.#isClosed) return;
    const gone = pages.flatMap(([key, first]) => (!first.alreadyPresent && this.#parts.pool.remove(key) ? [key] : []));
    if (gone.length > 0) publishing.takenBack(gone);
    const left =
      publishing.origin.kind === 'named' ? [] : pages.flatMap(([key, first]) => (first.alreadyPresent ? [key] : []));
    if (left.length > 0) publishing.left(left);
  }

  /**
   * Reports pages that an earlier attempt published in the state in which that attempt found them, because this is
   * their first report: as new, as a copy that this call has turned into a page of this node, or with the expiry from
   * before it was extended.
   */
  #told(keys: readonly string[], published: readonly (PublishedPage | null)[], { untold }: Call) {
    return published.map((page, i) => {
      const first = untold.get(keys[i] as string);
      untold.delete(keys[i] as string);
      if (page === null || first === undefined) return page;
      const { alreadyPresent, setBy, expires } = first;
      return { ...page, alreadyPresent, setBy, expires };
    });
  }

  /** Whether it is worth trying again to publish a page that is not in the pool. */
  #mayFindRoom(page: PageBytes, published: PublishedPage | null, attempt: number, call: Call): boolean {
    const { pool } = this.#parts;
    if (!isWhole(page) || !this.#mayWait(call)) return false;
    // The page was in the pool, and was evicted at once for another one.
    if (published !== null) return true;
    const { pinned, quarantinedBytes } = pool.stats();
    return attempt === 0 || pinned > 0 || quarantinedBytes > 0;
  }

  #mayGoOn(start: number, call: Call): boolean {
    return call.publishing.mayGoOn(call.publishing.pages.length - start) && !call.isCleared;
  }

  #mayWait(call: Call): boolean {
    const { backlog, clock } = this.#parts;
    const isWanted = !this.#isStopped && !call.isCleared && call.publishing.signal?.aborted !== true;
    return isWanted && clock.nowMs() < call.untilMs && backlog.isMoving();
  }

  /** Waits for a change, at most `ms` milliseconds, or until the signal is aborted. */
  async #pause(ms: number, signal: CancelSignal | undefined): Promise<void> {
    const { clock, metrics } = this.#parts;
    const startMs = clock.nowMs();
    if (signal?.aborted) return;
    const stop = signal && onAbort(signal, () => this.#wake());
    await new Promise<void>((resolve) => {
      const cancel = clock.after(Math.max(0, ms), resolve, { keepAlive: true });
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
    stop?.();
    this.#wake = () => {};
    // A write may have finished while this process was busy: its result is processed before the disk is judged.
    await clock.yield();
    metrics.count('meshcache_disk_write_wait_seconds_total', (clock.nowMs() - startMs) / 1000);
  }
}
