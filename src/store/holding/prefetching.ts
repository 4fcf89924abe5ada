import { assertEqual } from '../../base/assert.js';
import {
  Cancellation,
  type CancelSignal,
  pause,
  unlessAborted,
  untilAny,
} from '../../base/concurrency/cancellation.js';
import { Mutex } from '../../base/concurrency/mutex.js';
import { type Sharer, Shares } from '../../base/concurrency/shares.js';
import { ClosedError } from '../../base/errors.js';
import {
  HOLD_REQUEST_MAX_KEYS,
  PREFETCH_LEAD_MS,
  PREFETCH_PAUSE_MS,
  PREFETCH_PAUSES_MAX_COUNT,
  PREFETCH_POOL_FRACTION,
  PREFETCH_UNREAD_MS,
  PREFETCHES_LATER_MAX_COUNT,
  PREFETCHES_WAITING_MAX_COUNT,
} from '../../base/limits.js';
import { type CallLimits, inTime } from '../call/call-options.js';
import type { PageFollower } from '../call/page-feed.js';
import type { StoreGround } from '../ground/store-ground.js';
import type { Bringing, HeldPages } from './held-pages.js';

/** Collaborators of prefetching, beside the ground. */
export interface PrefetchingParts {
  /** Brings pages into the pool. */
  readonly held: Pick<HeldPages, 'bring' | 'mayCopy'>;
  /** Whether a program reads or sets pages at this moment. */
  readonly isBusy: () => boolean;
}

export interface PrefetchOptions extends CallLimits {
  /** Milliseconds from now by which the pages should be in the pool. Default: 0, as soon as possible. */
  readonly inMs?: number | undefined;
}

/** Pages that were brought into the pool since the start; those that are neither used nor wasted are still unread. */
export interface PrefetchedPages {
  readonly brought: number;
  readonly used: number;
  readonly wasted: number;
}

type Result = 'brought' | 'present' | 'absent' | 'refused' | 'used' | 'wasted';

/** A page that was brought and has not been read yet. */
interface UnreadPage {
  readonly bytes: number;
  /** The client that asked for it. */
  readonly sharer: Sharer;
  /** Time of the clock at which the page was there and expected. */
  readonly dueMs: number;
}

/**
 * Brings pages into the pool before they are read: from this node's disk, other nodes and the object store. It begins
 * PREFETCH_LEAD_MS before the pages are expected and lets reads and writes of programs go first, for a short time before
 * each part. A client's requests are worked on one at a time, in order of arrival; the parts of several clients'
 * requests take turns.
 *
 * A page counts as used when a program of this node reads it, and as wasted when it leaves the pool unread, or is not
 * read within PREFETCH_UNREAD_MS after it was expected. Unread pages take at most PREFETCH_POOL_FRACTION of the pool.
 * Clients share that, and the places for requests, by {@link Shares}.
 *
 * Accounting: `#unread` has every page that was brought and is neither used nor wasted, the earliest brought first;
 * what `#room` has given away is their total.
 */
export class Prefetching implements PageFollower {
  readonly #ground: StoreGround;
  readonly #parts: PrefetchingParts;
  readonly #turns = new Mutex();
  readonly #roomBytes: number;
  /** Bytes of the pool for unread pages. */
  readonly #room: Shares;
  readonly #unread = new Map<string, UnreadPage>();
  /** Requests that have begun: they wait for their turn, or are worked on. */
  readonly #requests = new Shares(PREFETCHES_WAITING_MAX_COUNT);
  /** Requests for pages that are expected later. */
  readonly #later = new Shares(PREFETCHES_LATER_MAX_COUNT);
  readonly #closing = new Cancellation();
  readonly #counts: Record<Result, number> = { brought: 0, present: 0, absent: 0, refused: 0, used: 0, wasted: 0 };

  constructor(ground: StoreGround, parts: PrefetchingParts) {
    this.#ground = ground;
    this.#parts = parts;
    this.#roomBytes = Math.floor(ground.pool.capacity * PREFETCH_POOL_FRACTION);
    this.#room = new Shares(this.#roomBytes);
    ground.metrics.setGaugeProvider('meshcache_prefetched_unread_bytes', () => this.unreadBytes);
  }

  /** Bytes of the pool that hold prefetched pages which have not been read. */
  get unreadBytes(): number {
    return this.#roomBytes - this.#room.left;
  }

  /** Starts to serve a client. */
  client(sharer: Sharer): ClientPrefetching {
    return new ClientPrefetching(this, sharer);
  }

  /** See {@link ClientPrefetching.prefetch}. */
  async prefetch(client: ClientPrefetching, keys: readonly string[], options: PrefetchOptions): Promise<boolean[]> {
    if (this.#closing.aborted) throw new ClosedError('the store');
    return inTime(this.#ground.clock, options, (call) => this.#prefetch(client, keys, call));
  }

  async #prefetch(
    client: ClientPrefetching,
    keys: readonly string[],
    { inMs = 0, signal }: PrefetchOptions,
  ): Promise<boolean[]> {
    if (keys.length === 0 || signal?.aborted) return keys.map(() => false);
    return untilAny([signal, this.#closing], (ends) => this.#prefetchUntil(client, keys, { inMs, ends }));
  }

  async #prefetchUntil(
    client: ClientPrefetching,
    keys: readonly string[],
    { inMs, ends }: { readonly inMs: number; readonly ends: CancelSignal },
  ): Promise<boolean[]> {
    const none = keys.map(() => false);
    const { clock, pool } = this.#ground;
    const { sharer } = client;
    const expectedMs = clock.nowMs() + inMs;
    const isDue = inMs <= PREFETCH_LEAD_MS || (await this.#untilDue(sharer, inMs - PREFETCH_LEAD_MS, ends));
    if (ends.aborted) return none;
    if (!isDue || !this.#requests.allows(sharer, 1)) {
      this.#count('refused', keys.length);
      return none;
    }
    this.#requests.take(sharer, 1);
    try {
      await unlessAborted(
        client.turns.run(() => this.#bring(sharer, keys, expectedMs, ends)),
        ends,
      );
    } finally {
      this.#requests.giveBack(sharer, 1);
    }
    if (ends.aborted) return none;
    return Array.from(pool.hasBatch(keys), (flag) => flag === 1);
  }

  /** Waits until a request is to begin; false: too many wait already. They do not count among those that have begun. */
  async #untilDue(sharer: Sharer, ms: number, signal: CancelSignal): Promise<boolean> {
    if (!this.#later.allows(sharer, 1)) return false;
    this.#later.take(sharer, 1);
    await pause(this.#ground.clock, ms, signal);
    this.#later.giveBack(sharer, 1);
    return true;
  }

  /** Called when programs of this node have read pages of the pool. */
  readHere(keys: readonly string[]): void {
    if (this.#unread.size === 0) return;
    let used = 0;
    for (const key of keys) used += Number(this.#forget(key));
    if (used > 0) this.#count('used', used);
  }

  /** Called when pages, possibly these, have left the pool. */
  gone(keys: readonly string[]): void {
    if (this.#unread.size === 0 || this.#closing.aborted) return;
    const unread = keys.filter((key) => this.#unread.has(key));
    if (unread.length === 0) return;
    const isHere = this.#ground.pool.hasBatch(unread);
    let wasted = 0;
    for (const [i, key] of unread.entries()) if (isHere[i] === 0) wasted += Number(this.#forget(key));
    if (wasted > 0) this.#count('wasted', wasted);
  }

  stats(): PrefetchedPages {
    const { brought, used, wasted } = this.#counts;
    return { brought, used, wasted };
  }

  /** Ends all requests. */
  close(): void {
    this.#closing.abort();
  }

  /** Keeps the pages that are here, so that no others of the same request take their place: the head for longest. */
  #keep(keys: readonly string[], expectedMs: number): void {
    const { pool, clock } = this.#ground;
    if (this.#closing.aborted) return;
    const isHere = pool.hasBatch(keys);
    const here = keys.filter((_, i) => isHere[i] === 1);
    if (here.length === 0) return;
    pool.renewBatch(here.toReversed());
    const inMs = expectedMs - clock.nowMs();
    if (inMs > 0) pool.expectBatch(here, inMs);
  }

  /** Brings the pages of one request, part by part. */
  async #bring(sharer: Sharer, keys: readonly string[], expectedMs: number, signal: CancelSignal): Promise<void> {
    this.#keep(keys, expectedMs);
    const wanted = [...new Set(keys)];
    for (let start = 0; start < wanted.length && !signal.aborted; start += HOLD_REQUEST_MAX_KEYS) {
      const part = wanted.slice(start, start + HOLD_REQUEST_MAX_KEYS);
      await this.#turns.run(() => this.#bringPart(sharer, part, expectedMs, signal));
    }
  }

  async #bringPart(sharer: Sharer, keys: readonly string[], expectedMs: number, signal: CancelSignal): Promise<void> {
    const { pool, clock } = this.#ground;
    await this.#whileBusy(signal);
    if (signal.aborted || !this.#parts.held.mayCopy) return;
    this.#forgetLate();
    const wasHere = pool.hasBatch(keys);
    const wanted = keys.filter((_, i) => wasHere[i] === 0);
    this.#count('present', keys.length - wanted.length);
    if (wanted.length > 0) await this.#bringMissing(sharer, wanted, expectedMs, signal);
    if (signal.aborted) return;
    const inMs = expectedMs - clock.nowMs();
    if (inMs > 0) pool.expectBatch(keys, inMs);
  }

  async #bringMissing(
    sharer: Sharer,
    wanted: readonly string[],
    expectedMs: number,
    signal: CancelSignal,
  ): Promise<void> {
    const room = this.#room;
    const call: Bringing = {
      admission: () => {
        let bytes = 0;
        return (_, length) => {
          if (!room.allows(sharer, bytes + length)) return false;
          bytes += length;
          return true;
        };
      },
      arrived: (keys) => this.#brought(sharer, keys, expectedMs),
      get isOver() {
        return signal.aborted || !room.allows(sharer, 1);
      },
      signal,
    };
    const isBrought = await this.#parts.held.bring(wanted, 'prefetch', call);
    this.#count('absent', wanted.filter((_, i) => isBrought[i] === 0).length);
  }

  /** Notes those of the pages that are in the pool as brought and unread. */
  #brought(sharer: Sharer, keys: readonly string[], expectedMs: number): void {
    const pages = this.#ground.pool.peekBatch(keys);
    const dueMs = Math.max(expectedMs, this.#ground.clock.nowMs());
    let count = 0;
    for (const [i, key] of keys.entries()) {
      const bytes = pages[i]?.length;
      // A page that was set anew meanwhile may be longer than the one that was admitted.
      if (bytes === undefined || this.#unread.has(key) || bytes > this.#room.left) continue;
      this.#unread.set(key, { bytes, sharer, dueMs });
      this.#room.take(sharer, bytes);
      count++;
    }
    this.#count('brought', count);
  }

  #forget(key: string): boolean {
    const page = this.#unread.get(key);
    if (page === undefined) return false;
    this.#unread.delete(key);
    this.#room.giveBack(page.sharer, page.bytes);
    return true;
  }

  /** Counts pages as wasted that should have been read long ago. */
  #forgetLate(): void {
    const sinceMs = this.#ground.clock.nowMs() - PREFETCH_UNREAD_MS;
    let wasted = 0;
    for (const [key, { dueMs }] of this.#unread) if (dueMs <= sinceMs) wasted += Number(this.#forget(key));
    this.#count('wasted', wasted);
  }

  /** Waits while programs read or set pages, but not for long. */
  async #whileBusy(signal: CancelSignal): Promise<void> {
    await this.#ground.clock.yield();
    for (let i = 0; i < PREFETCH_PAUSES_MAX_COUNT && this.#parts.isBusy() && !signal.aborted; i++) {
      await pause(this.#ground.clock, PREFETCH_PAUSE_MS, signal);
    }
  }

  #count(result: Result, pages: number): void {
    this.#counts[result] += pages;
    if (pages > 0) this.#ground.metrics.count('meshcache_prefetched_pages_total', pages, { result });
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    let bytes = 0;
    for (const page of this.#unread.values()) bytes += page.bytes;
    assertEqual('prefetching: unread bytes', this.unreadBytes, bytes);
    for (const shares of [this.#room, this.#requests, this.#later]) shares.verify();
  }
}

/** Prefetching for one client: this node's own program, an attached process, or the routers. */
export class ClientPrefetching {
  readonly sharer: Sharer;
  /** Requests of the client, one at a time. */
  readonly turns = new Mutex();
  readonly #all: Prefetching;

  constructor(all: Prefetching, sharer: Sharer) {
    this.#all = all;
    this.sharer = sharer;
  }

  /**
   * Brings pages into the pool, in order; true for each page that is there when the promise resolves. False: nobody has
   * the page, there is no room for it, or the call was ended. Refuses a request for which the client has no place left,
   * of PREFETCHES_WAITING_MAX_COUNT for those that have begun, and PREFETCHES_LATER_MAX_COUNT for pages that are
   * expected later. Throws `ClosedError`.
   */
  prefetch(keys: readonly string[], options: PrefetchOptions = {}): Promise<boolean[]> {
    return this.#all.prefetch(this, keys, options);
  }
}
