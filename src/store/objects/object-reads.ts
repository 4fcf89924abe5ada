import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import {
  OBJECT_EXISTS_TIMEOUT_MS,
  OBJECT_PROBES_MAX_COUNT,
  OBJECT_READ_TIMEOUT_MS,
  OBJECT_WINDOW_MAX_BYTES,
  OBJECT_WINDOW_MAX_PAGES,
  OBJECT_WINDOW_POOL_FRACTION,
} from '../../base/limits.js';
import { originOf } from '../../directory/shard/removals.js';
import type { ObjectStore, StoredObject } from '../../objects/object-store.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PageBytes, PageLease, PageOrigin } from '../../pool/published-pool.js';
import { copyInto } from '../call/caller-page.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';
import { type ClearChecks, OBJECT_PAGE_VERSION, type ObjectSearch, searchChain } from './object-search.js';

/** Collaborators of reads from the object store, beside the ground. */
interface ObjectReadsOwn {
  readonly store: ObjectStore;
  readonly search: ObjectSearch;
  readonly statements: PageStatements;
  readonly copyThreads: CopyThreads;
}

/** Pages to read from the object store. */
export interface WantedObjects {
  readonly keys: readonly string[];
  /** Lengths of the pages; undefined: any length. */
  readonly lengths?: readonly number[] | undefined;
  readonly signal?: CancelSignal | undefined;
  /** Called with the indices of pages that are in the pool now; they stay there until its promise resolves. */
  readonly use: (indices: readonly number[]) => Promise<void>;
}

/** A page that was read from the store. */
interface ReadObject {
  readonly index: number;
  readonly key: string;
  readonly object: StoredObject;
}

/** Pages of unknown length that are read at once: each may be as long as OBJECT_PAGE_MAX_BYTES. */
const UNKNOWN_WINDOW_PAGES = 4;

/**
 * Reads pages from the object store. Each page goes into the pool and is announced as a copy; it becomes readable when
 * a directory owner accepts it. An owner that knows newer content refuses it, so that nothing returns from the store
 * that the cluster has replaced or deleted. A page that is damaged, truncated, expired, cleared, too slow or not the
 * requested one is a miss.
 */
export class ObjectReads {
  readonly #ground: StoreGround;
  readonly #own: ObjectReadsOwn;
  readonly #windowBytes: number;
  /** Number of clears that this node has begun. */
  #clears = 0;
  /** Number of clears in progress. */
  #clearing = 0;
  #readPages = 0;
  #isClosed = false;

  constructor(ground: StoreGround, own: ObjectReadsOwn) {
    this.#ground = ground;
    this.#own = own;
    this.#windowBytes = Math.min(OBJECT_WINDOW_MAX_BYTES, ground.pool.capacity * OBJECT_WINDOW_POOL_FRACTION);
  }

  /** Brings pages into the pool; see {@link WantedObjects}. Does not reject if the store fails. */
  async bring({ keys, lengths, signal, use }: WantedObjects): Promise<void> {
    const { search } = this.#own;
    const { clock } = this.#ground;
    const wanted = this.#worthAsking(keys, lengths);
    if (wanted.length === 0) return;
    const untilMs = clock.nowMs() + OBJECT_READ_TIMEOUT_MS;
    const checks = search.begin(signal);
    const windowMaxCount = (at: number, step: 1 | -1): number => {
      if (lengths === undefined) return UNKNOWN_WINDOW_PAGES;
      let bytes = 0;
      for (let n = 0; n < OBJECT_WINDOW_MAX_PAGES; n++) {
        bytes += lengths[wanted[at + n * step] as number] ?? 0;
        if (bytes > this.#windowBytes) return n;
      }
      return OBJECT_WINDOW_MAX_PAGES;
    };
    const look = async (positions: readonly number[]): Promise<boolean[]> => {
      const indices = positions.map((position) => wanted[position] as number);
      const timeoutMs = untilMs - clock.nowMs();
      if (this.#isOver(signal) || timeoutMs <= 0) return indices.map(() => false);
      const found = await this.#bringWindow(indices, { keys, lengths, signal, use }, { checks, timeoutMs });
      return indices.map((index) => found.has(index));
    };
    await searchChain(wanted.length, look, windowMaxCount);
  }

  /** Whether the store has each page; true only for pages whose headers this call has read. */
  async exists(keys: readonly string[], signal?: CancelSignal): Promise<boolean[]> {
    const { search } = this.#own;
    const { clock } = this.#ground;
    const found = keys.map(() => false);
    const wanted = this.#worthAsking(keys);
    if (wanted.length === 0) return found;
    const untilMs = clock.nowMs() + OBJECT_EXISTS_TIMEOUT_MS;
    const checks = search.begin(signal);
    let probes = 0;
    const look = async (positions: readonly number[]): Promise<boolean[]> => {
      probes += positions.length;
      if (probes > OBJECT_PROBES_MAX_COUNT || clock.nowMs() > untilMs || this.#isOver(signal)) return [false];
      return Promise.all(
        positions.map(async (position) => {
          const index = wanted[position] as number;
          const isThere = await this.#hasObject(keys[index] as string, checks, signal);
          found[index] = isThere;
          return isThere;
        }),
      );
    };
    await searchChain(wanted.length, look, () => OBJECT_WINDOW_MAX_PAGES);
    return this.#isClosed ? keys.map(() => false) : found;
  }

  /** Pages that have been brought into the pool since the store was created. */
  get readPages(): number {
    return this.#readPages;
  }

  /**
   * Called when this node clears pages: reads that are in progress, or arrive before `ended`, do not enter the pool.
   */
  clearing(ended: Promise<unknown>): void {
    this.#clears++;
    this.#clearing++;
    const end = (): void => void this.#clearing--;
    ended.then(end, end);
  }

  /** Stops: nothing more goes into the pool. */
  close(): void {
    this.#isClosed = true;
  }

  #isOver(signal: CancelSignal | undefined): boolean {
    return this.#isClosed || signal?.aborted === true || this.#own.store.isReadingPaused;
  }

  /** Indices of distinct keys that are worth a request now. */
  #worthAsking(keys: readonly string[], lengths?: readonly number[] | undefined): number[] {
    const { search, store } = this.#own;
    if (this.#isClosed || store.isReadingPaused || !this.#ground.settling.hasHeard) return [];
    const seen = new Set<string>();
    return keys.flatMap((key, i) => {
      if (seen.has(key) || !search.mayHave(key, lengths?.[i])) return [];
      seen.add(key);
      return [i];
    });
  }

  async #hasObject(key: string, checks: ClearChecks, signal: CancelSignal | undefined): Promise<boolean> {
    const { store, search } = this.#own;
    const found = await store.readHeader(store.names.ofPage(key), signal);
    if (found.kind === 'failed') return false;
    const { header } = found.kind === 'object' ? found.object : {};
    const isGood = header !== undefined && search.isPageOf(key, header) && (await checks.isGood(header));
    if (!isGood) search.noteAbsent(key);
    return isGood;
  }

  /**
   * Reads a window of pages into the pool and has them used; resolves with the indices of the pages that were there.
   */
  async #bringWindow(
    indices: readonly number[],
    { keys, lengths, signal, use }: WantedObjects,
    { checks, timeoutMs }: { readonly checks: ClearChecks; readonly timeoutMs: number },
  ): Promise<Set<number>> {
    const clears = this.#clears;
    const { metrics } = this.#ground;
    const read = await Promise.all(
      indices.map((index) => {
        const about = { index, length: lengths?.[index], timeoutMs, signal };
        return this.#readObject(keys[index] as string, about, checks);
      }),
    );
    const objects = read.filter((object) => object !== undefined);
    if (objects.length === 0 || this.#isClosed || signal?.aborted) return new Set();
    const leases = await this.#publish(objects, clears);
    const here = objects.filter((_, i) => leases[i] !== null).map(({ index }) => index);
    this.#readPages += here.length;
    metrics.count('meshcache_object_reads_total', here.length, { result: 'hit' });
    try {
      if (here.length > 0 && !this.#isClosed) await use(here);
    } finally {
      if (!this.#isClosed) this.#ground.pool.unlease(leases.filter((lease) => lease !== null));
    }
    return new Set(here);
  }

  async #readObject(
    key: string,
    {
      index,
      length,
      timeoutMs,
      signal,
    }: {
      readonly index: number;
      readonly length: number | undefined;
      readonly timeoutMs: number;
      readonly signal: CancelSignal | undefined;
    },
    checks: ClearChecks,
  ): Promise<ReadObject | undefined> {
    const { store, search } = this.#own;
    const { metrics } = this.#ground;
    const found = await store.readObject(store.names.ofPage(key), { length, timeoutMs, signal });
    let result = found.kind === 'unusable' ? 'damaged' : found.kind;
    if (found.kind === 'object') {
      const { header } = found.object;
      if (!search.isPageOf(key, header)) result = 'void';
      else if (!(await checks.isGood(header))) result = 'cleared';
      else return { index, key, object: found.object };
    }
    // An object of another length may be the page for a call that asks for that length.
    if (result !== 'failed') search.noteAbsent(key, found.kind === 'unusable' ? length : undefined);
    metrics.count('meshcache_object_reads_total', 1, { result });
    return undefined;
  }

  /** Puts pages into the pool and announces them; one lease for each page, null if it is not readable. */
  async #publish(objects: readonly ReadObject[], clears: number): Promise<(PageLease | null)[]> {
    const { pool, metrics } = this.#ground;
    const { statements, copyThreads, search } = this.#own;
    const keys = objects.map(({ key }) => key);
    const sources = objects.map(({ object }): PageBytes => ({ views: object.body, length: object.header.length }));
    const origins = objects.map(({ object: { header } }): PageOrigin => {
      const { expires, writer } = header;
      return { version: OBJECT_PAGE_VERSION, kind: 'computed', expires, setBy: originOf(writer) };
    });
    let isNew: boolean[] = [];
    const fill = async (targets: readonly (PageBytes | null)[]) => {
      // From here on, a request to drop these pages finds them in the pool.
      const isClearing = this.#clearing > 0 || clears !== this.#clears;
      const isUnwanted = ({ key, object: { header } }: ReadObject) =>
        isClearing ||
        statements.isVoid(key, OBJECT_PAGE_VERSION) ||
        statements.isCleared(key, header.version, originOf(header.writer));
      const wanted = targets.map((target, i) => (isUnwanted(objects[i] as ReadObject) ? null : target));
      isNew = wanted.map((target) => target !== null);
      const sums = await copyInto(copyThreads, wanted, sources);
      return sums.map((sum, i) => {
        if (sum === null || sum === objects[i]?.object.header.checksum) return sum;
        metrics.count('meshcache_object_reads_total', 1, { result: 'damaged' });
        search.noteDamaged(keys[i] as string);
        return null;
      });
    };
    const lengths = sources.map(({ length }) => length);
    const leases = await pool.fillPages(keys, lengths, fill, { origins, state: 'unconfirmed' });
    if (this.#isClosed) return leases.map(() => null);
    const added = keys.filter((_, i) => isNew[i] === true && leases[i] !== null);
    const untaken = new Set(added.length === 0 ? [] : await statements.announcePromoted(added));
    if (this.#isClosed) return leases.map(() => null);
    return leases.map((lease, i) => {
      if (lease === null || !untaken.has(keys[i] as string)) return lease;
      this.#drop(lease);
      return null;
    });
  }

  /** Removes a page that no directory owner has accepted. */
  #drop(lease: PageLease): void {
    const { pool, feed, metrics } = this.#ground;
    pool.unlease([lease]);
    const removed = pool.removeOlder([lease.key], [OBJECT_PAGE_VERSION + 1], 'copies');
    if (removed.length > 0) feed.evicted(removed);
    metrics.count('meshcache_object_reads_total', 1, { result: 'outdated' });
  }
}
