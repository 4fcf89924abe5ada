import { type CancelSignal, unlessAborted } from '../base/concurrency/cancellation.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PublishRequest } from '../core/index.js';
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
import type { Slice } from './call/key-steps.js';
import type { CallOptions, RequestCall, RequestCalls, RequestParts } from './call/request-calls.js';
import { type Publishing, publishSlices } from './disk/publishing.js';
import type { RefusedKeys } from './ground/own-locations.js';
import type { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';

/** Reasons counted by the metric. */
type CountedRefusal = Extract<RefusalReason, 'too_large' | 'no_room' | 'directory' | 'superseded' | 'draining'>;

/** State shared by all calls that set pages of a store. `stopped`: every `set` returns false. */
class Writing {
  readonly ground: StoreGround;
  readonly statements: PageStatements;
  readonly skipped: SkippedWrites;
  state: 'open' | 'stopped' | 'closed' = 'open';

  constructor(ground: StoreGround, statements: PageStatements) {
    this.ground = ground;
    this.statements = statements;
    this.skipped = new SkippedWrites(ground);
  }
}

/** Publishes pages and announces them in the directory. */
export class PageWrites {
  readonly #writing: Writing;
  readonly #calls: RequestCalls;
  #pages = 0;
  #bytes = 0;

  constructor(ground: StoreGround, statements: PageStatements, calls: RequestCalls) {
    this.#writing = new Writing(ground, statements);
    this.#calls = calls;
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
    const { ground } = this.#writing;
    const { clock, metrics, versions } = ground;
    const request = this.#calls.begin(told, pages.length);
    const startMs = clock.nowMs();
    const ageMs = time === undefined ? 0 : startMs - time.askedMs;
    const expires = expiresInMs === undefined ? 0 : versions.in(expiresInMs - ageMs);
    const origin: PageOrigin = { version: versions.next(), kind, expires, setBy: 0 };
    const call = new SetCall(this.#writing, { keys, pages, origin, request, signal, time, refusals });
    await (ground.disk?.publish(call) ?? publishSlices(call, ground)).finally(request.end);
    const results = await call.ended();
    const written = results.reduce((count, ok) => count + Number(ok), 0);
    if (written > 0) {
      const bytes = pages.reduce((sum, page, i) => sum + (results[i] === true ? page.length : 0), 0);
      this.#pages += written;
      this.#bytes += bytes;
      metrics.recordWrites({ pages: written, bytes, seconds: (clock.nowMs() - startMs) / 1000 });
    }
    return results;
  }

  /** Stops publishing: from now on every `set` returns false. */
  stop(): void {
    if (this.#writing.state === 'open') this.#writing.state = 'stopped';
    this.#writing.ground.disk?.endWaits();
  }

  /** Stops: calls in progress publish nothing more. */
  close(): void {
    this.#writing.state = 'closed';
  }
}

/** Pages that a call sets, and the details of the call. */
interface Setting {
  readonly keys: Keys;
  readonly pages: readonly CallerPage[];
  readonly origin: PageOrigin;
  readonly request: RequestCall;
  readonly signal: CancelSignal | undefined;
  readonly time: CallTime | undefined;
  readonly refusals: Reasons<RefusalReason> | undefined;
}

/** One call that sets pages; published pages are announced slice by slice. */
class SetCall implements Publishing {
  readonly keys: Keys;
  readonly pages: readonly CallerPage[];
  readonly origin: PageOrigin;
  readonly request: RequestParts<PublishRequest>;
  readonly signal: CancelSignal | undefined;
  readonly refusals: Reasons<RefusalReason> | undefined;
  readonly #time: CallTime | undefined;
  readonly #diskRequest: RequestParts;
  readonly #writing: Writing;
  readonly #results: boolean[];
  readonly #announcements: Promise<void>[] = [];

  constructor(writing: Writing, { keys, pages, origin, request, signal, time, refusals }: Setting) {
    this.keys = keys;
    this.pages = pages;
    this.origin = origin;
    this.request = request.pool;
    this.signal = signal;
    this.refusals = refusals;
    this.#time = time;
    this.#diskRequest = request.disk;
    this.#writing = writing;
    this.#results = new Array<boolean>(pages.length).fill(false);
  }

  mayGoOn(pagesLeft: number): boolean {
    if (this.#isOver()) return false;
    const { state, skipped } = this.#writing;
    if (state === 'stopped') skipped.count('draining', pagesLeft);
    return state === 'open';
  }

  takenBack(keys: readonly string[]): void {
    this.#writing.ground.feed.evicted(keys);
  }

  left(keys: readonly string[]): void {
    const { statements, ground } = this.#writing;
    statements.restate(keys).catch((error: unknown) => {
      ground.log.log('error', 'announcing pages that were not set failed', { error: String(error) });
    });
  }

  published({ start }: Slice, pages: readonly (PublishedPage | null)[], keys: Keys): void {
    const { ground, skipped, state } = this.#writing;
    if (state === 'closed') return;
    const slice = { start, keys, published: pages };
    if (pages.includes(null)) skipped.noteUnpublished(slice, this);
    ground.feed.set(stringsOf(keys));
    const outdated = ground.disk?.writeThrough(keys, pages, this.#diskRequest);
    const stated = this.#state(slice);
    this.#announcements.push(outdated === undefined ? stated : this.#afterRemoval(outdated, stated, slice));
  }

  /** Resolves with one result per page when the directory has answered or the caller has given up. */
  async ended(): Promise<boolean[]> {
    const results = this.#results;
    // All pages are copied by now, so a caller that gives up on the directory gets its memory back.
    const announced = await unlessAborted(Promise.all(this.#announcements), this.signal);
    // After an abort it is unknown which pages the owners have accepted, so every result is false.
    if (announced === undefined) results.fill(false);
    this.refusals?.fill(results, this.#refusalReason());
    return announced === undefined ? [...results] : results;
  }

  /** Whether the caller has given the call up. */
  #isOver(): boolean {
    const { version, expires } = this.origin;
    // If the clock was found to be ahead and began anew, a version taken before that is no longer announced.
    const isAhead = this.#writing.ground.versions.isAhead(version, expires);
    return this.signal?.aborted === true || this.#time?.isOver() === true || isAhead;
  }

  /** The reason for unset pages that have none yet. */
  #refusalReason(): RefusalReason {
    const { state } = this.#writing;
    if (state === 'closed') return 'closed';
    const end = endedBy(this.signal) ?? (this.#time?.isOver() === true ? 'timed_out' : undefined);
    return end ?? (state === 'open' ? 'no_room' : 'draining');
  }

  /**
   * Announces a slice in the directory; the results of pages that no owner accepts, or whose content lost, become
   * false.
   */
  async #state({ start, keys, published }: PublishedSlice): Promise<void> {
    const results = this.#results;
    const { statements, skipped } = this.#writing;
    published.forEach((page, j) => {
      if (page !== null) results[start + j] = true;
    });
    const refused = await statements.stateSet(keys, published, this.origin, () => this.#isOver());
    this.#noteStated(keys, published, refused);
    if (refused.size === 0) return;
    stringsOf(keys).forEach((key, j) => {
      const reason = refused.get(key);
      if (reason === undefined) return;
      results[start + j] = false;
      this.refusals?.note(start + j, reason);
    });
    const reasons = [...refused.values()];
    for (const reason of ['directory', 'superseded'] as const) {
      skipped.count(reason, reasons.filter((each) => each === reason).length);
    }
  }

  /** Waits for both promises. The results of pages whose earlier content a crash could bring back become false. */
  async #afterRemoval(outdated: Promise<void>, stated: Promise<void>, slice: PublishedSlice): Promise<void> {
    const [removed] = await Promise.allSettled([outdated, stated]);
    await stated;
    if (removed.status === 'fulfilled') return;
    for (let j = 0; j < slice.published.length; j++) {
      this.#results[slice.start + j] = false;
      this.refusals?.note(slice.start + j, 'timed_out');
    }
  }

  /** Passes on which pages of a slice the directory has. */
  #noteStated(keys: Keys, published: readonly (PublishedPage | null)[], refused: RefusedKeys): void {
    const { state, ground } = this.#writing;
    if (state === 'closed') return;
    const strings = stringsOf(keys);
    const areAll = refused.size === 0 && !published.includes(null);
    ground.feed.stated(areAll ? strings : strings.filter((key, j) => published[j] !== null && !refused.has(key)));
  }
}

/** A slice of a call, from page `start`, as accepted by the pool; null for pages that it did not accept. */
interface PublishedSlice {
  readonly start: number;
  /** Keys of the slice, all of one namespace. */
  readonly keys: Keys;
  readonly published: readonly (PublishedPage | null)[];
}

/** Counts pages that were not set, by reason, and logs the reasons. */
class SkippedWrites {
  readonly #ground: StoreGround;
  readonly #log: ReasonLog<RefusalReason>;

  constructor(ground: StoreGround) {
    this.#ground = ground;
    this.#log = new ReasonLog('pages not set', ground);
  }

  /** Counts pages. `quota`: the quota of their namespace tag, if it has refused them. */
  count(reason: CountedRefusal, pages: number, quota?: ReasonQuota): void {
    if (pages === 0) return;
    this.#ground.metrics.count('meshcache_skipped_writes_total', pages, { reason });
    this.#log.note(reason, pages, quota);
  }

  /** Counts the pages of a slice that the pool did not accept, and gives the caller the reasons if it wants them. */
  noteUnpublished({ start, keys, published }: PublishedSlice, { pages, refusals }: SetCall): void {
    const names = stringsOf(keys);
    let withoutRoom = 0;
    let tooLarge = 0;
    let aboveQuota = 0;
    // All pages of a slice have the same namespace.
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
