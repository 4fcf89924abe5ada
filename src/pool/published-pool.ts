import { Mutex } from '../base/concurrency/mutex.js';
import { ArgumentError } from '../base/errors.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PoolAllocatorStats, PoolTenantStats, PublishRequest, RequestOptions } from '../core/index.js';
import { NO_STAMP } from '../memory/page-stamp.js';
import type { KeptPages } from './kept-pages.js';
import {
  bytesOf,
  DistinctBatch,
  IntactSources,
  type PageBytes,
  type PlacedBatch,
  pageAt,
  SameLength,
} from './page-batch.js';
import { type Fill, type FilledPages, PageFills } from './page-fills.js';
import { isOf, NO_ORIGIN, type PageIndex, type PageOrigin, type PagesOf, type PublishedPage } from './page-index.js';
import type { PageLease } from './page-leases.js';
import { placeBatch } from './page-placing.js';
import { type LocalRead, LocalReads } from './page-reading.js';
import { PageServing, type ServedPage } from './page-serving.js';
import type { PageStates } from './page-states.js';
import { PoolGround } from './pool-ground.js';
import type { PublishedPoolOptions } from './pool-options.js';

export type { PageBytes } from './page-batch.js';
export { NO_ORIGIN, type PageOrigin, type PagesOf, type PublishedPage } from './page-index.js';
export type { PageLease } from './page-leases.js';
export type { LocalRead } from './page-reading.js';
export type { ServedPage } from './page-serving.js';
export type { PublishedPoolOptions } from './pool-options.js';

/**
 * The pages of one node in a range of host memory that peers may read.
 *
 * The index decides offsets; only this class writes page bytes. No reader finds a page before its bytes are in the pool
 * and their checksum was taken from them: the page is published within one synchronous call, or stays hidden until
 * other threads have copied it. Ranges that other threads write or read are held: no removal, eviction or new page
 * touches them.
 *
 * Work on other threads is done in turns, call by call, and new pages of asynchronous calls wait for their turn as
 * well, so that one held page does not block another. Some holds are outside of turns: leases and pages that are filled
 * from elsewhere, which may take long and which the caller that asks for them limits; and pages that are sent or copied
 * to readers, see {@link PageServing}.
 */
export class PublishedPool {
  readonly baseAddr: bigint;
  readonly capacity: number;
  readonly rkey: number;
  readonly #ground: PoolGround;
  readonly #index: PageIndex;
  readonly #mutex = new Mutex();
  readonly #fills: PageFills;
  readonly #serving: PageServing;
  readonly #reads: LocalReads;
  #isEnding = false;

  /** Takes `capacity` bytes from `baseAddr` on, in one live `HostRegion`; peers read them with `rkey`. */
  constructor(baseAddr: bigint, capacity: number, rkey: number, options: PublishedPoolOptions) {
    const ground = new PoolGround(baseAddr, capacity, options);
    if (!Number.isSafeInteger(rkey) || rkey < 0 || rkey > 0xffffffff) {
      throw new ArgumentError(
        `pool: rkey must be the rkey of a registered region, a whole number, got ${String(rkey)}`,
      );
    }
    [this.baseAddr, this.capacity, this.rkey] = [baseAddr, capacity, rkey];
    const { index } = ground;
    this.#ground = ground;
    this.#index = index;
    options.tenants?.addTier(
      () => this.keysInSlices(),
      (...learned) => ground.tellGone(new Set(index.tenants.give(...learned))),
    );
    this.#fills = new PageFills(ground);
    this.#serving = new PageServing(ground);
    this.#reads = new LocalReads(ground, this.#serving);
  }

  /** @internal Undefined: the memory does not outlive the process. */
  get kept(): KeptPages | undefined {
    return this.#ground.kept;
  }

  /** The states of the pages, by key. */
  get states(): PageStates {
    return this.#index.states;
  }

  /** Number of pages that can be found. */
  get size(): number {
    return this.#index.size;
  }

  /** Length in bytes of the longest page so far. */
  get longestBytes(): number {
    return this.#ground.longestBytes;
  }

  /** Length in bytes of the longest page that a tenant was to have, within its quota; 0: without tenants. */
  longestBytesOf(tenant: number): number {
    return this.#index.tenants.longestBytesOf(tenant);
  }

  /** Bytes of all pages, including those whose bytes are still to be written. */
  get bytesUsed(): number {
    return this.#index.usedBytes;
  }

  /**
   * Copies `length` bytes from `srcPtr` (in a live `HostRegion`) into the pool. Returns the address at which peers read
   * them. Null: no room (the page is too large, or all ranges are held or in quarantine), or other threads are copying
   * the page of this key.
   */
  publish(key: string, srcPtr: bigint, length: number): bigint | null {
    const [page] = this.publishBatch([key], [pageAt(srcPtr, length)]);
    return page ? this.baseAddr + BigInt(page.offset) : null;
  }

  /**
   * Publishes pages in order; one result for each key. If a key is given twice, its last page counts for both. The call
   * blocks while it copies, so callers slice large batches. Null: no room, or other threads are copying the page of
   * that key. A page that a later one of the batch has evicted has a result without a place. An existing computed page
   * of the same length is as good as a new one, and stays; it takes the priority of the request.
   */
  publishBatch(
    keys: Keys,
    pages: readonly PageBytes[],
    origin = NO_ORIGIN,
    request?: PublishRequest,
  ): (PublishedPage | null)[] {
    const batch = new DistinctBatch(keys, pages, { origin, request });
    const here = this.peekBatch(batch.batch);
    const candidates = new SameLength(here, batch.pages, origin);
    const placed = placeBatch({ batch, here, sums: candidates.sums(candidates.copies.run()) }, this.#ground);
    const sums = placed.copies.run();
    const intact = new IntactSources();
    const results = batch.resultsWithoutBytes(placed, sums, intact);
    placed.vacancies.forEach((vacancy, i) => {
      const page = batch.pages[vacancy.index] as PageBytes;
      const filled = this.#index.fill(vacancy, page.length, sums[i] as number, placed.origins[i]);
      results[vacancy.index] = this.#afterCopy(vacancy.key, intact.has(page), filled);
    });
    // Eviction is reported last, so that no entry is without its bytes whatever the callback does.
    this.#ground.tellGone(placed.gone);
    return batch.spread(results);
  }

  /**
   * Like {@link publishBatch}, but off this thread where that is quicker. Null also for pages that are removed while
   * they are copied. Waits up to POOL_FILL_WAIT_MS while a page of one of the keys is being filled (see {@link
   * fillPages}), and up to POOL_SERVED_WAIT_MS while one is served (see {@link serve}); a page that still is then is
   * null. The source is in use until the promise has resolved; its regions may be freed meanwhile.
   */
  async publishPages(
    keys: Keys,
    pages: readonly PageBytes[],
    origin = NO_ORIGIN,
    request?: PublishRequest,
  ): Promise<(PublishedPage | null)[]> {
    const strings = stringsOf(keys);
    if (!this.#fills.isIdle) {
      await this.#fills.awaitFor(strings);
      if (this.#isEnding) return pages.map(() => null);
    }
    const isOffThread = this.#isForThreads(pages);
    const isAtOnce = !isOffThread && !this.#mutex.isLocked && this.#serving.isIdle;
    if (isAtOnce) return this.publishBatch(keys, pages, origin, request);
    const giveBack = this.#serving.claim(strings);
    try {
      if (!this.#serving.isIdle) await this.#serving.awaitFor(strings);
      return await this.#mutex.run(() => {
        if (this.#isEnding) return pages.map(() => null);
        return isOffThread
          ? this.#publishOffThread(new DistinctBatch(keys, pages, { origin, request }))
          : this.publishBatch(keys, pages, origin, request);
      });
    } finally {
      giveBack();
    }
  }

  /**
   * Copies pages to the caller, off this thread where that is quicker; one outcome for each key. Counts as a use of
   * pages that are here. A target is undefined unless its outcome is `read`. `isVerified`: the bytes must match their
   * checksum. The targets are in use until the promise has resolved; their regions may be freed meanwhile.
   */
  readPages(
    keys: Keys,
    targets: readonly PageBytes[],
    { isVerified, request }: { readonly isVerified: boolean; readonly request?: RequestOptions | undefined },
  ): Promise<LocalRead[]> {
    return this.copyOut(keys, targets, this.lookupBatch(keys, request), isVerified);
  }

  /** {@link readPages} for pages that were looked up just before. */
  async copyOut(
    keys: Keys,
    targets: readonly PageBytes[],
    found: readonly (PublishedPage | null)[],
    isVerified: boolean,
  ): Promise<LocalRead[]> {
    const hits = targets.filter(({ length }, i) => found[i]?.length === length);
    if (hits.length === 0 || !this.#isForThreads(hits)) return this.#reads.here(keys, targets, { found, isVerified });
    const absent = targets.map((): LocalRead => 'absent');
    if (this.#isEnding) return absent;
    const beside = this.#reads.beside(keys, targets, { found, isVerified });
    return beside ?? this.#mutex.run(() => (this.#isEnding ? absent : this.#reads.inTurn(keys, targets, isVerified)));
  }

  /**
   * Holds pages to send them from where they lie, after a check of their checksums (`isVerified`): what was sent cannot
   * be taken back. Counts as a use. Null: the page is not here or is being set, or too much of the pool is held.
   */
  async serve(keys: readonly string[], isVerified: boolean): Promise<(ServedPage | 'damaged' | null)[]> {
    return this.#isEnding ? keys.map(() => null) : this.#serving.serve(keys, isVerified);
  }

  /**
   * Fills pages from elsewhere, straight into their ranges; `keys` must be distinct. `fill` gets one target for each
   * key, null if the page is here already or finds no room. It resolves with one checksum for each key, of the bytes
   * that it has written, null where it has failed. It owns the targets until then; no reader finds the pages meanwhile,
   * and other copies have their turn.
   *
   * Resolves with one lease for each key, of the page that is here now; null: no room, failed, or removed meanwhile. If
   * `fill` rejects, the error is passed on and none of its pages is here.
   */
  async fillPages(
    keys: readonly string[],
    lengths: readonly number[],
    fill: Fill,
    pages?: FilledPages,
  ): Promise<(PageLease | null)[]> {
    const { leases } = await this.#mutex.run(() => ({
      leases: this.#isEnding ? keys.map(() => null) : this.#fills.fill(keys, lengths, fill, pages),
    }));
    return leases;
  }

  /**
   * Keeps pages from eviction until {@link unlease}; one lease for each key, null if the page is not here. A lease ends
   * by itself when its page is removed, or other bytes are published under its key; `onEndedEarly` is told then.
   */
  lease(keys: Keys, onEndedEarly?: (lease: PageLease) => void): (PageLease | null)[] {
    const strings = stringsOf(keys);
    return this.peekBatch(keys).map(
      (page, i) => page && this.#ground.leases.take(strings[i] as string, page, onEndedEarly),
    );
  }

  /** Ends leases, which counts as a use. Harmless for leases that have ended. */
  unlease(leases: readonly PageLease[]): void {
    for (const lease of leases) this.#ground.leases.end(lease);
  }

  /** The live page of each key; null: it is not here, or nobody may find it yet. Counts as a use. */
  lookupBatch(keys: Keys, request?: RequestOptions): (PublishedPage | null)[] {
    return this.#index.lookupBatch(keys, request);
  }

  /** Like {@link lookupBatch}, but does not count as a use. */
  readonly peekLive = (keys: Keys): (PublishedPage | null)[] => this.#index.peekLive(keys);

  /** Like {@link peekLive}, but includes pages that nobody may find yet. */
  peekBatch(keys: Keys): (PublishedPage | null)[] {
    return this.#index.peekBatch(keys);
  }

  /** The page's bytes, read-only views: valid until control returns to the event loop or a hold of the page ends. */
  viewsOf(page: PublishedPage): Uint8Array[] {
    return this.#ground.viewsOf(page);
  }

  /**
   * What peers need to read a page: zeros without stamps; for a page that has gone or is hidden, a stamp that no page
   * has.
   */
  stampOf({ slot, offset, length, checksum, state }: PublishedPage): { readonly stamp: number; readonly tail: number } {
    const { stamps } = this.#ground;
    if (stamps === undefined) return { stamp: NO_STAMP, tail: 0 };
    const isHere = state !== 'earlier' && stamps.isOf(slot, offset, length);
    if (!isHere || this.#index.checksumAt(slot) !== checksum) return { stamp: stamps.draw(), tail: 0 };
    return { stamp: stamps.stampOf(slot), tail: stamps.tailOf(slot, length) };
  }

  /** Where a peer reads the page; null: the page is not here. Counts as a use. */
  addressOf(key: string): [remoteAddr: bigint, length: number] | null {
    const [page] = this.lookupBatch([key]);
    return page ? [this.baseAddr + BigInt(page.offset), page.length] : null;
  }

  /** Whether the page is here. Does not count as a use. */
  has(key: string): boolean {
    return this.hasBatch([key])[0] === 1;
  }

  /** One byte for each key; 1: the page is here. Does not count as a use. */
  hasBatch(keys: Keys): Uint8Array {
    return this.#index.hasBatch(keys);
  }

  /** Counts a use of each existing page, in the order of the keys. */
  touchBatch(keys: Keys, request?: RequestOptions): void {
    this.#index.touchBatch(keys, request);
  }

  /** Makes existing pages the newest ones of the order of eviction, in the order of the keys, without a use of them. */
  readonly renewBatch: PageIndex['renewBatch'] = (keys) => this.#index.renewBatch(keys);

  /** Notes when existing pages will be asked for; see `PoolAllocator.expectBatch`. */
  readonly expectBatch: PageIndex['expectBatch'] = (...told) => this.#index.expectBatch(...told);

  /** Changes the eviction priority of existing pages. Does not count as a use. */
  readonly setPriority: PageIndex['setPriority'] = (...told) => this.#index.setPriority(...told);

  /** Removes a page on request, without `onEvict`. A page without all its bytes is also removed, but returns false. */
  remove(key: string): boolean {
    return this.#ground.remove(key);
  }

  /**
   * Removes pages older than the version given for their key, even those whose bytes are still to be written; `of`
   * selects which pages. Returns the removed keys; does not call `onEvict`.
   */
  removeOlder(keys: readonly string[], voidBelow: readonly number[], of: PagesOf = 'all'): string[] {
    const origins = this.#index.originsOf(keys);
    const older = keys.filter((_, i) => {
      const origin = origins[i] ?? null;
      return origin !== null && origin.version < (voidBelow[i] as number) && isOf(origin, of);
    });
    for (const key of older) this.remove(key);
    return older;
  }

  /** Removes expired pages, at most `maxCount`; returns their keys, about which the caller must tell the directory. */
  removeExpired(maxCount: number): string[] {
    const keys: string[] = [];
    for (let key = this.#index.nextExpired(); key !== undefined; key = this.#index.nextExpired()) {
      this.remove(key);
      if (keys.push(key) >= maxCount) return keys;
    }
    return keys;
  }

  /** The earliest expiry of a page; 0: none expires. */
  readonly firstExpiry = (): number => this.#index.firstExpiry;

  /** Changes pages from version `from` to version `to`, and sets the given properties; returns the changed keys. */
  renew(keys: readonly string[], from: number, to: number, given: Partial<PageOrigin> = {}): string[] {
    const pages = this.peekBatch(keys);
    return keys.filter((key, i) => {
      const page = pages[i] ?? null;
      if (page === null || page.version !== from) return false;
      this.#ground.setOrigin(key, page, { ...page, version: to, ...given });
      return true;
    });
  }

  /** Every key, next victim first. */
  keys(): string[] {
    return this.#index.keys();
  }

  /** Every key, next victim first, slice by slice. Pages that come or go meanwhile may be missing, or appear twice. */
  keysInSlices(): Generator<string[], void> {
    return this.#index.keysInSlices();
  }

  /** Whether there may be copies of pages that the node with this origin has set; 0: of any node's pages. */
  readonly hasCopiesOf = (origin: number): boolean => this.#index.hasCopiesOf(origin);

  /** Keys of the pages whose bytes are still to be written: no reader finds them yet. */
  readonly unfilledKeys = (): string[] => this.#index.unfilledKeys();

  /** Statistics; after {@link free}, the last ones before it. */
  stats(): PoolAllocatorStats {
    return this.#index.stats();
  }

  /** Statistics of each tenant by number; none if all pages are of one, or after {@link free}. */
  readonly tenantStats = (): PoolTenantStats[] => this.#index.tenants.stats();

  /** Ends asynchronous calls with misses; they copy nothing more. Resolves when no thread touches the memory. */
  async end(): Promise<void> {
    this.#isEnding = true;
    await this.#mutex.ended();
    await this.#fills.ended();
    await this.#serving.ended();
    this.kept?.close();
  }

  /**
   * Frees the index's memory; only {@link stats} may be used afterwards. The region stays with its owner. Asynchronous
   * calls under way end with misses: {@link end} waits for them.
   */
  free(): void {
    this.#isEnding = true;
    if (!this.#index.isFreed) this.#ground.leases.endAll();
    this.#index.free();
  }

  async #publishOffThread(batch: DistinctBatch): Promise<(PublishedPage | null)[]> {
    const before = this.peekBatch(batch.batch);
    const candidates = new SameLength(before, batch.pages, batch.origin);
    const sums = candidates.isEmpty ? [] : candidates.sums(await this.#ground.copyThreads.copy(candidates.copies));
    if (this.#index.isFreed) return batch.spread([]);
    const here = this.peekBatch(batch.batch);
    const placed = placeBatch({ batch, here, sums }, this.#ground);
    const filled = this.#fillOffThread(batch, here, placed);
    try {
      // Keys are reported while the bytes are being copied, so that other nodes forget early what is being overwritten.
      this.#ground.tellGone(placed.gone);
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
    const { vacancies, origins, copies } = placed;
    this.#index.holdUnfilled(vacancies, origins);
    try {
      const sums = await this.#ground.copyThreads.copy(copies);
      if (this.#index.isFreed) return [];
      const intact = new IntactSources();
      const results = batch.resultsWithoutBytes(placed, sums, intact);
      vacancies.forEach((vacancy, i) => {
        const page = batch.pages[vacancy.index] as PageBytes;
        const filled = this.#index.fillHeld(vacancy, page.length, sums[i] as number, origins[i]);
        results[vacancy.index] = this.#afterCopy(vacancy.key, intact.has(page), filled);
      });
      return results;
    } catch (error) {
      for (const vacancy of vacancies) this.#index.abandonHeld(vacancy);
      this.#ground.tellGone(new Set(vacancies.filter(({ index }) => here[index] !== null).map(({ key }) => key)));
      throw error;
    }
  }

  #isForThreads(pages: readonly PageBytes[]): boolean {
    return this.#ground.copyThreads.take(pages.length, bytesOf(pages));
  }

  /**
   * `PoolGround.filled` if the source stayed intact; null: it did not, and the page is removed before any reader finds
   * it.
   */
  #afterCopy(key: string, isIntact: boolean, page: PublishedPage | null): PublishedPage | null {
    if (isIntact) return page && this.#ground.filled(key, page);
    if (this.remove(key)) this.#ground.tellGone(new Set([key]));
    return null;
  }

  /** @internal Throws `InvariantError` unless index, leases, fills and stamps agree; passes once the pool is freed. */
  verify(): void {
    if (this.#index.isFreed) return;
    this.#index.verify();
    this.#ground.leases.verify();
    this.#fills.verify();
    this.#serving.verify();
    this.#ground.stamps?.verify(this.#index.pages());
    this.kept?.verify();
  }
}
