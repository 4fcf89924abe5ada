import { Mutex } from '../base/concurrency/mutex.js';
import { ArgumentError } from '../base/errors.js';
import type { Keys, PoolAllocatorStats, RequestOptions } from '../core/index.js';
import { pickKeys, stringsOf } from '../core/index.js';
import { resolve } from '../memory/address-space.js';
import { PageCopies } from '../memory/page-copies.js';
import { NO_STAMP, STAMP_BYTES } from '../memory/page-stamp.js';
import type { CopyThreads } from './copy-threads.js';
import { bytesOf, DistinctBatch, isWhole, type PageBytes, type PlacedBatch, SameLength } from './page-batch.js';
import { type Fill, PageFills } from './page-fills.js';
import { NO_ORIGIN, PageIndex, type PublishedPage, type Wish } from './page-index.js';
import { type PageLease, PageLeases } from './page-leases.js';
import { again, isAsGood, type PageOrigin } from './page-origin.js';
import { type LocalRead, Reading } from './page-reading.js';
import { PageStamps } from './page-stamps.js';
import { PoolMemory } from './pool-memory.js';
import type { PublishedPoolOptions } from './pool-options.js';

export type { PageBytes } from './page-batch.js';
export { NO_ORIGIN, type PageOrigin, type PublishedPage } from './page-index.js';
export type { PageLease } from './page-leases.js';
export type { LocalRead } from './page-reading.js';
export type { PublishedPoolOptions } from './pool-options.js';

/**
 * The pages of one node in a range of host memory that peers may read.
 *
 * The index decides offsets; this class alone writes page bytes. Nobody finds a page before its bytes and their
 * checksum, taken in the copy in the pool, are there: it is published within one synchronous call, or, when other threads
 * copy, hidden until they have ended. Ranges that other threads write or read are held: no removal, eviction or new
 * page touches them.
 *
 * What other threads do is done in turns, call by call, and new pages of asynchronous calls wait for their turn as well:
 * so no page that is held stands in the way of another. Two holds last longer than a turn: leases, and pages that are filled
 * from elsewhere, which may take long. Who asks for them limits how much of the pool they take.
 */
export class PublishedPool {
  readonly baseAddr: bigint;
  readonly capacity: number;
  readonly rkey: number;
  readonly #memory: PoolMemory;
  readonly #index: PageIndex;
  readonly #stamps: PageStamps | undefined;
  readonly #onEvict: (keys: string[]) => void;
  readonly #copyThreads: CopyThreads;
  readonly #leases: PageLeases;
  readonly #turns = new Mutex();
  readonly #fills: PageFills;
  #isEnding = false;

  /** `capacity` bytes from `baseAddr` on must lie in one live `HostRegion`; `rkey` is what peers show to read them. */
  constructor(baseAddr: bigint, capacity: number, rkey: number, options: PublishedPoolOptions) {
    const memory = new PoolMemory(baseAddr, capacity);
    if (!Number.isSafeInteger(rkey) || rkey < 0 || rkey > 0xffffffff) {
      throw new ArgumentError(
        `pool: rkey must be the rkey of a registered region, a whole number, got ${String(rkey)}`,
      );
    }
    this.baseAddr = baseAddr;
    this.capacity = capacity;
    this.rkey = rkey;
    this.#memory = memory;
    this.#onEvict = options.onEvict ?? (() => {});
    this.#copyThreads = options.copyThreads;
    const { clock } = options;
    const settings = {
      capacityBytes: capacity,
      segmentBytes: memory.segmentBytes,
      policy: options.policy ?? 'lru',
      quarantineMs: options.quarantineMs ?? 0,
      neverReuseEarly: options.neverReuseEarly ?? false,
      nowMs: () => clock.nowMs(),
    };
    const stamps = options.stamps && new PageStamps((offset, length) => memory.bytes(offset, length), options.stamps);
    this.#stamps = stamps;
    this.#index = new PageIndex(
      stamps === undefined
        ? settings
        : { ...settings, spaceMinBytes: STAMP_BYTES, onFreed: (slot) => stamps.destroy(slot) },
    );
    this.#leases = new PageLeases(this.#index);
    this.#fills = new PageFills({
      index: this.#index,
      leases: this.#leases,
      bytes: (offset, length) => memory.bytes(offset, length),
      onFilled: (page) => this.#stamped(page),
      onGone: (keys) => this.#tellGone(keys),
      clock,
    });
  }

  /** Pages that can be found. */
  get size(): number {
    return this.#index.size;
  }

  /** Bytes of all pages, those included whose bytes are on their way. */
  get bytesUsed(): number {
    return this.#index.usedBytes;
  }

  /**
   * Copies `length` bytes from `srcPtr` (in a live `HostRegion`) into the pool. Returns the address
   * at which peers read them; null when there is no room (too big, or all held or in quarantine), or when other threads
   * are copying the page of this very key.
   */
  publish(key: string, srcPtr: bigint, length: number): bigint | null {
    if (typeof srcPtr !== 'bigint') {
      throw new ArgumentError(`publish: a pointer must be a bigint, got ${typeof srcPtr}`);
    }
    if (!Number.isSafeInteger(length) || length < 1) {
      throw new ArgumentError(`publish: length must be a whole number of at least 1 byte, got ${length}`);
    }
    const views = resolve(Number(srcPtr), length);
    if (views === null) {
      throw new ArgumentError(`publish: ${length} bytes from ${srcPtr} on are not within a live HostRegion`);
    }
    const [page] = this.publishBatch([key], [{ views, length }]);
    return page ? this.baseAddr + BigInt(page.offset) : null;
  }

  /**
   * Publishes in order; one result a key. Of a key given twice the last page counts, for both. The call blocks for as long as the copying
   * takes: callers slice large batches. Null: no room, or a key whose page other threads are copying at the moment. A page that a later one of
   * the batch has evicted is described, without a place. A computed page that is here already with the same length is as good as another one, and stays.
   */
  publishBatch(
    keys: Keys,
    pages: readonly PageBytes[],
    origin = NO_ORIGIN,
    request?: RequestOptions,
  ): (PublishedPage | null)[] {
    const batch = new DistinctBatch(keys, pages, { origin, request });
    const here = this.peekBatch(batch.batch);
    const candidates = new SameLength(here, batch.pages, origin);
    const placed = this.#place(batch, here, candidates.sums(candidates.copies.run()));
    const sums = placed.copies.run();
    const results = batch.resultsWithoutBytes(placed, sums);
    placed.vacancies.forEach((vacancy, i) => {
      const page = batch.pages[vacancy.index] as PageBytes;
      const filled = this.#index.fill(vacancy, page.length, sums[i] as number, origin);
      results[vacancy.index] = this.#intact(vacancy.key, page, filled);
    });
    // Last, so that no entry is without its bytes whatever the callback does.
    this.#tellGone(placed.gone);
    return batch.spread(results);
  }

  /**
   * Like {@link publishBatch}, off this thread where that is quicker; pages that are removed while they are copied are
   * null. Waits while a page of one of the keys is being filled (see {@link fillPages}), for POOL_FILL_WAIT_MS at the most:
   * a page that is being filled even then is null. The source is in use until the
   * promise has resolved; its regions may be freed meanwhile.
   */
  async publishPages(
    keys: Keys,
    pages: readonly PageBytes[],
    origin = NO_ORIGIN,
    request?: RequestOptions,
  ): Promise<(PublishedPage | null)[]> {
    if (!this.#fills.isIdle) {
      await this.#fills.awaitFor(stringsOf(keys));
      if (this.#isEnding) return pages.map(() => null);
    }
    const isOffThread = this.#isForThreads(pages);
    if (!isOffThread && !this.#turns.isLocked) return this.publishBatch(keys, pages, origin, request);
    return this.#turns.run(() => {
      if (this.#isEnding) return pages.map(() => null);
      return isOffThread
        ? this.#publishOffThread(new DistinctBatch(keys, pages, { origin, request }))
        : this.publishBatch(keys, pages, origin, request);
    });
  }

  /**
   * Copies pages to the caller, off this thread where that is quicker; one outcome a key. Counts as a use of those
   * that are here. What an outcome other than `read` leaves in a target is undefined. `isVerified`: the bytes must
   * have their checksum. The targets are in use until the promise has resolved; their regions may be freed meanwhile.
   */
  readPages(
    keys: Keys,
    targets: readonly PageBytes[],
    { isVerified, request }: { readonly isVerified: boolean; readonly request?: RequestOptions | undefined },
  ): Promise<LocalRead[]> {
    return this.copyOut(keys, targets, this.lookupBatch(keys, request), isVerified);
  }

  /** {@link readPages} of what has just been looked up. */
  async copyOut(
    keys: Keys,
    targets: readonly PageBytes[],
    found: readonly (PublishedPage | null)[],
    isVerified: boolean,
  ): Promise<LocalRead[]> {
    const hits = targets.filter(({ length }, i) => found[i]?.length === length);
    if (hits.length === 0 || !this.#isForThreads(hits)) return this.#readHere(keys, targets, found, isVerified);
    return this.#turns.run(() =>
      this.#isEnding ? targets.map((): LocalRead => 'absent') : this.#readOffThread(keys, targets, isVerified),
    );
  }

  /**
   * Brings pages in from elsewhere, straight into their ranges; `keys` are distinct. `fill` gets one target a key, null for
   * those that are here already or find no room, and resolves with one checksum a key, of the bytes that it has put there;
   * null where it has failed. Until then nobody finds the pages, and other copies have their turn. One lease a
   * key, of the page that is here now; null: no room, failed, or removed meanwhile. What `fill` rejects with is
   * passed on, and none of its pages is here then. Targets are `fill`'s until its promise has resolved. `origins`: one a key.
   */
  async fillPages(
    keys: readonly string[],
    lengths: readonly number[],
    fill: Fill,
    origins?: readonly PageOrigin[],
  ): Promise<(PageLease | null)[]> {
    const { leases } = await this.#turns.run(() => ({
      leases: this.#isEnding ? keys.map(() => null) : this.#fills.fill(keys, lengths, fill, origins),
    }));
    return leases;
  }

  /**
   * Keeps pages from eviction until {@link unlease}; one lease a key, null for those that are not here. A lease ends by
   * itself when its page is removed, or other bytes are published under its key.
   */
  lease(keys: Keys): (PageLease | null)[] {
    return this.peekBatch(keys).map((page, i) => page && this.#leases.take(stringsOf(keys)[i] as string, page));
  }

  /** Counts as a use. Harmless for leases that have ended. */
  unlease(leases: readonly PageLease[]): void {
    for (const lease of leases) this.#leases.end(lease);
  }

  /** Where each page lies, in order; null for those that are not here. Counts as a use. */
  lookupBatch(keys: Keys, request?: RequestOptions): (PublishedPage | null)[] {
    return this.#index.lookupBatch(keys, request);
  }

  /** Like {@link lookupBatch}, without counting as a use. */
  peekBatch(keys: Keys): (PublishedPage | null)[] {
    return this.#index.peekBatch(keys);
  }

  /** The page's bytes, one view after the other: valid until control goes back to the event loop or a hold of the page ends, not to be written. */
  viewsOf({ offset, length, slot }: PublishedPage): Uint8Array[] {
    if (this.#stamps === undefined) return [this.#memory.bytes(offset, length)];
    const tail = this.#stamps.tailBytesOf(slot, length);
    return length > STAMP_BYTES ? [this.#memory.bytes(offset, length - STAMP_BYTES), tail] : [tail];
  }

  /** What peers must know to read a page: zeros when the pool has no stamps. Of one that has gone since it was published, a stamp that is nowhere. */
  stampOf({ slot, offset, length, checksum }: PublishedPage): { readonly stamp: number; readonly tail: number } {
    if (this.#stamps === undefined) return { stamp: NO_STAMP, tail: 0 };
    const isHere = this.#stamps.isOf(slot, offset, length);
    if (!isHere || this.#index.checksumAt(slot) !== checksum) return { stamp: this.#stamps.draw(), tail: 0 };
    return { stamp: this.#stamps.stampOf(slot), tail: this.#stamps.tailOf(slot, length) };
  }

  /** Where a peer reads the page; null when it is not here. Counts as a use. */
  addressOf(key: string): [remoteAddr: bigint, length: number] | null {
    const [found] = this.lookupBatch([key]);
    return found ? [this.baseAddr + BigInt(found.offset), found.length] : null;
  }

  /** Whether the page is here. Not a use. */
  has(key: string): boolean {
    return this.hasBatch([key])[0] === 1;
  }

  /** One element a key, 1 when it is here. Does not count as a use. */
  hasBatch(keys: Keys): Uint8Array {
    return this.#index.hasBatch(keys);
  }

  /** Counts as a use of those that are here, in the order of the keys. */
  touchBatch(keys: Keys, request?: RequestOptions): void {
    this.#index.touchBatch(keys, request);
  }

  /** Asked-for removal: `onEvict` is not called. A page whose bytes are on their way is removed, too, and false. */
  remove(key: string): boolean {
    this.#leases.endOf(key);
    return this.#index.remove(key);
  }

  /**
   * Removes those pages that are older than the version given for their key, also those whose bytes are on their way; with `isCopy` only
   * copies. Returns the keys of those that are gone; `onEvict` is not called.
   */
  removeOlder(keys: readonly string[], voidBelow: readonly number[], { isCopy = false } = {}): string[] {
    return keys.filter((key, i) => {
      const origin = this.#index.originOf(key);
      if (origin === null || origin.version >= (voidBelow[i] as number) || (isCopy && !origin.isCopy)) return false;
      this.remove(key);
      return true;
    });
  }

  /** A later version for pages that are here and still have the version given. Returns the keys of those. */
  renew(keys: readonly string[], from: number, to: number): string[] {
    const pages = this.peekBatch(keys);
    return keys.filter((_, i) => {
      const page = pages[i] ?? null;
      if (page === null || page.version !== from) return false;
      this.#index.setOrigin(page, { ...page, version: to });
      return true;
    });
  }

  /** Every key, next victim first. */
  keys(): string[] {
    return this.#index.keys();
  }

  /** Removes everything, also what is on its way, and returns what was here. */
  clear(): string[] {
    this.#leases.endAll();
    return this.#index.clear();
  }

  /** After {@link free}: as they were last. */
  stats(): PoolAllocatorStats {
    return this.#index.stats();
  }

  /** Nothing more is copied by asynchronous calls: they end with misses. Resolves when no thread touches the memory. */
  async end(): Promise<void> {
    this.#isEnding = true;
    await this.#turns.ended();
    await this.#fills.ended();
  }

  /**
   * Gives the index's memory back; only {@link stats} may be used afterwards. The region is its owner's to free.
   * Asynchronous calls under way end with misses: {@link end} waits for them.
   */
  free(): void {
    this.#isEnding = true;
    if (!this.#index.isFreed) this.#leases.endAll();
    this.#index.free();
  }

  async #publishOffThread(batch: DistinctBatch): Promise<(PublishedPage | null)[]> {
    const before = this.peekBatch(batch.batch);
    const candidates = new SameLength(before, batch.pages, batch.origin);
    const sums = candidates.isEmpty ? [] : candidates.sums(await this.#copyThreads.copy(candidates.copies));
    if (this.#index.isFreed) return batch.spread([]);
    const here = this.peekBatch(batch.batch);
    const placed = this.#place(batch, here, sums);
    const filled = this.#fillOffThread(batch, here, placed);
    try {
      // While the bytes are on their way: other nodes are to forget early what is being overwritten.
      this.#tellGone(placed.gone);
    } finally {
      await filled;
    }
    return batch.spread(await filled);
  }

  async #fillOffThread(
    batch: DistinctBatch,
    here: readonly (PublishedPage | null)[],
    placed: PlacedBatch,
  ): Promise<(PublishedPage | null)[]> {
    const { vacancies, copies } = placed;
    this.#index.holdUnfilled(
      vacancies,
      vacancies.map(() => batch.origin),
    );
    try {
      const sums = await this.#copyThreads.copy(copies);
      if (this.#index.isFreed) return [];
      const results = batch.resultsWithoutBytes(placed, sums);
      vacancies.forEach((vacancy, i) => {
        const page = batch.pages[vacancy.index] as PageBytes;
        const filled = this.#index.fillHeld(vacancy, page.length, sums[i] as number);
        results[vacancy.index] = this.#intact(vacancy.key, page, filled);
      });
      return results;
    } catch (error) {
      for (const { key } of vacancies) this.#index.abandonHeld(key);
      this.#tellGone(new Set(vacancies.filter(({ index }) => here[index] !== null).map(({ key }) => key)));
      throw error;
    }
  }

  /** Decides for each page whether it stays, is copied in or is refused, and where it goes. */
  #place(
    batch: DistinctBatch,
    here: readonly (PublishedPage | null)[],
    sums: readonly (number | undefined)[],
  ): PlacedBatch {
    const { origin, request } = batch;
    const wishes = batch.keys.map((key, i): Wish => {
      const page = batch.pages[i] as PageBytes;
      const there = here[i] ?? null;
      const isSame =
        there !== null && there.length === page.length && (isAsGood(there, origin) || there.checksum === sums[i]);
      // Whoever has it leased loses it: nobody waits for a lease to publish other bytes.
      if (there !== null && !isSame) this.#leases.endOf(key);
      const isPossible = isWhole(page) && !this.#index.isHeld(key);
      return {
        key,
        length: page.length,
        here: there,
        intent: isSame ? 'use' : isPossible ? 'new' : 'nothing',
        request,
      };
    });
    const placement = this.#index.place(wishes, batch.batch);
    for (const page of placement.used) if (page !== null) this.#index.setOrigin(page, again(page, origin));
    const copies = new PageCopies();
    for (const { index, offset } of placement.vacancies) {
      const page = batch.pages[index] as PageBytes;
      copies.add(page.views, [this.#memory.bytes(offset, page.length)]);
    }
    for (const index of placement.evictedAtOnce) copies.add((batch.pages[index] as PageBytes).views, null);
    return { ...placement, copies };
  }

  #readHere(
    keys: Keys,
    targets: readonly PageBytes[],
    found: readonly (PublishedPage | null)[],
    isVerified: boolean,
  ): LocalRead[] {
    const reading = this.#reading(targets, found, isVerified);
    for (const i of reading.finish(reading.copies.run())) this.remove(stringsOf(keys)[i] as string);
    return reading.outcomes;
  }

  async #readOffThread(keys: Keys, targets: readonly PageBytes[], isVerified: boolean): Promise<LocalRead[]> {
    // Looked up anew, not as another use: the pages may have changed while others had their turn.
    const reading = this.#reading(targets, this.peekBatch(keys), isVerified);
    const strings = stringsOf(keys);
    const hitKeys = pickKeys(keys, reading.hits);
    this.#index.hold(hitKeys);
    try {
      const sums = await this.#copyThreads.copy(reading.copies);
      if (this.#index.isFreed) return targets.map(() => 'absent');
      for (const i of reading.finish(sums)) this.remove(strings[i] as string);
      return reading.outcomes;
    } finally {
      if (!this.#index.isFreed) this.#index.release(hitKeys);
    }
  }

  #reading(targets: readonly PageBytes[], found: readonly (PublishedPage | null)[], isVerified: boolean): Reading {
    const reading = new Reading(found, isVerified);
    for (const target of targets) reading.add(target, (page) => this.viewsOf(page));
    return reading;
  }

  #isForThreads(pages: readonly PageBytes[]): boolean {
    return this.#copyThreads.take(pages.length, bytesOf(pages));
  }

  /** A page that has just been filled, with its stamp in place: nobody has been told of it yet. */
  #stamped<T extends PublishedPage | null>(page: T): T {
    if (page !== null) this.#stamps?.set(page.slot, page.offset, page.length);
    return page;
  }

  /** The same; null, and gone again before anybody can find it, when its source is not what was to be copied. */
  #intact(key: string, source: PageBytes, page: PublishedPage | null): PublishedPage | null {
    if (source.isIntact?.() !== false) return this.#stamped(page);
    if (this.remove(key)) this.#tellGone(new Set([key]));
    return null;
  }

  #tellGone(keys: ReadonlySet<string>): void {
    if (keys.size > 0) this.#onEvict([...keys]);
  }

  /** @internal Throws `InvariantError` unless its index, leases, fills and stamps agree. Nothing to check once it is freed. */
  verify(): void {
    if (this.#index.isFreed) return;
    this.#index.verify();
    this.#leases.verify();
    this.#fills.verify();
    this.#stamps?.verify(pagesOf(this.#index));
  }
}

function* pagesOf(index: PageIndex): Generator<PublishedPage, void> {
  for (const [, page] of index.pages()) yield page;
}
