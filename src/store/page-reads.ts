import { type CancelSignal, unlessAborted } from '../base/concurrency/cancellation.js';
import { ClosedError } from '../base/errors.js';
import { isExpired } from '../base/expiry.js';
import { COPY_SLICE_MAX_BYTES, PAGE_MAX_BYTES, READ_AGAIN_WITHIN_MS } from '../base/limits.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import { addTo } from '../directory/owners/owners.js';
import { DISTANCES } from '../net/distance.js';
import type { PublishedPage, ServedPage } from '../pool/published-pool.js';
import type { DataLocation } from '../types.js';
import { endedBy, type MissReason, type ReasonLog } from './call/call-options.js';
import type { CallerPage } from './call/caller-page.js';
import { slicesOf } from './call/key-steps.js';
import type { CallOptions, RequestCalls } from './call/request-calls.js';
import { CopiedReads, type LocatedReads, type MayTake } from './copied-reads.js';
import { FoundPages, type FoundReads } from './found-pages.js';
import { locatePages } from './ground/own-locations.js';
import type { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';
import type { ObjectTier } from './objects/object-tier.js';
import { JoinedReads } from './remote/joined-reads.js';
import { KnownLocations } from './remote/known-locations.js';
import { indicesByNode, type RemoteOutcome } from './remote/remote-outcome.js';
import { RemoteReads } from './remote/remote-reads.js';
import { ObjectTierReads, OwnDiskReads, type ReadingCall } from './tier-reads.js';

/** Parts that the reads share with the rest of the store. */
interface PageReadsOwn {
  readonly statements: PageStatements;
  readonly calls: RequestCalls;
  /** Undefined without an object store. */
  readonly objects: ObjectTier | undefined;
  readonly missLog: ReasonLog<MissReason>;
}

/** Reads since the store was created. */
export interface PageReadsStats {
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number; readonly object: number };
  readonly misses: number;
  readonly readBytes: number;
  /** Pages of the pool that did not match their checksum. */
  readonly damagedPages: number;
}

/**
 * Reads pages: first from this node's pool, then from other nodes and this node's disk at the same time.
 *
 * Buffers of the caller are in use from the call until its promise resolves, not longer.
 */
export class PageReads implements LocatedReads {
  readonly #ground: StoreGround;
  readonly #own: PageReadsOwn;
  readonly #remote: RemoteReads;
  readonly #knownLocations: KnownLocations;
  readonly #joined: JoinedReads;
  readonly #copied: CopiedReads;
  readonly #found: FoundReads;
  /** Undefined without a disk. */
  readonly #ownDisk: OwnDiskReads | undefined;
  /** Undefined without an object store. */
  readonly #objects: ObjectTierReads | undefined;
  readonly #hits = { local: 0, remote: 0 };
  #misses = 0;
  #readBytes = 0;
  #damagedPages = 0;
  #closed = false;

  constructor(ground: StoreGround, own: PageReadsOwn) {
    const { clock, config, disk } = ground;
    const { statements, objects, missLog } = own;
    this.#ground = ground;
    this.#own = own;
    // Without checksums only the stamp would reveal a stale location, so no location is reused.
    this.#knownLocations = new KnownLocations(clock, config.verifyReads ? config.locationReuseMs : 0);
    this.#remote = new RemoteReads(ground, { knownLocations: this.#knownLocations, statements, missLog });
    this.#joined = new JoinedReads(ground, this.#remote);
    this.#copied = new CopiedReads(this, clock);
    // Without checksums, a location is used no longer than a read may take.
    const freshMs = Math.min(
      READ_AGAIN_WITHIN_MS,
      config.verifyReads ? READ_AGAIN_WITHIN_MS : config.reuseQuarantineMs / 2,
    );
    this.#found = { reads: this, copied: this.#copied, clock, freshMs };
    this.#ownDisk = disk && new OwnDiskReads(ground, { disk, statements, missLog });
    this.#objects = objects && new ObjectTierReads(ground, { objects, statements });
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  stats(): PageReadsStats {
    return {
      hits: { ...this.#hits, disk: this.#ownDisk?.hits ?? 0, object: this.#objects?.hits ?? 0 },
      misses: this.#misses,
      readBytes: this.#readBytes + (this.#ownDisk?.readBytes ?? 0) + (this.#objects?.readBytes ?? 0),
      damagedPages: this.#damagedPages,
    };
  }

  /** Reads pages, see `PageStore.get`. `located`: locations that the directory has just given, by index. */
  async get(
    asked: Keys,
    pages: readonly CallerPage[],
    options: CallOptions,
    located?: (index: number) => DataLocation | undefined,
  ): Promise<boolean[]> {
    if (this.#closed) throw new ClosedError('the store');
    const { pool } = this.#ground;
    const keys = stringsOf(asked);
    const { signal, reasons } = options;
    if (pool.states.countOf('earlier') > 0) await this.#confirmEarlier(keys, signal);
    // The store may have been closed meanwhile; its pool then has no index.
    if (this.#closed) {
      const missed = keys.map(() => false);
      reasons?.fill(missed, 'closed');
      return missed;
    }
    const request = this.#own.calls.begin(options, keys.length);
    const results = new Array<boolean>(keys.length).fill(false);
    const call: ReadingCall = { asked, keys, pages, results, request, located, signal, reasons };
    let elsewhere: readonly number[];
    try {
      const found =
        signal?.aborted !== true && isOneSlice(pages) ? pool.lookupBatch(asked, request.pool.next()) : undefined;
      // If the pool has no page of the call, as is usual, nothing is awaited.
      elsewhere = found?.every(isAbsent) === true ? keys.map((_, i) => i) : await this.#readLocal(call, found);
    } finally {
      request.end();
    }
    if (elsewhere.length > 0 && !this.#closed) await this.#readElsewhere(call, elsewhere);
    reasons?.fill(results, this.#missReason(signal));
    return results;
  }

  /** Reads a copy of a page; see `PageStore.getCopyWithin`. */
  getCopyWithin(
    key: string,
    options: CallOptions & { readonly mayTake: MayTake },
  ): Promise<Uint8Array | 'too-large' | null> {
    return this.#copied.get(key, options);
  }

  /** Reads copies of pages; see `PageStore.getCopies`. */
  async getCopies(keys: readonly string[], options: CallOptions): Promise<(Uint8Array | null)[]> {
    const copies = await this.#copied.getMany(keys, options);
    options.reasons?.fill(
      copies.map((copy) => copy !== null),
      this.#missReason(options.signal),
    );
    return copies;
  }

  /** Looks pages up, to read them part by part; see `PageStore.find`. */
  async find(keys: readonly string[], options: CallOptions): Promise<FoundPages> {
    return new FoundPages(keys, await this.locate(keys, options), this.#found);
  }

  /** Holds pages of the pool; see `PageStore.serve`. */
  async serve(keys: readonly string[]): Promise<(ServedPage | null)[]> {
    if (this.#closed) throw new ClosedError('the store');
    const { clock, pool, disk, metrics, config, feed } = this.#ground;
    await this.#confirmEarlier(keys);
    if (this.#closed) return keys.map(() => null);
    const startMs = clock.nowMs();
    const served = await pool.serve(keys, config.verifyReads);
    const seconds = (clock.nowMs() - startMs) / 1000;
    const read: string[] = [];
    let misses = 0;
    let bytes = 0;
    for (const [i, page] of served.entries()) {
      if (page === 'damaged') {
        misses++;
        this.#own.missLog.note('checksum');
        this.#foundDamaged(keys[i] as string);
      } else if (page !== null) {
        read.push(keys[i] as string);
        bytes += page.length;
      }
    }
    if (read.length > 0) {
      disk?.touchBatch(read);
      feed.readHere(read);
    }
    this.#hits.local += read.length;
    this.#misses += misses;
    this.#readBytes += bytes;
    if (read.length + misses > 0) metrics.recordReads('local', { hits: read.length, misses, bytes, seconds });
    return served.map((page) => (page === 'damaged' ? null : page));
  }

  /** Stops: calls in progress end early, as misses. */
  close(): void {
    this.#closed = true;
    this.#remote.close();
    this.#ownDisk?.close();
  }

  /** Locates pages on this node or in the directory; null: neither has the page, so it is a miss. */
  async locate(keys: readonly string[], { signal, reasons }: CallOptions): Promise<(DataLocation | null)[]> {
    if (this.#closed) throw new ClosedError('the store');
    const { clock, directory, metrics, versions } = this.#ground;
    await this.#confirmEarlier(keys, signal);
    if (this.#closed) return keys.map(() => null);
    const startMs = clock.nowMs();
    const located = await locatePages(keys, this.#own.statements.locationsOf(keys), { directory, signal });
    const locations = (await this.#objects?.locate(keys, located, signal)) ?? located;
    const present = versions.now();
    const usable = locations.map((location) => {
      // No page has 0 bytes, so such a location is invalid.
      const isLength = location !== null && location.length >= 1 && location.length <= PAGE_MAX_BYTES;
      const isUsable = isLength && !isExpired(location.expires, present);
      return isUsable ? location : null;
    });
    const misses = usable.reduce((count, location) => count + Number(location === null), 0);
    if (misses === 0) return usable;
    reasons?.fill(
      usable.map((location) => location !== null),
      this.#missReason(signal),
    );
    this.#misses += misses;
    metrics.recordReads('remote', { hits: 0, misses, bytes: 0, seconds: (clock.nowMs() - startMs) / 1000 });
    return usable;
  }

  /** Confirms pages of the pool from before this start, so that the call finds those that are still good. */
  async #confirmEarlier(keys: readonly string[], signal?: CancelSignal): Promise<void> {
    const { pool } = this.#ground;
    const hidden = pool.states.earlierAmong(keys);
    if (hidden.length > 0 && !signal?.aborted) await unlessAborted(this.#own.statements.confirm(hidden), signal);
  }

  /** The reason for misses of a call that has recorded none. */
  #missReason(signal: CancelSignal | undefined): MissReason {
    return this.#closed ? 'closed' : (endedBy(signal) ?? 'absent');
  }

  /**
   * Copies the pages that this node's pool has; returns the indices of the others. `found`: the result of the lookup,
   * if the call is a single slice.
   */
  async #readLocal(
    { keys, pages, results, request, signal, reasons }: ReadingCall,
    found: readonly (PublishedPage | null)[] | undefined,
  ): Promise<number[]> {
    const { clock, pool, disk, metrics, config, feed } = this.#ground;
    const { missLog } = this.#own;
    const startMs = clock.nowMs();
    const elsewhere: number[] = [];
    let hits = 0;
    let misses = 0;
    let bytes = 0;
    for (const { start, end } of slicesOf(pages)) {
      if (start > 0) await clock.yield();
      if (this.#closed) break;
      if (signal?.aborted) {
        for (let i = start; i < end; i++) elsewhere.push(i);
        continue;
      }
      const sliceKeys = keys.slice(start, end);
      const here = found ?? pool.lookupBatch(sliceKeys, request.pool.next());
      const outcomes = await pool.copyOut(sliceKeys, pages.slice(start, end), here, config.verifyReads);
      // The store may have been closed meanwhile.
      if (this.#closed) break;
      const isAll = outcomes.every((outcome) => outcome === 'read');
      const read = isAll ? sliceKeys : sliceKeys.filter((_, j) => outcomes[j] === 'read');
      if (read.length > 0) {
        disk?.touchBatch(read, request.disk.next());
        feed.readHere(read);
      }
      outcomes.forEach((outcome, j) => {
        const i = start + j;
        if (outcome === 'absent') {
          elsewhere.push(i);
        } else if (outcome === 'read') {
          results[i] = true;
          hits++;
          bytes += (pages[i] as CallerPage).length;
        } else {
          misses++;
          const isDamaged = outcome === 'damaged';
          reasons?.note(i, isDamaged ? 'checksum' : 'other_size');
          missLog.note(isDamaged ? 'checksum' : 'other_size');
          if (isDamaged) this.#foundDamaged(keys[i] as string);
        }
      });
    }
    this.#hits.local += hits;
    this.#misses += misses;
    this.#readBytes += bytes;
    if (hits + misses > 0) {
      metrics.recordReads('local', { hits, misses, bytes, seconds: (clock.nowMs() - startMs) / 1000 });
    }
    return elsewhere;
  }

  /** Records a damaged page, which the pool has dropped already. */
  #foundDamaged(key: string): void {
    this.#damagedPages++;
    this.#ground.metrics.count('meshcache_checksum_failures_total', 1, { source: 'local' });
    this.#ground.feed.evicted([key]);
  }

  async #readElsewhere(call: ReadingCall, wanted: readonly number[]): Promise<void> {
    const { clock, metrics } = this.#ground;
    const { asked, keys, pages, results, signal, reasons, located: locationOf } = call;
    const startMs = clock.nowMs();
    const fromDisk: Promise<void>[] = [];
    const onOwn = (own: readonly number[]): void => {
      if (this.#ownDisk === undefined) return;
      const read = this.#ownDisk.read(call, own);
      // A failure is reported below, after the other reads have ended.
      read.catch(() => {});
      fromDisk.push(read);
    };
    let remote: RemoteOutcome;
    try {
      remote = await this.#joined.read({ asked, keys, pages, wanted, onOwn, locationOf, signal, reasons });
    } catch (error) {
      // Everything that may write into the pages must have ended before a failure is passed on.
      await Promise.allSettled(fromDisk);
      throw error;
    }
    const { hits, bytes } = this.#takeRemote(call, remote);
    const seconds = (clock.nowMs() - startMs) / 1000;
    if (fromDisk.length > 0) {
      await Promise.allSettled(fromDisk);
      await Promise.all(fromDisk);
    }
    // The directory may not know the pages on this node's disk, and other nodes may not have answered.
    const left = this.#ownDisk === undefined ? [] : wanted.filter((i) => !results[i]);
    if (left.length > 0) await this.#ownDisk?.read(call, left);
    await this.#objects?.read(call, wanted);
    const misses = wanted.reduce((count, i) => count + Number(!results[i]), 0);
    this.#hits.remote += hits;
    this.#misses += misses;
    this.#readBytes += bytes;
    // Pages from this node's disk do not count as read from other nodes.
    if (hits + misses > 0) metrics.recordReads('remote', { hits, misses, bytes, seconds });
  }

  /** Takes the results of reads from other nodes, and reports hits and failures to those nodes. */
  #takeRemote(
    { keys, pages, results, request }: ReadingCall,
    { reads, missed }: RemoteOutcome,
  ): { readonly hits: number; readonly bytes: number } {
    const { cluster, feed } = this.#ground;
    let hits = 0;
    let bytes = 0;
    for (const [nodeId, indices] of indicesByNode(reads)) {
      const before = bytes;
      for (const index of indices) {
        results[index] = true;
        bytes += (pages[index] as CallerPage).length;
      }
      hits += indices.length;
      this.#countByDistance(nodeId, indices.length, bytes - before);
      feed.readRemotely(
        nodeId,
        indices.map((index) => keys[index] as string),
        request.hint ?? 0,
      );
    }
    if (missed.length === 0) return { hits, bytes };
    const failedKeys = new Map<string, string[]>();
    for (const { index, nodeId, isVoid } of [...missed].sort((a, b) => a.index - b.index)) {
      // The node of a void page must drop it, not announce it again.
      if (isVoid !== true) addTo(failedKeys, nodeId, keys[index] as string);
    }
    for (const [nodeId, failed] of failedKeys) cluster.notices.unreadable(nodeId, failed);
    return { hits, bytes };
  }

  /** Counts pages read from another node, by its distance. */
  #countByDistance(nodeId: string, pages: number, bytes: number): void {
    const { cluster, metrics } = this.#ground;
    const distances = cluster.distances();
    if (distances === undefined) return;
    const distance = DISTANCES[distances(nodeId)];
    metrics.count('meshcache_remote_read_pages_total', pages, { distance });
    metrics.count('meshcache_remote_read_bytes_total', bytes, { distance });
  }

  /** Throws `InvariantError` unless the remembered locations are within their limits. */
  verify(): void {
    this.#knownLocations.verify();
  }
}

function isOneSlice(pages: readonly CallerPage[]): boolean {
  if (pages.length === 0) return false;
  let bytes = 0;
  for (const { length } of pages) bytes += length;
  return bytes <= COPY_SLICE_MAX_BYTES;
}

function isAbsent(page: PublishedPage | null): boolean {
  return page === null;
}
