import { unlessAborted } from '../base/concurrency/abort.js';
import type { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { Clock } from '../base/environment/clock.js';
import type { Logger } from '../base/environment/log.js';
import { ClosedError } from '../base/errors.js';
import { PAGE_MAX_BYTES } from '../base/limits.js';
import type { RequestHint, RequestOptions } from '../core/index.js';
import { REPORTS_CALLER } from '../core/pool/request-callers.js';
import type { DirectoryClient } from '../directory/client.js';
import type { LocationNode } from '../directory/location-columns.js';
import type { Metrics } from '../metrics/metrics.js';
import { reportPool } from '../pool/pool-metrics.js';
import type { PageOrigin, PublishedPage, PublishedPool } from '../pool/published-pool.js';
import type { Transport } from '../transport/contract/transport.js';
import type { DataLocation, EntryKind } from '../types.js';
import type { CallerPage } from './caller-page.js';
import { CopiedReads } from './copied-reads.js';
import type { DiskTier } from './disk-tier.js';
import { JoinedReads } from './joined-reads.js';
import { KeysByOwner } from './keys-by-owner.js';
import { KnownLocations } from './known-locations.js';
import { OwnDiskReads, type ReadingCall } from './own-disk-reads.js';
import { type Slice, slicesOf } from './page-slices.js';
import { PageStatements } from './page-statements.js';
import { type Publishing, publishSlices } from './publishing.js';
import { indicesByNode, type RemoteOutcome } from './remote-outcome.js';
import { type Promotions, RemoteReads } from './remote-reads.js';
import { type HintFigures, RequestCalls } from './request-calls.js';
import { countNotPublished, countSkippedWrites } from './skipped-writes.js';

/** What a call tells of its request, and how it ends early. */
export interface CallOptions extends RequestOptions {
  /** When it is aborted the call ends as soon as nothing touches the caller's pages any more: what has been read by then counts. */
  readonly signal?: AbortSignal | undefined;
}

export interface PageStoreParts {
  readonly pool: PublishedPool;
  /** What the pool lets go of is found there. */
  readonly disk?: DiskTier | undefined;
  /** Asks other nodes for what is on their disks. */
  readonly promotions: Promotions;
  readonly directory: Pick<DirectoryClient, 'state' | 'get' | 'find' | 'exists' | 'delete' | 'discard' | 'firstOwners'>;
  /** What is set gets its versions from here. */
  readonly versions: HybridClock;
  /** Makes every node drop these pages where they are older than the version; true where all have. */
  readonly deleteEverywhere: (keys: readonly string[], version: number) => Promise<boolean[]>;
  /** What is here since before this start is as good as everything else: all others have said what they know of it. */
  readonly isSettled: () => boolean;
  /** Computed pages are kept here although another node has them. */
  readonly keepsDuplicates: boolean;
  readonly transport: Transport;
  /** The data endpoint at which that start of a node is read; undefined when it is not alive. */
  readonly endpointOf: (node: LocationNode) => string | undefined;
  /** Told which pages of which owner a call has read, in its order: a one-sided read is not noticed by the owner itself. */
  readonly onRemoteHits: (nodeId: string, keys: string[], hint: RequestHint) => void;
  /** Told which pages of which owner were said to be there and could not be read. */
  readonly onRemoteFailures: (nodeId: string, keys: string[]) => void;
  /** Told of a node that has what is void: older than that version. */
  readonly onVoid?: (nodeId: string, key: string, voidBelow: number) => void;
  /** Told which pages of this node others say to have read. */
  readonly onTouched?: (keys: readonly string[]) => void;
  /** Told under which keys pages have been set here. */
  readonly onSet?: (keys: readonly string[]) => void;
  /** Told which pages may have left the pool. */
  readonly onGone?: (keys: readonly string[]) => void;
  readonly identity: { readonly nodeId: string; readonly incarnation: number; readonly dataEndpoint: string };
  readonly verifyReads: boolean;
  readonly quarantineMs: number;
  /** So long an answer of the directory may be used again; 0 or left out: never. */
  readonly locationReuseMs?: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
}

/** Reads and writes of a store since it was created. */
export interface PageStoreStats {
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number };
  readonly misses: number;
  readonly readBytes: number;
  readonly pagesWritten: number;
  readonly writtenBytes: number;
  /** Pages whose bytes did not have their checksum when they were read: caught, and counted as misses. */
  readonly checksumFailures: number;
  /** Reads of pages that their owner had freed: caught by the stamp, and counted as misses unless another node had the page. */
  readonly staleReads: number;
  /** Calls that told a hint. */
  readonly hinted: HintFigures;
}

/**
 * The tiers behind one interface, by object key: one write and one read.
 *
 * Buffers of the caller are in use from the call until its promise resolves, not longer.
 */
export class PageStore {
  readonly #parts: PageStoreParts;
  readonly #remote: RemoteReads;
  readonly #knownLocations: KnownLocations;
  readonly #joined: JoinedReads;
  readonly #copied: CopiedReads;
  readonly #statements: PageStatements;
  readonly #calls: RequestCalls;
  /** Undefined without a disk. */
  readonly #ownDisk: OwnDiskReads | undefined;
  #isPublishing = true;
  readonly #hits = { local: 0, remote: 0 };
  #misses = 0;
  #readBytes = 0;
  #pagesWritten = 0;
  #writtenBytes = 0;
  #localChecksumFailures = 0;
  #closed = false;

  constructor(parts: PageStoreParts) {
    this.#parts = parts;
    this.#statements = new PageStatements(parts);
    this.#calls = new RequestCalls(parts.metrics);
    // Without checksums nothing but the stamp would tell that a location is stale.
    this.#knownLocations = new KnownLocations(parts.clock, parts.verifyReads ? (parts.locationReuseMs ?? 0) : 0);
    this.#remote = new RemoteReads({
      ...parts,
      knownLocations: this.#knownLocations,
      nodeId: parts.identity.nodeId,
      voidBelow: (key, version) => this.#statements.voidBelow(key, version),
    });
    const firstOwners = (keys: readonly string[]) => parts.directory.firstOwners(keys);
    this.#copied = new CopiedReads({
      locate: (key, signal) => this.#locate(key, signal),
      read: async (key, page, options, located) => (await this.#get([key], [page], options, located))[0] === true,
      isClosed: () => this.#closed,
      clock: parts.clock,
    });
    this.#joined = new JoinedReads({ reads: this.#remote, firstOwners, clock: parts.clock });
    if (parts.disk !== undefined) {
      const { disk, clock, metrics } = parts;
      const confirm = (keys: readonly string[]) => this.#statements.confirm(keys);
      this.#ownDisk = new OwnDiskReads({ disk, confirm, clock, metrics });
    }
    reportPool(parts.pool, parts.metrics, { damagedPages: () => this.#localChecksumFailures });
  }

  stats(): PageStoreStats {
    return {
      hits: { ...this.#hits, disk: this.#ownDisk?.hits ?? 0 },
      misses: this.#misses,
      readBytes: this.#readBytes + (this.#ownDisk?.readBytes ?? 0),
      pagesWritten: this.#pagesWritten,
      writtenBytes: this.#writtenBytes,
      checksumFailures: this.#localChecksumFailures + this.#parts.transport.stats().checksumFailures,
      staleReads: this.#parts.transport.stats().staleOps,
      hinted: this.#calls.figures(),
    };
  }

  /**
   * Publishes each page; true when it is in the pool and in the directory. Of a named entry it is the newest content then, anywhere. A
   * computed one that another node has is true, too, and not kept here. So is a page that is evicted before the call has ended, for others of the
   * call or of other calls: nobody finds it any more, nor what it has replaced.
   */
  async set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    kind: EntryKind,
    { signal, ...told }: CallOptions = {},
  ): Promise<boolean[]> {
    this.#checkOpen();
    const request = this.#calls.begin(told, keys.length);
    const startMs = this.#parts.clock.nowMs();
    const origin: PageOrigin = { version: this.#parts.versions.next(), kind, isCopy: false };
    const results = new Array<boolean>(keys.length).fill(false);
    const announcements: Promise<void>[] = [];
    const publishing: Publishing = {
      keys,
      pages,
      origin,
      request: request.pool,
      mayGoOn: (pagesLeft) => signal?.aborted !== true && this.#mayPublish(pagesLeft),
      onTakenBack: (gone) => this.forget(gone),
      onPublished: (slice, published) => {
        if (this.#closed) return;
        const sliceKeys = keys.slice(slice.start, slice.end);
        countNotPublished(pages.slice(slice.start, slice.end), published, this.#parts);
        this.#parts.onSet?.(sliceKeys);
        const outdated = this.#parts.disk?.writeThrough(sliceKeys, published, request.disk);
        if (outdated !== undefined) announcements.push(outdated);
        announcements.push(this.#stateSlice(slice, { keys: sliceKeys, published, origin, results }));
      },
    };
    await (this.#parts.disk?.publish(publishing) ?? publishSlices(publishing, this.#parts)).finally(request.end);
    // The pages are copied: whoever gives up waiting for the directory gets their memory back.
    const announced = await unlessAborted(Promise.all(announcements), signal);
    // Which owners have taken their pages is not known yet.
    if (announced === undefined) return new Array<boolean>(keys.length).fill(false);
    const written = results.reduce((count, ok) => count + Number(ok), 0);
    if (written > 0) {
      const bytes = pages.reduce((sum, page, i) => sum + (results[i] === true ? page.length : 0), 0);
      this.#pagesWritten += written;
      this.#writtenBytes += bytes;
      const seconds = (this.#parts.clock.nowMs() - startMs) / 1000;
      this.#parts.metrics.recordWrites({ pages: written, bytes, seconds });
    }
    return results;
  }

  /** From now on every `set` is false; what is here is read as before. */
  stopPublishing(): void {
    this.#isPublishing = false;
    this.#parts.disk?.endWaits();
  }

  /** What this node says of its pages, and is told of them. */
  get statements(): PageStatements {
    return this.#statements;
  }

  /**
   * Reads each page into the caller's memory; what false leaves there is undefined. After an abort no read is begun, and those under way
   * end as `Transport.batchRead` says or, from the own pool and disk, when they are done. What is not read then is a miss.
   */
  get(keys: readonly string[], pages: readonly CallerPage[], options: CallOptions = {}): Promise<boolean[]> {
    return this.#get(keys, pages, options, undefined);
  }

  /** `located`: of one page, where the directory has just said that it is. */
  async #get(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { signal, ...told }: CallOptions,
    located: DataLocation | undefined,
  ): Promise<boolean[]> {
    this.#checkOpen();
    const request = this.#calls.begin(told, keys.length);
    const call: ReadingCall = {
      keys,
      pages,
      results: new Array<boolean>(keys.length).fill(false),
      request,
      located,
      signal,
    };
    let elsewhere: readonly number[];
    try {
      elsewhere = await this.#readLocal(call);
    } finally {
      request.end();
    }
    if (elsewhere.length > 0 && !this.#closed) await this.#readElsewhere(call, elsewhere);
    return call.results;
  }

  /**
   * A copy of the page, which is the caller's; null: a miss. One that has been set anew before it could be read, and may have another length, is
   * looked for again, for READ_AGAIN_WITHIN_MS at most.
   */
  async getCopy(key: string, options: CallOptions = {}): Promise<Uint8Array | null> {
    const copy = await this.getCopyWithin(key, { ...options, maxBytes: PAGE_MAX_BYTES });
    return copy === 'too-large' ? null : copy;
  }

  /** The same of a page of at most so many bytes. */
  async getCopyWithin(
    key: string,
    options: CallOptions & { readonly maxBytes: number },
  ): Promise<Uint8Array | 'too-large' | null> {
    this.#checkOpen();
    return this.#copied.get(key, options);
  }

  /** Where this node or the directory has a page; null: neither has it, which counts as a miss. */
  async #locate(key: string, signal: AbortSignal | undefined): Promise<DataLocation | null> {
    const { clock, directory, metrics } = this.#parts;
    const startMs = clock.nowMs();
    const inDirectory = async () => (signal?.aborted ? undefined : unlessAborted(directory.get([key]), signal));
    const location = this.#statements.locationsOf([key])[0] ?? (await inDirectory())?.[0] ?? null;
    if (location !== null && location.length <= PAGE_MAX_BYTES) return location;
    this.#misses++;
    metrics.recordReads('remote', { hits: 0, misses: 1, bytes: 0, seconds: (clock.nowMs() - startMs) / 1000 });
    return null;
  }

  /** Which pages this node or the directory has; after an abort, which this node has. Not a use. */
  async exists(keys: readonly string[], { signal }: Pick<CallOptions, 'signal'> = {}): Promise<boolean[]> {
    this.#checkOpen();
    const onDisk = this.#parts.disk?.hasBatch(keys);
    const here = Array.from(this.#parts.pool.hasBatch(keys), (flag, i) => flag === 1 || onDisk?.[i] === 1);
    const unknown = indicesWhere(here, (present) => !present);
    if (unknown.length === 0 || signal?.aborted) return here;
    const asked = this.#parts.directory.exists(unknown.map((i) => keys[i] as string));
    const found = await unlessAborted(asked, signal);
    unknown.forEach((i, j) => {
      here[i] = found?.[j] === true;
    });
    return here;
  }

  /** Drops what this node published; given prefixes, only what is under keys that begin with one of them. */
  async clear(prefixes?: readonly string[]): Promise<void> {
    this.#checkOpen();
    const { pool, disk, onGone } = this.#parts;
    const isWanted = (key: string): boolean => prefixes?.some((prefix) => key.startsWith(prefix)) !== false;
    const inPool = prefixes === undefined ? pool.clear() : pool.keys().filter(isWanted);
    if (prefixes !== undefined) for (const key of inPool) pool.remove(key);
    onGone?.(inPool);
    const onDisk = (prefixes === undefined ? disk?.clear() : disk?.clearWhere(isWanted)) ?? [];
    // Before anything is waited for: what is set meanwhile must not be taken back with it.
    await Promise.all([this.#statements.retract([...new Set([...inPool, ...onDisk])]), disk?.removalsWritten()]);
  }

  /** Makes every node drop these pages. True: none can read the page any more. */
  async delete(keys: readonly string[]): Promise<boolean[]> {
    this.#checkOpen();
    return this.#parts.deleteEverywhere(keys, this.#parts.versions.next());
  }

  /** Called with the keys of pages that the pool or the disk has just dropped: what is left of them is stated anew. */
  forget(keys: readonly string[]): void {
    this.#parts.disk?.dropped(keys);
    this.#parts.onGone?.(keys);
    this.#statements.restate(keys).catch((error: unknown) => {
      this.#parts.log.log('error', 'the directory could not be told of pages that are gone', { error: String(error) });
    });
  }

  /** Another node has read these pages, for one request of its own. */
  touch(keys: readonly string[], hint: RequestHint = 0): void {
    if (this.#closed) return;
    // The last page of the other node's request is mostly one that it sets next.
    const request = { hint, caller: REPORTS_CALLER, continues: false, endsElsewhere: true };
    this.#parts.onTouched?.(keys);
    this.#parts.pool.touchBatch(keys, request);
    this.#parts.disk?.touchBatch(keys, request);
  }

  /**
   * Calls under way end early, as misses. Resolves when what waits for the disk is written, or its time is over, and nothing touches
   * the pool's memory any more.
   */
  async close(): Promise<void> {
    this.#closed = true;
    this.#statements.close();
    this.#remote.close();
    this.#ownDisk?.close();
    await this.#parts.disk?.close();
    await this.#parts.pool.end();
  }

  #checkOpen(): void {
    if (this.#closed) throw new ClosedError('the store');
  }

  #mayPublish(pagesLeft: number): boolean {
    if (!this.#closed && !this.#isPublishing) countSkippedWrites(this.#parts.metrics, 'draining', pagesLeft);
    return !this.#closed && this.#isPublishing;
  }

  /** Tells the directory; results of pages that no owner takes become false. */
  async #stateSlice({ start }: Slice, { keys, published, origin, results }: PublishedSlice): Promise<void> {
    published.forEach((page, j) => {
      if (page !== null) results[start + j] = true;
    });
    const refused = await this.#statements.stateSet(keys, published, origin);
    keys.forEach((key, j) => {
      if (refused.has(key)) results[start + j] = false;
    });
    countSkippedWrites(this.#parts.metrics, 'directory', refused.size);
  }

  /** Copies what the own pool has; returns the indices of what is to be looked for elsewhere. */
  async #readLocal({ keys, pages, results, request, signal }: ReadingCall): Promise<number[]> {
    const { clock, pool, disk, metrics, verifyReads: isVerified } = this.#parts;
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
      const told = { isVerified, request: request.pool.next() };
      const outcomes = await pool.readPages(sliceKeys, pages.slice(start, end), told);
      // What this call waited for may have been its end.
      if (this.#closed) break;
      const read = disk && sliceKeys.filter((_, j) => outcomes[j] === 'read');
      if (read !== undefined && read.length > 0) disk?.touchBatch(read, request.disk.next());
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
          if (outcome === 'damaged') this.#foundDamaged(keys[i] as string);
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

  /** The pool has dropped the page already. */
  #foundDamaged(key: string): void {
    this.#localChecksumFailures++;
    this.#parts.metrics.count('meshcache_checksum_failures_total', 1, { source: 'local' });
    this.forget([key]);
  }

  async #readElsewhere(call: ReadingCall, wanted: readonly number[]): Promise<void> {
    const { clock, metrics } = this.#parts;
    const { keys, pages, results, signal, located } = call;
    const locationOf = located === undefined ? undefined : () => located;
    const startMs = clock.nowMs();
    const fromDisk: Promise<void>[] = [];
    const onOwn = (own: readonly number[]): void => {
      if (this.#ownDisk !== undefined) fromDisk.push(this.#ownDisk.read(call, own));
    };
    // Whatever may write into the pages has ended before a failure is passed on.
    const remote = await this.#joined
      .read({ keys, pages, wanted, onOwn, locationOf, signal })
      .catch(async (error: unknown) => {
        await Promise.allSettled(fromDisk);
        throw error;
      });
    const { hits, bytes } = this.#takeRemote(call, remote);
    const seconds = (clock.nowMs() - startMs) / 1000;
    await Promise.allSettled(fromDisk);
    await Promise.all(fromDisk);
    // The directory may not know of what is on the disk, and other nodes may not have answered.
    const left = this.#ownDisk === undefined ? [] : wanted.filter((i) => !results[i]);
    if (left.length > 0) await this.#ownDisk?.read(call, left);
    const misses = wanted.reduce((count, i) => count + Number(!results[i]), 0);
    this.#hits.remote += hits;
    this.#misses += misses;
    this.#readBytes += bytes;
    // What the own disk had was not read from other nodes.
    if (hits + misses > 0) metrics.recordReads('remote', { hits, misses, bytes, seconds });
  }

  /** Takes the results of what was read from other nodes, and tells these. */
  #takeRemote(
    { keys, pages, results, request }: ReadingCall,
    { reads, missed }: RemoteOutcome,
  ): { readonly hits: number; readonly bytes: number } {
    const { onRemoteHits, onRemoteFailures } = this.#parts;
    let hits = 0;
    let bytes = 0;
    for (const [nodeId, indices] of indicesByNode(reads)) {
      for (const index of indices) {
        results[index] = true;
        bytes += (pages[index] as CallerPage).length;
      }
      hits += indices.length;
      onRemoteHits(
        nodeId,
        indices.map((index) => keys[index] as string),
        request.hint ?? 0,
      );
    }
    if (missed.length === 0) return { hits, bytes };
    const failedKeys = new KeysByOwner();
    for (const { index, nodeId, isVoid } of [...missed].sort((a, b) => a.index - b.index)) {
      // The node of a void page is to drop it, not to state it again.
      if (isVoid !== true) failedKeys.add(nodeId, keys[index] as string);
    }
    failedKeys.forEach(onRemoteFailures);
    return { hits, bytes };
  }

  /** Throws `InvariantError` unless the pool, what was said of its pages, and what waits for the disk agree. */
  verify(): void {
    this.#parts.pool.verify();
    this.#parts.disk?.verify();
    this.#statements.verify();
    this.#knownLocations.verify();
  }
}

/** What has just been published of a call; `published` is one a key. */
interface PublishedSlice {
  readonly keys: readonly string[];
  readonly published: readonly (PublishedPage | null)[];
  readonly origin: PageOrigin;
  /** Of the whole call. */
  readonly results: boolean[];
}

function indicesWhere<T>(values: readonly T[], test: (value: T) => boolean): number[] {
  const indices: number[] = [];
  values.forEach((value, i) => {
    if (test(value)) indices.push(i);
  });
  return indices;
}
