import type { Clock } from '../base/clock.js';
import { ClosedError } from '../base/errors.js';
import { COPY_SLICE_MAX_BYTES } from '../base/limits.js';
import type { Logger } from '../base/log.js';
import type { DirectoryClient } from '../directory/client.js';
import type { Metrics } from '../metrics/metrics.js';
import type { PublishedPage, PublishedPool } from '../pool/published-pool.js';
import type { LocalRange, ReadOp, Transport } from '../transport/transport.js';
import { DataLocation } from '../types.js';

/** A page in the caller's memory: the pieces in which it lies, in order, as addresses and as bytes. */
export interface CallerPage {
  readonly ranges: readonly LocalRange[];
  readonly views: readonly Uint8Array[];
  /** Bytes in all pieces together. */
  readonly length: number;
}

export interface PageStoreParts {
  readonly pool: PublishedPool;
  readonly directory: Pick<DirectoryClient, 'put' | 'get' | 'find' | 'exists' | 'delete'>;
  readonly transport: Transport;
  /** The data endpoint at which a location's owner is read; undefined when the owner is not alive. */
  readonly endpointOf: (location: DataLocation) => string | undefined;
  /** Told which pages of which owner were read: a one-sided read is not noticed by the owner itself. */
  readonly onRemoteHits: (nodeId: string, keys: string[]) => void;
  /** Told which pages of which owner were said to be there and could not be read. */
  readonly onRemoteFailures: (nodeId: string, keys: string[]) => void;
  readonly identity: { readonly nodeId: string; readonly incarnation: number; readonly dataEndpoint: string };
  readonly verifyReads: boolean;
  readonly quarantineMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
}

export interface PageStoreStats {
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number };
  readonly misses: number;
  readonly readBytes: number;
  readonly pagesWritten: number;
  readonly writtenBytes: number;
  /** Pages whose bytes did not have their checksum when they were read: caught, and counted as misses. */
  readonly checksumFailures: number;
}

/**
 * The tiers behind one interface, by object key: one write and one read.
 *
 * Accounting: every page of the pool is announced in the directory or its key is in `#unannounced`.
 * Buffers of the caller are in use from the call until its promise resolves, not longer.
 */
export class PageStore {
  readonly #parts: PageStoreParts;
  /** Keys in the pool that no directory shard has taken yet; tried again when they are set again or announced. */
  readonly #unannounced = new Set<string>();
  readonly #hits = { local: 0, remote: 0, disk: 0 };
  #misses = 0;
  #readBytes = 0;
  #pagesWritten = 0;
  #writtenBytes = 0;
  #localChecksumFailures = 0;
  #closed = false;

  constructor(parts: PageStoreParts) {
    this.#parts = parts;
  }

  stats(): PageStoreStats {
    return {
      hits: { ...this.#hits },
      misses: this.#misses,
      readBytes: this.#readBytes,
      pagesWritten: this.#pagesWritten,
      writtenBytes: this.#writtenBytes,
      checksumFailures: this.#localChecksumFailures + this.#parts.transport.stats().checksumFailures,
    };
  }

  /** Publishes each page; true when it is in the pool and in the directory. */
  async set(keys: readonly string[], pages: readonly CallerPage[]): Promise<boolean[]> {
    this.#checkOpen();
    const startMs = this.#parts.clock.nowMs();
    const results = new Array<boolean>(keys.length).fill(false);
    const announcements: Promise<void>[] = [];
    for (const slice of slicesOf(pages)) {
      if (slice.start > 0) await this.#parts.clock.yield();
      if (this.#closed) break;
      const sliceKeys = keys.slice(slice.start, slice.end);
      const published = await this.#parts.pool.publishPages(sliceKeys, pages.slice(slice.start, slice.end));
      if (this.#closed) break;
      announcements.push(this.#announceSlice(sliceKeys, published, slice, results));
    }
    await Promise.all(announcements);
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

  /** Reads each page into the caller's memory; what false leaves there is undefined. */
  async get(keys: readonly string[], pages: readonly CallerPage[]): Promise<boolean[]> {
    this.#checkOpen();
    const results = new Array<boolean>(keys.length).fill(false);
    const elsewhere = await this.#readLocal(keys, pages, results);
    if (elsewhere.length > 0 && !this.#closed) await this.#readRemote(keys, pages, elsewhere, results);
    return results;
  }

  /** Length in bytes of each page that the local pool or the directory has; null for the others. */
  async lengths(keys: readonly string[]): Promise<(number | null)[]> {
    this.#checkOpen();
    const lengths: (number | null)[] = this.#parts.pool.peekBatch(keys).map((page) => page?.length ?? null);
    const unknown = indicesWhere(lengths, (length) => length === null);
    if (unknown.length === 0) return lengths;
    const locations = await this.#parts.directory.get(unknown.map((i) => keys[i] as string));
    unknown.forEach((i, j) => {
      lengths[i] = locations[j]?.length ?? null;
    });
    return lengths;
  }

  /** Which pages the local pool or the directory has. Not a use. */
  async exists(keys: readonly string[]): Promise<boolean[]> {
    this.#checkOpen();
    const here = Array.from(this.#parts.pool.hasBatch(keys), (flag) => flag === 1);
    const unknown = indicesWhere(here, (present) => !present);
    if (unknown.length === 0) return here;
    const found = await this.#parts.directory.exists(unknown.map((i) => keys[i] as string));
    unknown.forEach((i, j) => {
      here[i] = found[j] === true;
    });
    return here;
  }

  /** Drops what this node published. */
  async clear(): Promise<void> {
    this.#checkOpen();
    this.#unannounced.clear();
    await this.#parts.directory.delete(this.#parts.pool.clear());
  }

  /** Called by the pool with the keys of pages that it has just dropped. */
  forget(keys: readonly string[]): void {
    for (const key of keys) this.#unannounced.delete(key);
    if (this.#closed) return;
    this.#parts.directory.delete(keys).catch((error: unknown) => {
      this.#parts.log.log('error', 'the directory could not be told of pages that are gone', { error: String(error) });
    });
  }

  /**
   * Other nodes were led to these pages and could not read them: those that are gone are dropped from
   * the directory once more, for that word may have been lost, the others are put there anew.
   */
  async restate(keys: readonly string[]): Promise<void> {
    if (this.#closed) return;
    const gone: string[] = [];
    const entries = new Map<string, DataLocation>();
    this.locationsOf(keys).forEach((location, i) => {
      if (location === null) gone.push(keys[i] as string);
      else entries.set(keys[i] as string, location);
    });
    await Promise.all([this.#parts.directory.delete(gone), this.#announce(entries)]);
  }

  /** The locations to announce for those of `keys` that the pool has now. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[] {
    return this.#parts.pool.peekBatch(keys).map((page) => (page === null ? null : this.#locationOf(page)));
  }

  /** Calls under way end early, as misses. Resolves when nothing touches the pool's memory any more. */
  close(): Promise<void> {
    this.#closed = true;
    return this.#parts.pool.end();
  }

  #checkOpen(): void {
    if (this.#closed) throw new ClosedError('the store');
  }

  #locationOf(page: PublishedPage): DataLocation {
    const { pool, identity } = this.#parts;
    return new DataLocation({
      nodeId: identity.nodeId,
      incarnation: identity.incarnation,
      rdmaEndpoint: identity.dataEndpoint,
      remoteAddr: pool.baseAddr + BigInt(page.offset),
      rkey: pool.rkey,
      length: page.length,
      checksum: page.checksum,
    });
  }

  /** Results of pages that no directory owner takes become false. */
  async #announceSlice(
    sliceKeys: readonly string[],
    published: readonly (PublishedPage | null)[],
    { start }: Slice,
    results: boolean[],
  ): Promise<void> {
    const entries = new Map<string, DataLocation>();
    published.forEach((page, j) => {
      const key = sliceKeys[j] as string;
      if (page === null) return;
      results[start + j] = true;
      if (!page.alreadyPresent || this.#unannounced.has(key)) entries.set(key, this.#locationOf(page));
    });
    if (entries.size === 0) return;
    const refused = await this.#announce(entries);
    sliceKeys.forEach((key, j) => {
      if (refused.has(key)) results[start + j] = false;
    });
  }

  /** Puts locations into the directory; returns the keys that no owner has taken. */
  async #announce(entries: ReadonlyMap<string, DataLocation>): Promise<Set<string>> {
    const { directory, pool } = this.#parts;
    const keys = [...entries.keys()];
    for (const key of keys) this.#unannounced.add(key);
    const taken = await directory.put(entries);
    if (this.#closed) return new Set();
    const refused = new Set<string>();
    const isHere = pool.hasBatch(keys);
    const gone: string[] = [];
    keys.forEach((key, i) => {
      if (taken[i] !== true) refused.add(key);
      if (taken[i] === true || isHere[i] === 0) this.#unannounced.delete(key);
      if (isHere[i] === 0) gone.push(key);
    });
    // Their deletes may have overtaken the put.
    if (gone.length > 0) await directory.delete(gone);
    return refused;
  }

  /** Copies what the own pool has; returns the indices of what is to be looked for elsewhere. */
  async #readLocal(keys: readonly string[], pages: readonly CallerPage[], results: boolean[]): Promise<number[]> {
    const { clock, pool, metrics, verifyReads: isVerified } = this.#parts;
    const startMs = clock.nowMs();
    const elsewhere: number[] = [];
    let hits = 0;
    let misses = 0;
    let bytes = 0;
    for (const { start, end } of slicesOf(pages)) {
      if (start > 0) await clock.yield();
      if (this.#closed) break;
      const outcomes = await pool.readPages(keys.slice(start, end), pages.slice(start, end), { isVerified });
      // What this call waited for may have been its end.
      if (this.#closed) break;
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

  async #readRemote(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    results: boolean[],
  ): Promise<void> {
    const { clock, directory, metrics, onRemoteHits, onRemoteFailures } = this.#parts;
    const startMs = clock.nowMs();
    const reads: Promise<RemoteRead[]>[] = [];
    await directory.find(
      wanted.map((i) => keys[i] as string),
      (found) => reads.push(this.#readFound(found, wanted, pages)),
    );
    const done = (await Promise.all(reads)).flat();
    const elapsedMs = clock.nowMs() - startMs;
    const inTime = this.#isWithinQuarantine(elapsedMs);
    const readKeys = new KeysByOwner();
    const failedKeys = new KeysByOwner();
    let hits = 0;
    let bytes = 0;
    for (const { index, nodeId, isRead } of done) {
      const isHit = isRead && inTime;
      (isHit ? readKeys : failedKeys).add(nodeId, keys[index] as string);
      if (!isHit) continue;
      results[index] = true;
      hits++;
      bytes += (pages[index] as CallerPage).length;
    }
    readKeys.forEach(onRemoteHits);
    failedKeys.forEach(onRemoteFailures);
    const misses = wanted.length - hits;
    this.#hits.remote += hits;
    this.#misses += misses;
    this.#readBytes += bytes;
    metrics.recordReads('remote', { hits, misses, bytes, seconds: elapsedMs / 1000 });
  }

  /** Reads the pages that one owner of the directory has found, while others are still being asked. */
  async #readFound(
    found: readonly (readonly [wantedIndex: number, location: DataLocation])[],
    wanted: readonly number[],
    pages: readonly CallerPage[],
  ): Promise<RemoteRead[]> {
    const ops: ReadOp[] = [];
    const targets: { readonly index: number; readonly nodeId: string }[] = [];
    for (const [j, location] of found) {
      const index = wanted[j] as number;
      const op = this.#readOp(location, pages[index] as CallerPage);
      if (op === null) continue;
      ops.push(op);
      targets.push({ index, nodeId: location.nodeId });
    }
    if (ops.length === 0 || this.#closed) return [];
    const read = await this.#parts.transport.batchRead(ops).catch((error: unknown): boolean[] => {
      // The caller's memory was freed under way; other reads of the call go on and are to be waited for.
      this.#parts.log.log('warn', 'pages could not be read', { error: String(error) });
      return [];
    });
    return targets.map((target, k) => ({ ...target, isRead: read[k] === true }));
  }

  #readOp(location: DataLocation, page: CallerPage): ReadOp | null {
    const { identity, verifyReads, endpointOf } = this.#parts;
    if (location.length !== page.length || location.tier !== 'memory') return null;
    if (location.nodeId === identity.nodeId) return null;
    const remoteEndpoint = endpointOf(location);
    const [first] = page.ranges;
    if (remoteEndpoint === undefined || first === undefined) return null;
    return {
      remoteEndpoint,
      localAddr: first.addr,
      remoteAddr: location.remoteAddr,
      rkey: location.rkey,
      length: location.length,
      ...(page.ranges.length > 1 ? { scatter: page.ranges } : {}),
      ...(verifyReads ? { checksum: location.checksum } : {}),
    };
  }

  /** Without checksums the quarantine is the guarantee: what took more than half of it is a miss. */
  #isWithinQuarantine(elapsedMs: number): boolean {
    const { verifyReads, quarantineMs } = this.#parts;
    return verifyReads || quarantineMs === 0 || elapsedMs <= quarantineMs / 2;
  }
}

class KeysByOwner {
  readonly #keys = new Map<string, string[]>();

  add(nodeId: string, key: string): void {
    const keys = this.#keys.get(nodeId);
    if (keys === undefined) this.#keys.set(nodeId, [key]);
    else keys.push(key);
  }

  forEach(use: (nodeId: string, keys: string[]) => void): void {
    for (const [nodeId, keys] of this.#keys) use(nodeId, keys);
  }
}

/** What became of one page that was found on another node. */
interface RemoteRead {
  readonly index: number;
  readonly nodeId: string;
  readonly isRead: boolean;
}

interface Slice {
  readonly start: number;
  readonly end: number;
}

/** Runs of pages of at most COPY_SLICE_MAX_BYTES together; a larger page is a run of its own. */
function* slicesOf(pages: readonly CallerPage[]): Generator<Slice> {
  let start = 0;
  let bytes = 0;
  for (let end = 0; end < pages.length; end++) {
    const length = (pages[end] as CallerPage).length;
    if (end > start && bytes + length > COPY_SLICE_MAX_BYTES) {
      yield { start, end };
      start = end;
      bytes = 0;
    }
    bytes += length;
  }
  if (start < pages.length) yield { start, end: pages.length };
}

function indicesWhere<T>(values: readonly T[], test: (value: T) => boolean): number[] {
  const indices: number[] = [];
  values.forEach((value, i) => {
    if (test(value)) indices.push(i);
  });
  return indices;
}
