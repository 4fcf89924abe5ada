import { unlessAborted } from '../base/concurrency/cancellation.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PageOrigin, PublishedPage } from '../pool/published-pool.js';
import type { EntryKind } from '../types.js';
import {
  type CallTime,
  endedBy,
  ReasonLog,
  type ReasonQuota,
  type Reasons,
  type RefusalReason,
} from './call/call-options.js';
import type { CallerPage } from './call/caller-page.js';
import type { CallOptions, RequestCalls } from './call/request-calls.js';
import { type Publishing, publishSlices } from './disk/publishing.js';
import type { RefusedKeys } from './ground/own-locations.js';
import type { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';

/** Reasons that the metric counts. */
type CountedRefusal = Extract<RefusalReason, 'too_large' | 'no_room' | 'directory' | 'superseded' | 'draining'>;

/** A slice of a call as the pool has taken it; null for pages that it has not taken. */
interface Unpublished {
  /** All pages of the call. */
  readonly pages: readonly { readonly length: number }[];
  /** Keys of the slice, all of one namespace. */
  readonly keys: Keys;
  readonly published: readonly (PublishedPage | null)[];
  readonly refusals: Reasons<RefusalReason> | undefined;
}

/** Publishes pages and announces them in the directory. */
export class PageWrites {
  readonly #ground: StoreGround;
  readonly #statements: PageStatements;
  readonly #calls: RequestCalls;
  readonly #skipped: SkippedWrites;
  #isPublishing = true;
  #pages = 0;
  #bytes = 0;
  #closed = false;

  constructor(ground: StoreGround, statements: PageStatements, calls: RequestCalls) {
    this.#ground = ground;
    this.#statements = statements;
    this.#calls = calls;
    this.#skipped = new SkippedWrites(ground);
  }

  /** Pages written since the store was created, and their bytes. */
  stats(): { readonly pagesWritten: number; readonly writtenBytes: number } {
    return { pagesWritten: this.#pages, writtenBytes: this.#bytes };
  }

  /** Publishes pages; see `PageStore.set`. */
  async set(
    keys: Keys,
    pages: readonly CallerPage[],
    kind: EntryKind,
    { signal, refusals, expiresInMs, time, ...told }: CallOptions = {},
  ): Promise<boolean[]> {
    const { clock, disk, feed, metrics, versions } = this.#ground;
    const request = this.#calls.begin(told, pages.length);
    const startMs = clock.nowMs();
    const ageMs = time === undefined ? 0 : startMs - time.askedMs;
    const expires = expiresInMs === undefined ? 0 : versions.in(expiresInMs - ageMs);
    const origin: PageOrigin = { version: versions.next(), kind, expires, setBy: 0 };
    // A version that was taken before the clock turned out to be ahead, and began anew, is not stated any more.
    const isOver = (): boolean =>
      signal?.aborted === true || time?.isOver() === true || versions.isAhead(origin.version, expires);
    const results = new Array<boolean>(pages.length).fill(false);
    const announcements: Promise<void>[] = [];
    const publishing: Publishing = {
      keys,
      pages,
      origin,
      request: request.pool,
      signal,
      mayGoOn: (pagesLeft) => !isOver() && this.#mayPublish(pagesLeft),
      onTakenBack: (gone) => feed.evicted(gone),
      onLeft: (left) => this.#stateLeft(left),
      onPublished: ({ start }, published, sliceKeys) => {
        if (this.#closed) return;
        if (published.includes(null))
          this.#skipped.noteUnpublished(start, { keys: sliceKeys, pages, published, refusals });
        feed.set(stringsOf(sliceKeys));
        const outdated = disk?.writeThrough(sliceKeys, published, request.disk);
        const slice = { keys: sliceKeys, published, origin, results, refusals, isOver };
        const stated = this.#stateSlice(start, slice);
        announcements.push(outdated === undefined ? stated : this.#afterRemoval(outdated, stated, { start, slice }));
      },
    };
    await (disk?.publish(publishing) ?? publishSlices(publishing, this.#ground)).finally(request.end);
    // The pages are copied by now, so that a caller that gives up waiting for the directory gets their memory back.
    const announced = await unlessAborted(Promise.all(announcements), signal);
    // After an abort it is unknown which owners have accepted their pages, so that every result is false.
    if (announced === undefined) results.fill(false);
    refusals?.fill(results, this.#refusalReason(signal, time));
    if (announced === undefined) return [...results];
    const written = results.reduce((count, ok) => count + Number(ok), 0);
    if (written > 0) {
      const bytes = pages.reduce((sum, page, i) => sum + (results[i] === true ? page.length : 0), 0);
      this.#pages += written;
      this.#bytes += bytes;
      const seconds = (clock.nowMs() - startMs) / 1000;
      metrics.recordWrites({ pages: written, bytes, seconds });
    }
    return results;
  }

  /** Stops publishing: from now on every `set` is false. */
  stop(): void {
    this.#isPublishing = false;
    this.#ground.disk?.endWaits();
  }

  /** Stops: calls under way publish nothing more. */
  close(): void {
    this.#closed = true;
  }

  #stateLeft(keys: readonly string[]): void {
    this.#statements.restate(keys).catch((error: unknown) => {
      this.#ground.log.log('error', 'announcing pages that were not set failed', { error: String(error) });
    });
  }

  #mayPublish(pagesLeft: number): boolean {
    if (!this.#closed && !this.#isPublishing) this.#skipped.count('draining', pagesLeft);
    return !this.#closed && this.#isPublishing;
  }

  /** The reason for pages of a call that have not been set, and for which none was noted. */
  #refusalReason(signal: AbortSignal | undefined, time: CallTime | undefined): RefusalReason {
    if (this.#closed) return 'closed';
    const end = endedBy(signal) ?? (time?.isOver() === true ? 'timed_out' : undefined);
    return end ?? (this.#isPublishing ? 'no_room' : 'draining');
  }

  /**
   * Announces a slice in the directory; pages that no owner accepts, or whose content has lost, become false in
   * `results`.
   */
  async #stateSlice(
    start: number,
    { keys, published, origin, results, refusals, isOver }: PublishedSlice,
  ): Promise<void> {
    published.forEach((page, j) => {
      if (page !== null) results[start + j] = true;
    });
    const refused = await this.#statements.stateSet(keys, published, origin, isOver);
    this.#noteStated(keys, published, refused);
    if (refused.size === 0) return;
    stringsOf(keys).forEach((key, j) => {
      const reason = refused.get(key);
      if (reason === undefined) return;
      results[start + j] = false;
      refusals?.note(start + j, reason);
    });
    const reasons = [...refused.values()];
    for (const reason of ['directory', 'superseded'] as const) {
      this.#skipped.count(reason, reasons.filter((each) => each === reason).length);
    }
  }

  /** Waits for both. Pages whose earlier content a crash could bring back become false. */
  async #afterRemoval(
    outdated: Promise<void>,
    stated: Promise<void>,
    { start, slice }: { readonly start: number; readonly slice: PublishedSlice },
  ): Promise<void> {
    const [removed] = await Promise.allSettled([outdated, stated]);
    await stated;
    if (removed.status === 'fulfilled') return;
    for (let j = 0; j < slice.published.length; j++) {
      slice.results[start + j] = false;
      slice.refusals?.note(start + j, 'timed_out');
    }
  }

  /** Tells of the pages of a slice that the directory has. */
  #noteStated(keys: Keys, published: readonly (PublishedPage | null)[], refused: RefusedKeys): void {
    if (this.#closed) return;
    const strings = stringsOf(keys);
    const areAll = refused.size === 0 && !published.includes(null);
    this.#ground.feed.stated(areAll ? strings : strings.filter((key, j) => published[j] !== null && !refused.has(key)));
  }
}

/** A published slice of a call; `published` has one element for each key. */
interface PublishedSlice {
  readonly keys: Keys;
  readonly published: readonly (PublishedPage | null)[];
  readonly origin: PageOrigin;
  /** Results of the whole call. */
  readonly results: boolean[];
  readonly refusals: Reasons<RefusalReason> | undefined;
  /** Whether the caller has given the call up. */
  readonly isOver: () => boolean;
}

/** Counts pages that have not been set, by reason, and logs the reasons. */
class SkippedWrites {
  readonly #ground: StoreGround;
  readonly #log: ReasonLog<RefusalReason>;

  constructor(ground: StoreGround) {
    this.#ground = ground;
    this.#log = new ReasonLog('pages not set', ground);
  }

  /** `quota`: the quota of the pages' namespace tag, if it is what has refused them. */
  count(reason: CountedRefusal, pages: number, quota?: ReasonQuota): void {
    if (pages === 0) return;
    this.#ground.metrics.count('meshcache_skipped_writes_total', pages, { reason });
    this.#log.note(reason, pages, quota);
  }

  /**
   * Counts those pages of the slice from index `start` on that the pool has not taken, and gives their reasons to a
   * caller that asks for them.
   */
  noteUnpublished(start: number, { keys, pages, published, refusals }: Unpublished): void {
    const names = stringsOf(keys);
    let withoutRoom = 0;
    let tooLarge = 0;
    let aboveQuota = 0;
    // A slice is of one namespace.
    let quota: ReasonQuota | undefined;
    for (let j = 0; j < published.length; j++) {
      if (published[j] !== null) continue;
      const [key, length] = [names[j] as string, pages[start + j]?.length ?? 0];
      const isTooLarge = this.#ground.limits.isTooLarge(key, length);
      const above = this.#ground.limits.quotaBelow(key, length);
      quota ??= above;
      if (above !== undefined) aboveQuota++;
      else if (isTooLarge) tooLarge++;
      else withoutRoom++;
      refusals?.note(start + j, isTooLarge ? 'too_large' : 'no_room');
    }
    this.count('too_large', tooLarge);
    this.count('too_large', aboveQuota, quota);
    this.count('no_room', withoutRoom);
  }
}
