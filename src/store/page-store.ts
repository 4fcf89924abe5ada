import { unlessAborted } from '../base/concurrency/abort.js';
import type { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { Clock } from '../base/environment/clock.js';
import type { Logger } from '../base/environment/log.js';
import { ClosedError } from '../base/errors.js';
import { type Keys, pickKeys, stringsOf } from '../core/binding/key-batch.js';
import type { RequestHint } from '../core/index.js';
import { REPORTS_CALLER } from '../core/pool/request-callers.js';
import type { DirectoryClient } from '../directory/client.js';
import type { LocationNode } from '../directory/messages/location-columns.js';
import type { Clear, KnownClears } from '../directory/shard/known-clears.js';
import type { Metrics } from '../metrics/metrics.js';
import { reportPool } from '../pool/pool-metrics.js';
import type { PublishedPool, ServedPage } from '../pool/published-pool.js';
import type { PageLimits } from '../pool/tenants/page-limits.js';
import type { Transport } from '../transport/contract/transport.js';
import type { EntryKind } from '../types.js';
import {
  inTime,
  type MissReason,
  orAbort,
  type TimedOptions,
  timedOut,
  type WaitOptions,
} from './call/call-options.js';
import type { CallerPage } from './call/caller-page.js';
import { indicesWhere } from './call/indices.js';
import { ReasonLog } from './call/reason-log.js';
import { type CallOptions, type HintFigures, RequestCalls } from './call/request-calls.js';
import { clearPages, dropClearedCopies } from './clearing.js';
import type { FirstCopies, MayTake } from './copied-reads.js';
import type { DiskTier } from './disk/disk-tier.js';
import { ExpiredPages } from './expired-pages.js';
import { locatePages } from './locate-pages.js';
import { ObjectTier, type ObjectTierParts, type ObjectTierStats } from './objects/object-tier.js';
import { PageReads } from './page-reads.js';
import { PageStatements } from './page-statements.js';
import { PageWrites } from './page-writes.js';
import type { PageRoom, PlacedPage } from './placed-reads.js';
import type { OtherHolders } from './remote/other-holders.js';

/** An object store, and what its tier needs beside the parts of a page store. */
export type ObjectStoreParts = Pick<ObjectTierParts, 'store' | 'isReadable' | 'bytesPerS' | 'copyThreads'>;

export interface PageStoreParts {
  readonly pool: PublishedPool;
  /** Lengths of the longest pages that the pool takes; default: those of a pool without quotas. */
  readonly limits?: PageLimits;
  /** Disk from which pages that the pool has evicted are read. */
  readonly disk?: DiskTier | undefined;
  /** Object store from which pages are read that no node has. */
  readonly objectStore?: ObjectStoreParts | undefined;
  /** Asks other nodes for pages on their disks. */
  readonly holders: OtherHolders;
  readonly directory: Pick<DirectoryClient, 'state' | 'get' | 'find' | 'exists' | 'delete' | 'discard' | 'firstOwners'>;
  /** The clears that this node knows of; default: none. */
  readonly clears?: KnownClears | undefined;
  /** Clock that gives versions to pages that are set. */
  readonly versions: HybridClock;
  /**
   * Makes every node drop these pages if they are older than the version; true for each page that all nodes have
   * dropped. `isOver`: whether the caller has given the call up, so that what is newer stays.
   */
  readonly deleteEverywhere: (keys: readonly string[], version: number, isOver: () => boolean) => Promise<boolean[]>;
  /** Whether pages from before this start count as good: all other nodes have reported what they know of them. */
  readonly isSettled: () => boolean;
  /** Whether computed pages are kept here although another node has them. */
  readonly keepsDuplicates: boolean;
  readonly transport: Transport;
  /** The data endpoint of that start of a node; undefined when it is not alive. */
  readonly endpointOf: (node: LocationNode) => string | undefined;
  /** Ids of the nodes whose pages cannot be read now, as reads have found out; default: none. */
  readonly unreachableNodes?: () => readonly string[];
  /** Called with the numbers of pages and bytes that a call has read from another node. */
  readonly onReadFrom?: (nodeId: string, pages: number, bytes: number) => void;
  /**
   * Called with the pages that a call has read from another node, in order: the owner does not notice one-sided reads.
   */
  readonly onRemoteHits: (nodeId: string, keys: string[], hint: RequestHint) => void;
  /** Called with pages that the directory listed but the owner could not serve. */
  readonly onRemoteFailures: (nodeId: string, keys: string[]) => void;
  /** Called with a node that has a void page, and the version below which it is void. */
  readonly onVoid?: (nodeId: string, key: string, voidBelow: number) => void;
  /** Called with pages of this node that other nodes report to have read. */
  readonly onTouched?: (keys: readonly string[]) => void;
  /** Called with keys under which pages have been set here. */
  readonly onSet?: (keys: readonly string[]) => void;
  /** Called with keys of pages that have been set here and that the directory has. */
  readonly onStated?: (keys: readonly string[]) => void;
  /**
   * Called when this node's pages are cleared that are older than a version, with the prefixes of their keys, or
   * undefined for all; resolves when the copies on other nodes have gone.
   */
  readonly onCleared?: (voidBelow: number, prefixes: readonly string[] | undefined) => Promise<void>;
  /** Whether a client has pinned the page here; default: none has. */
  readonly isPinned?: (key: string) => boolean;
  /** Called with pages that may have left the pool. */
  readonly onGone?: (keys: readonly string[]) => void;
  /** Called with keys whose pages have come, moved or gone here, once the directory has been told. */
  readonly onChanged?: (keys: readonly string[]) => void;
  readonly identity: { readonly nodeId: string; readonly incarnation: number; readonly dataEndpoint: string };
  /** Dropped keys that statements remember; see `PageStatementsParts`. */
  readonly droppedMaxKeys?: number | undefined;
  readonly verifyReads: boolean;
  readonly quarantineMs: number;
  /** How long an answer of the directory may be reused; 0 (default): never. */
  readonly locationReuseMs?: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
}

/** Reads and writes of a store since it was created. */
export interface PageStoreStats {
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number; readonly object: number };
  readonly misses: number;
  readonly readBytes: number;
  readonly pagesWritten: number;
  readonly writtenBytes: number;
  /** Pages that did not match their checksum when they were read: detected, and counted as misses. */
  readonly checksumFailures: number;
  /**
   * Reads of pages that their owner had freed: detected by the stamp, and counted as misses unless another node had the
   * page.
   */
  readonly staleReads: number;
  /** Calls that gave a hint. */
  readonly hinted: HintFigures;
}

/**
 * The tiers behind one interface, by object key: one write and one read.
 *
 * Buffers of the caller are in use from the call until its promise resolves, not longer.
 */
export class PageStore {
  readonly #parts: PageStoreParts;
  readonly #reads: PageReads;
  readonly #writes: PageWrites;
  readonly #statements: PageStatements;
  readonly #calls: RequestCalls;
  readonly #expired: ExpiredPages;
  /** Undefined without an object store. */
  readonly #objects: ObjectTier | undefined;
  #closed = false;

  constructor(parts: PageStoreParts) {
    this.#parts = parts;
    const onDeleted = (keys: readonly string[]) => this.#objects?.dropped(keys);
    this.#statements = new PageStatements({ ...parts, onDeleted });
    this.#calls = new RequestCalls(parts.metrics);
    const { identity, pool, metrics } = parts;
    const missLog = new ReasonLog<MissReason>('pages not read', parts);
    const onDropped = (keys: readonly string[]) => this.forget(keys);
    const { statements } = this;
    const { nodeId } = identity;
    this.#objects =
      parts.objectStore && new ObjectTier({ ...parts, ...parts.objectStore, nodeId, statements, onDropped });
    const shared = { ...parts, statements, objects: this.#objects, calls: this.#calls, missLog };
    this.#reads = new PageReads({ ...shared, nodeId, onDropped });
    this.#writes = new PageWrites({ ...shared, onDropped });
    this.#expired = new ExpiredPages({ ...parts, onRemoved: onDropped });
    reportPool(pool, metrics, { damagedPages: () => this.#reads.stats().damagedPages });
  }

  /** What has been read from the object store and sent there; undefined without one. */
  objectStats(): ObjectTierStats | undefined {
    return this.#objects?.stats();
  }

  stats(): PageStoreStats {
    const { damagedPages, ...reads } = this.#reads.stats();
    const { checksumFailures, staleOps } = this.#parts.transport.stats();
    return {
      ...reads,
      ...this.#writes.stats(),
      checksumFailures: damagedPages + checksumFailures,
      staleReads: staleOps,
      hinted: this.#calls.figures(),
    };
  }

  /**
   * Publishes each page; true when it is in the pool and in the directory. A named entry is then the newest content
   * anywhere. A computed page that another node has is true too, and not kept here. So is a page that other pages, of
   * this or other calls, evict before the call has ended: no reader finds it any more, nor the page that it has
   * replaced.
   */
  async set(keys: Keys, pages: readonly CallerPage[], kind: EntryKind, options: CallOptions = {}): Promise<boolean[]> {
    this.#checkOpen();
    const set = () => inTime(this.#parts.clock, options, (call) => this.#writes.set(keys, pages, kind, call));
    return this.#objects === undefined ? set() : this.#objects.whileSetting(set);
  }

  /** Stops publishing: from now on every `set` is false; reads go on as before. */
  stopPublishing(): void {
    this.#writes.stop();
  }

  /** The announcements of this node's pages. */
  get statements(): PageStatements {
    return this.#statements;
  }

  /**
   * Reads each page into the caller's memory. If a result is false, the page's memory is undefined. After an abort no
   * read begins; reads under way end as `Transport.batchRead` says or, from the own pool and disk, when they are done.
   * Pages not read by then are misses.
   */
  get(keys: Keys, pages: readonly CallerPage[], options: CallOptions = {}): Promise<boolean[]> {
    if (options.timeoutMs === undefined) return this.#reads.get(keys, pages, options);
    return inTime(this.#parts.clock, options, (call) => this.#reads.get(keys, pages, call));
  }

  /**
   * Reads a copy that the caller owns; null: a miss. A page that is set anew before it could be read, and so may have
   * another length, is looked up again, for READ_AGAIN_WITHIN_MS at most.
   */
  async getCopy(key: string, options: CallOptions = {}): Promise<Uint8Array | null> {
    const copy = await this.getCopyWithin(key, { ...options, mayTake: () => true });
    return copy === 'too-large' ? null : copy;
  }

  /** {@link getCopy} of a page for which memory may be taken. */
  async getCopyWithin(
    key: string,
    options: CallOptions & { readonly mayTake: MayTake },
  ): Promise<Uint8Array | 'too-large' | null> {
    this.#checkOpen();
    return inTime(this.#parts.clock, options, (call) => this.#reads.getCopyWithin(key, call));
  }

  /** {@link getCopy} of each page, with one lookup for all of them. */
  async getCopies(keys: readonly string[], options: CallOptions = {}): Promise<(Uint8Array | null)[]> {
    this.#checkOpen();
    return inTime(this.#parts.clock, options, (call) => this.#reads.getCopies(keys, call));
  }

  /**
   * {@link getCopies} of the first of the pages, as many as have at most `maxBytes` together. If the first one alone
   * has more, nothing is read, and the result says how many.
   */
  async getFirstCopies(
    keys: readonly string[],
    options: CallOptions & { readonly maxBytes: number },
  ): Promise<FirstCopies> {
    this.#checkOpen();
    return inTime(this.#parts.clock, options, (call) => this.#reads.getFirstCopies(keys, call));
  }

  /**
   * Reads pages of any length one behind the other into the room; null: a miss. What has no room behind those before it
   * is not read, and its result says how long it is. The room is in use until the promise has resolved.
   */
  async getPlaced(keys: readonly string[], room: PageRoom, options: CallOptions = {}): Promise<(PlacedPage | null)[]> {
    this.#checkOpen();
    return inTime(this.#parts.clock, options, (call) => this.#reads.getPlaced(keys, room, call));
  }

  /** Lengths of the pages in the own pool; null: the page is not there. Does not count as a use. */
  lengthsHere(keys: Keys): (number | null)[] {
    this.#checkOpen();
    const { pool } = this.#parts;
    return pool.unconfirmed.without(keys, pool.peekBatch(keys)).map((page) => page?.length ?? null);
  }

  /**
   * Holds a page of the own pool, so that its bytes can be sent from where they lie; the caller must release it soon.
   * They have been checked. Null: the page is not in the pool, or cannot be held now; then it can still be read.
   */
  async serve(key: string): Promise<ServedPage | null> {
    this.#checkOpen();
    return this.#reads.serve(key);
  }

  /**
   * Which pages this node or, on nodes that reads reach, the directory has; after an abort, which pages this node has.
   * Does not count as a use.
   */
  async exists(keys: Keys, options: WaitOptions = {}): Promise<boolean[]> {
    this.#checkOpen();
    return inTime(this.#parts.clock, options, ({ signal }) => this.#exists(keys, signal));
  }

  async #exists(keys: Keys, signal: AbortSignal | undefined): Promise<boolean[]> {
    const onDisk = this.#parts.disk?.readableBatch(stringsOf(keys));
    const here = Array.from(this.#parts.pool.hasBatch(keys), (flag, i) => flag === 1 || onDisk?.[i] === 1);
    const unknown = indicesWhere(here, (present) => !present);
    if (unknown.length === 0 || signal?.aborted) return here;
    // A page that no read would bring is not there.
    const avoided = this.#parts.unreachableNodes?.() ?? [];
    const found = await unlessAborted(this.#parts.directory.exists(pickKeys(keys, unknown), avoided), signal);
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

  async #findObjects(keys: readonly string[], signal: AbortSignal | undefined): Promise<readonly boolean[]> {
    return (await this.#objects?.exists(keys, signal)) ?? [];
  }

  /**
   * Milliseconds until each page expires; Infinity: it does not; null: neither this node nor the directory has it. Does
   * not count as a use.
   */
  async remainingMs(keys: readonly string[], options: WaitOptions = {}): Promise<(number | null)[]> {
    this.#checkOpen();
    return inTime(this.#parts.clock, options, ({ signal }) => this.#remainingMs(keys, signal));
  }

  async #remainingMs(keys: readonly string[], signal: AbortSignal | undefined): Promise<(number | null)[]> {
    const { directory, versions } = this.#parts;
    const locations = await locatePages(keys, { statements: this.#statements, directory }, signal);
    return locations.map((location) => {
      if (location === null) return null;
      const leftMs = location.expires === 0 ? Number.POSITIVE_INFINITY : versions.msUntil(location.expires);
      return leftMs > 0 ? leftMs : null;
    });
  }

  /**
   * Drops pages that this node has published; `prefixes`: only those whose keys begin with one of them. Rejects with
   * the signal's reason when it is aborted while other nodes are being told.
   */
  async clear(prefixes?: readonly string[], options: WaitOptions = {}): Promise<void> {
    this.#checkOpen();
    options.signal?.throwIfAborted();
    await inTime(this.#parts.clock, options, ({ signal }) => orAbort(this.#clear(prefixes), signal));
  }

  async #clear(prefixes: readonly string[] | undefined): Promise<void> {
    const { versions, onCleared } = this.#parts;
    const isCleared = (key: string): boolean => prefixes?.some((prefix) => key.startsWith(prefix)) !== false;
    const parts = { ...this.#parts, statements: this.#statements, isClosed: () => this.#closed };
    // Pages that are set from here on stay.
    const voidBelow = versions.next();
    const told = onCleared?.(voidBelow, prefixes);
    const removed = clearPages(parts, { voidBelow, isCleared });
    const cleared = this.#objects?.clear(prefixes, removed);
    cleared?.catch(() => {});
    await Promise.all([removed, told]);
    await cleared;
  }

  /**
   * Drops the copies that these clears of other nodes make void. Resolves when nobody can read them here, nor can a
   * crash bring them back.
   */
  dropCleared(clears: readonly Clear[]): Promise<void> {
    const onDropped = (...dropped: Parameters<PageStatements['dropped']>) => this.#statements.dropped(...dropped);
    return dropClearedCopies({ ...this.#parts, onDropped, isClosed: () => this.#closed }, clears);
  }

  /**
   * Makes every node drop these pages. True: no node can read the page any more. After an abort every result is false.
   */
  async delete(keys: readonly string[], options: TimedOptions = {}): Promise<boolean[]> {
    this.#checkOpen();
    const { versions, clock } = this.#parts;
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
    { signal, isOver }: { readonly signal: AbortSignal | undefined; readonly isOver: () => boolean },
  ): Promise<boolean[]> {
    const isDropped = await this.#parts.deleteEverywhere(keys, version, isOver);
    if (this.#objects === undefined || signal?.aborted) return isDropped;
    // Nodes that have dropped a page do not send it any more.
    const isDeleted = await this.#objects.delete(keys, version, signal);
    return isDropped.map((dropped, i) => dropped && isDeleted[i] === true);
  }

  /**
   * Keys of the pages that this node has, slice by slice, as far as they begin with the prefix; other work has its turn
   * between slices. Pages that come or go meanwhile may be left out. Rejects with the signal's reason when it is
   * aborted, and with `ClosedError` when the store is closed.
   */
  async *keysInSlices(prefix: string, { signal, timeoutMs }: WaitOptions = {}): AsyncGenerator<string[], void> {
    const { pool, disk, clock } = this.#parts;
    const untilMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : clock.nowMs() + timeoutMs;
    const goOn = async (): Promise<void> => {
      await clock.yield();
      this.#checkOpen();
      signal?.throwIfAborted();
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

  /**
   * Called with the keys of pages that the pool or the disk has just dropped; what is left of them is announced anew.
   */
  forget(keys: readonly string[]): void {
    this.#parts.disk?.dropped(keys);
    this.#parts.onGone?.(keys);
    this.#statements.restate(keys).catch((error: unknown) => {
      this.#parts.log.log('error', 'telling the directory of dropped pages failed', { error: String(error) });
    });
  }

  /** Counts reads that another node has reported, for one request of its own. */
  touch(keys: readonly string[], hint: RequestHint = 0): void {
    if (this.#closed) return;
    // The other node mostly sets further pages for this request, so none of these pages is its last one.
    const request = { hint, caller: REPORTS_CALLER, continues: false, endsElsewhere: true };
    this.#parts.onTouched?.(keys);
    this.#objects?.used(keys);
    this.#parts.pool.touchBatch(keys, request);
    this.#parts.disk?.touchBatch(keys, request);
  }

  /**
   * Closes the store: calls under way end early, as misses. Resolves when everything that waits for the disk is
   * written, or its time is over, and nothing touches the pool's memory any more.
   */
  async close(): Promise<void> {
    this.#closed = true;
    this.#expired.close();
    this.#statements.close();
    this.#reads.close();
    this.#writes.close();
    await this.#objects?.close();
    await this.#parts.disk?.close();
    await this.#parts.pool.end();
  }

  #checkOpen(): void {
    if (this.#closed) throw new ClosedError('the store');
  }

  /**
   * Throws `InvariantError` unless the pool, the announcements of its pages, and the pages that wait for the disk
   * agree.
   */
  verify(): void {
    this.#parts.pool.verify();
    this.#parts.disk?.verify();
    this.#statements.verify();
    this.#reads.verify();
    this.#objects?.verify();
  }
}
