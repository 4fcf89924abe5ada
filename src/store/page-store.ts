import { type CancelSignal, checkNotAborted, unlessAborted } from '../base/concurrency/cancellation.js';
import { ClosedError } from '../base/errors.js';
import { type Keys, pickKeys, stringsOf } from '../core/binding/key-batch.js';
import type { RequestHint } from '../core/index.js';
import { REPORTS_CALLER } from '../core/pool/request-terms.js';
import type { Clear } from '../directory/shard/known-clears.js';
import { reportPool } from '../pool/pool-metrics.js';
import type { ServedPage } from '../pool/published-pool.js';
import type { EntryKind } from '../types.js';
import {
  type CallLimits,
  inTime,
  type MissReason,
  orAbort,
  ReasonLog,
  type TimedOptions,
  timedOut,
} from './call/call-options.js';
import type { CallerPage } from './call/caller-page.js';
import { indicesWhere } from './call/key-steps.js';
import { type CallOptions, type HintFigures, RequestCalls } from './call/request-calls.js';
import { clearPages, dropClearedCopies } from './clearing.js';
import type { MayTake } from './copied-reads.js';
import { ExpiredPages } from './expired-pages.js';
import { type FoundPages, type PageRoom, type PlacedPage, readPlaced } from './found-pages.js';
import { locatePages } from './ground/own-locations.js';
import { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';
import { type ObjectStoreUse, ObjectTier, type ObjectTierStats } from './objects/object-tier.js';
import { PageReads } from './page-reads.js';
import { PageWrites } from './page-writes.js';

/** Reads and writes of a store since it was created. */
export interface PageStoreStats {
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number; readonly object: number };
  readonly misses: number;
  readonly readBytes: number;
  readonly pagesWritten: number;
  readonly writtenBytes: number;
  /** Pages whose bytes did not match their checksum when they were read; they count as misses. */
  readonly checksumFailures: number;
  /**
   * Reads of pages that their owner had freed. The stamp reveals it, and they count as misses unless another node had
   * the page.
   */
  readonly staleReads: number;
  /** Calls that gave a hint. */
  readonly hinted: HintFigures;
}

/**
 * All tiers behind one interface, by object key: one write and one read.
 *
 * Buffers of the caller are in use from the call until its promise resolves, not longer.
 */
export class PageStore {
  readonly #ground: StoreGround;
  readonly #reads: PageReads;
  readonly #writes: PageWrites;
  readonly #statements: PageStatements;
  readonly #calls: RequestCalls;
  readonly #expired: ExpiredPages;
  /** Undefined without an object store. */
  readonly #objects: ObjectTier | undefined;
  #closed = false;

  /** `objectStore`: source of pages that no node has; undefined: none. */
  constructor(ground: StoreGround, objectStore?: ObjectStoreUse) {
    const { pool, metrics } = ground;
    this.#ground = ground;
    const statements = new PageStatements(ground);
    const calls = new RequestCalls(metrics);
    const objects = objectStore && new ObjectTier(ground, objectStore, statements);
    this.#statements = statements;
    this.#calls = calls;
    this.#objects = objects;
    const missLog = new ReasonLog<MissReason>('pages not read', ground);
    this.#reads = new PageReads(ground, { statements, calls, objects, missLog });
    this.#writes = new PageWrites(ground, statements, calls);
    this.#expired = new ExpiredPages(ground);
    reportPool(pool, metrics, { damagedPages: () => this.#reads.stats().damagedPages });
  }

  /** Statistics of the object store; undefined without one. */
  objectStats(): ObjectTierStats | undefined {
    return this.#objects?.stats();
  }

  stats(): PageStoreStats {
    const { damagedPages, ...reads } = this.#reads.stats();
    const { checksumFailures, staleOps } = this.#ground.transport.stats();
    return {
      ...reads,
      ...this.#writes.stats(),
      checksumFailures: damagedPages + checksumFailures,
      staleReads: staleOps,
      hinted: this.#calls.figures(),
    };
  }

  /**
   * Publishes pages; true for each page that is in the pool and in the directory. A named entry is then the newest
   * content anywhere. A computed page that another node has is also true, and is not kept here. So is a page that is
   * evicted for other pages, of this or other calls, before the call has ended: no reader finds it any more, nor the
   * page that it replaced.
   */
  async set(keys: Keys, pages: readonly CallerPage[], kind: EntryKind, options: CallOptions = {}): Promise<boolean[]> {
    this.#checkOpen();
    const set = () => inTime(this.#ground.clock, options, (call) => this.#writes.set(keys, pages, kind, call));
    return this.#objects === undefined ? set() : this.#objects.whileSetting(set);
  }

  /** Whether a call reads or sets pages at this moment. */
  get isBusy(): boolean {
    return this.#calls.inProgress > 0;
  }

  /** Stops publishing: from now on every `set` returns false; reads continue. */
  stopPublishing(): void {
    this.#writes.stop();
  }

  /** The object tier, as a follower of the feed; undefined without one. */
  get objects(): ObjectTier | undefined {
    return this.#objects;
  }

  /** The announcements of this node's pages, as a follower of the feed. */
  get statements(): PageStatements {
    return this.#statements;
  }

  /**
   * Reads pages into the caller's memory. If a result is false, the content of the page's memory is undefined. After an
   * abort no read begins; reads in progress end as `Transport.batchRead` says or, from this node's pool and disk, when
   * they are done. Pages not read by then are misses.
   */
  get(keys: Keys, pages: readonly CallerPage[], options: CallOptions = {}): Promise<boolean[]> {
    if (options.timeoutMs === undefined) return this.#reads.get(keys, pages, options);
    return inTime(this.#ground.clock, options, (call) => this.#reads.get(keys, pages, call));
  }

  /**
   * Reads a copy that the caller owns; null: a miss. If the page is set again before it is read, and may have another
   * length, it is looked up again, for at most READ_AGAIN_WITHIN_MS.
   */
  async getCopy(key: string, options: CallOptions = {}): Promise<Uint8Array | null> {
    const copy = await this.getCopyWithin(key, { ...options, mayTake: () => true });
    return copy === 'too-large' ? null : copy;
  }

  /** Like {@link getCopy}, if memory for the page may be taken. */
  async getCopyWithin(
    key: string,
    options: CallOptions & { readonly mayTake: MayTake },
  ): Promise<Uint8Array | 'too-large' | null> {
    this.#checkOpen();
    return inTime(this.#ground.clock, options, (call) => this.#reads.getCopyWithin(key, call));
  }

  /** Like {@link getCopy} for each page, with one lookup for all. */
  async getCopies(keys: readonly string[], options: CallOptions = {}): Promise<(Uint8Array | null)[]> {
    this.#checkOpen();
    return inTime(this.#ground.clock, options, (call) => this.#reads.getCopies(keys, call));
  }

  /** Looks pages up, so that they can be read part by part into memory of their lengths. */
  async find(keys: readonly string[], options: CallOptions = {}): Promise<FoundPages> {
    this.#checkOpen();
    return inTime(this.#ground.clock, options, (call) => this.#reads.find(keys, call));
  }

  /**
   * Reads pages of any length one after the other into the room; null: a miss. A page that does not fit after those
   * before it is not read, and its result gives its length. The room is in use until the promise has resolved.
   */
  async getPlaced(keys: readonly string[], room: PageRoom, options: CallOptions = {}): Promise<(PlacedPage | null)[]> {
    this.#checkOpen();
    return inTime(this.#ground.clock, options, async (call) =>
      readPlaced(await this.#reads.find(keys, call), keys.length, { room, options: call }),
    );
  }

  /** Lengths of the pages in this node's pool; null: the page is not there. Does not count as a use. */
  lengthsHere(keys: Keys): (number | null)[] {
    this.#checkOpen();
    const { pool } = this.#ground;
    return pool.peekLive(keys).map((page) => page?.length ?? null);
  }

  /**
   * Holds pages of this node's pool, so that their bytes, which have been verified, can be sent directly from there; the
   * caller must release them soon. Null: the page is not in the pool, or cannot be held now; it may still be readable.
   */
  async serve(keys: readonly string[]): Promise<(ServedPage | null)[]> {
    this.#checkOpen();
    return this.#reads.serve(keys);
  }

  /**
   * Whether this node has each page, or the directory lists it on a node that can be reached, as of at most
   * `exists_max_age_ms` ago; after an abort, whether this node has it. Does not count as a use.
   */
  async exists(keys: Keys, options: CallLimits = {}): Promise<boolean[]> {
    this.#checkOpen();
    return inTime(this.#ground.clock, options, ({ signal }) => this.#exists(keys, signal));
  }

  async #exists(keys: Keys, signal: CancelSignal | undefined): Promise<boolean[]> {
    const onDisk = this.#ground.disk?.readableBatch(stringsOf(keys));
    const here = Array.from(this.#ground.pool.hasBatch(keys), (flag, i) => flag === 1 || onDisk?.[i] === 1);
    const unknown = indicesWhere(here, (present) => !present);
    if (unknown.length === 0 || signal?.aborted) return here;
    // A page that no read could bring counts as absent.
    const avoided = this.#ground.cluster.unreachableNodes();
    const asked = { avoided, maxAgeMs: this.#ground.config.existsMaxAgeMs };
    const found = await unlessAborted(this.#ground.directory.exists(pickKeys(keys, unknown), asked), signal);
    unknown.forEach((i, j) => {
      here[i] = found?.[j] === true;
    });
    const left = this.#objects === undefined ? [] : indicesWhere(here, (present) => !present);
    if (left.length === 0 || signal?.aborted) return here;
    const strings = stringsOf(keys);
    const stored = await unlessAborted(
      this.#findObjects(
        left.map((i) => strings[i] as string),
        signal,
      ),
      signal,
    );
    left.forEach((i, j) => {
      here[i] = stored?.[j] === true;
    });
    return here;
  }

  async #findObjects(keys: readonly string[], signal: CancelSignal | undefined): Promise<readonly boolean[]> {
    return (await this.#objects?.exists(keys, signal)) ?? [];
  }

  /**
   * Milliseconds until each page expires; Infinity: never; null: neither this node nor the directory has the page. Does
   * not count as a use.
   */
  async remainingMs(keys: readonly string[], options: CallLimits = {}): Promise<(number | null)[]> {
    this.#checkOpen();
    return inTime(this.#ground.clock, options, ({ signal }) => this.#remainingMs(keys, signal));
  }

  async #remainingMs(keys: readonly string[], signal: CancelSignal | undefined): Promise<(number | null)[]> {
    const { directory, versions } = this.#ground;
    const own = this.#statements.locationsOf(keys);
    const locations = await locatePages(keys, own, { directory, signal });
    return locations.map((location) => {
      if (location === null) return null;
      const leftMs = location.expires === 0 ? Number.POSITIVE_INFINITY : versions.msUntil(location.expires);
      return leftMs > 0 ? leftMs : null;
    });
  }

  /**
   * Drops pages that this node has published; with `prefixes`, only those whose keys begin with one of them. Rejects
   * with the signal's reason if it is aborted while other nodes are being told.
   */
  async clear(prefixes?: readonly string[], options: CallLimits = {}): Promise<void> {
    this.#checkOpen();
    checkNotAborted(options.signal);
    await inTime(this.#ground.clock, options, ({ signal }) => orAbort(this.#clear(prefixes), signal));
  }

  async #clear(prefixes: readonly string[] | undefined): Promise<void> {
    const { versions, cluster } = this.#ground;
    const isCleared = (key: string): boolean => prefixes?.some((prefix) => key.startsWith(prefix)) !== false;
    // Pages set from here on stay.
    const voidBelow = versions.next();
    const told = cluster.clears.clear(voidBelow, prefixes);
    const removed = clearPages(this.#ground, this.#removal, { voidBelow, isCleared });
    const cleared = this.#objects?.clear(prefixes, removed);
    cleared?.catch(() => {});
    await Promise.all([removed, told]);
    await cleared;
  }

  /**
   * Drops the copies that these clears of other nodes make void. Resolves when nobody can read them here and no crash
   * can bring them back.
   */
  dropCleared(clears: readonly Clear[]): Promise<void> {
    return dropClearedCopies(this.#ground, this.#removal, clears);
  }

  /**
   * Makes every node drop these pages. True: no node can read the page any more. After an abort every result is false.
   */
  async delete(keys: readonly string[], options: TimedOptions = {}): Promise<boolean[]> {
    this.#checkOpen();
    const { versions, clock } = this.#ground;
    if (options.signal?.aborted) return keys.map(() => false);
    return inTime(clock, options, async ({ signal, time }) => {
      const version = versions.next();
      const isOver = (): boolean => signal?.aborted === true || time?.isOver() === true;
      if (isOver()) return keys.map(() => false);
      const deleted = await unlessAborted(this.#deleteEverywhere(keys, version, { signal, isOver }), signal);
      return deleted ?? keys.map(() => false);
    });
  }

  async #deleteEverywhere(
    keys: readonly string[],
    version: number,
    { signal, isOver }: { readonly signal: CancelSignal | undefined; readonly isOver: () => boolean },
  ): Promise<boolean[]> {
    const isDropped = await this.#ground.cluster.drops.deleteEverywhere(keys, version, isOver);
    if (this.#objects === undefined || signal?.aborted) return isDropped;
    // Nodes that have dropped a page do not send it to the store any more.
    const isDeleted = await this.#objects.delete(keys, version, signal);
    return isDropped.map((dropped, i) => dropped && isDeleted[i] === true);
  }

  /**
   * Keys with this prefix of the pages that this node has, slice by slice; other work gets its turn between slices.
   * Pages that come or go meanwhile may be missing. Rejects with the signal's reason when it is aborted, and with
   * `ClosedError` when the store is closed.
   */
  async *keysInSlices(prefix: string, { signal, timeoutMs }: CallLimits = {}): AsyncGenerator<string[], void> {
    const { pool, disk, clock } = this.#ground;
    const untilMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : clock.nowMs() + timeoutMs;
    const goOn = async (): Promise<void> => {
      await clock.yield();
      this.#checkOpen();
      checkNotAborted(signal);
      if (clock.nowMs() > untilMs) throw timedOut(timeoutMs as number);
    };
    await goOn();
    for (const keys of pool.keysInSlices()) {
      const wanted = keys.filter((key) => key.startsWith(prefix));
      const isFound = pool.hasBatch(wanted);
      yield wanted.filter((_, i) => isFound[i] === 1);
      await goOn();
    }
    for (const keys of disk?.keysInSlices() ?? []) {
      const wanted = keys.filter((key) => key.startsWith(prefix));
      const inPool = pool.hasBatch(wanted);
      const isFound = disk?.hasBatch(wanted);
      yield wanted.filter((_, i) => inPool[i] === 0 && isFound?.[i] === 1);
      await goOn();
    }
  }

  /** Counts reads reported by another node, as one request of that node. */
  touch(keys: readonly string[], hint: RequestHint = 0): void {
    if (this.#closed) return;
    // The other node usually sets further pages for this request, so none of these pages is its last one.
    const request = { hint, caller: REPORTS_CALLER, continues: false, endsElsewhere: true };
    this.#ground.feed.touched(keys, hint);
    this.#ground.pool.touchBatch(keys, request);
    this.#ground.disk?.touchBatch(keys, request);
  }

  /**
   * Closes the store: calls in progress end early, as misses. Resolves when everything that waits for the disk is
   * written, or its time is over, and nothing touches the pool's memory any more.
   */
  async close(): Promise<void> {
    this.#closed = true;
    this.#expired.close();
    this.#statements.close();
    this.#reads.close();
    this.#writes.close();
    await this.#objects?.close();
    await this.#ground.disk?.close();
    await this.#ground.pool.end();
  }

  get #removal() {
    return { statements: this.#statements, isClosed: () => this.#closed };
  }

  #checkOpen(): void {
    if (this.#closed) throw new ClosedError('the store');
  }

  /**
   * Throws `InvariantError` unless the pool, the announcements of its pages, and the pages that wait for the disk
   * agree.
   */
  verify(): void {
    this.#ground.pool.verify();
    this.#ground.disk?.verify();
    this.#statements.verify();
    this.#reads.verify();
    this.#objects?.verify();
  }
}
