import type { Clock } from '../base/clock.js';
import { ClosedError } from '../base/errors.js';
import type { HybridClock } from '../base/hybrid-clock.js';
import { DROPPED_KEYS_MAX_COUNT, PAGE_MAX_BYTES, SET_ATTEMPTS_MAX_COUNT } from '../base/limits.js';
import type { Logger } from '../base/log.js';
import type { DirectoryClient } from '../directory/client.js';
import { Removals } from '../directory/removals.js';
import { Taken } from '../directory/taken.js';
import type { Metrics } from '../metrics/metrics.js';
import { reportPool } from '../pool/pool-metrics.js';
import type { PageOrigin, PublishedPage, PublishedPool } from '../pool/published-pool.js';
import type { LocalRange, Transport } from '../transport/transport.js';
import { DataLocation, type EntryKind } from '../types.js';
import type { DiskTier } from './disk-tier.js';
import { type Slice, slicesOf } from './page-slices.js';
import { type Publishing, publishSlices } from './publishing.js';
import { type Promotions, type RemoteRead, RemoteReads } from './remote-reads.js';
import { countNotPublished, countSkippedWrites } from './skipped-writes.js';

/** A page in the caller's memory: the pieces in which it lies, in order, as addresses and as bytes. */
export interface CallerPage {
  readonly ranges: readonly LocalRange[];
  readonly views: readonly Uint8Array[];
  /** Bytes in all pieces together. */
  readonly length: number;
}

export interface PageStoreParts {
  readonly pool: PublishedPool;
  /** What the pool lets go of is found there. */
  readonly disk?: DiskTier | undefined;
  /** Asks other nodes for what is on their disks. */
  readonly promotions: Promotions;
  readonly directory: Pick<DirectoryClient, 'state' | 'get' | 'find' | 'exists' | 'delete' | 'discard'>;
  /** What is set gets its versions from here. */
  readonly versions: HybridClock;
  /** Makes every node drop these pages where they are older than the version; true where all have. */
  readonly deleteEverywhere: (keys: readonly string[], version: number) => Promise<boolean[]>;
  /** Computed pages are kept here although another node has them. */
  readonly keepsDuplicates: boolean;
  readonly transport: Transport;
  /** The data endpoint at which a location's owner is read; undefined when the owner is not alive. */
  readonly endpointOf: (location: DataLocation) => string | undefined;
  /** Told which pages of which owner were read: a one-sided read is not noticed by the owner itself. */
  readonly onRemoteHits: (nodeId: string, keys: string[]) => void;
  /** Told which pages of which owner were said to be there and could not be read. */
  readonly onRemoteFailures: (nodeId: string, keys: string[]) => void;
  /** Told which pages of this node others say to have read. */
  readonly onTouched?: (keys: readonly string[]) => void;
  /** Told under which keys pages have been set here. */
  readonly onSet?: (keys: readonly string[]) => void;
  /** Told which pages may have left the pool. */
  readonly onGone?: (keys: readonly string[]) => void;
  readonly identity: { readonly nodeId: string; readonly incarnation: number; readonly dataEndpoint: string };
  readonly verifyReads: boolean;
  readonly quarantineMs: number;
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
}

/**
 * The tiers behind one interface, by object key: one write and one read.
 *
 * Of each page the directory has one location of this node: in the pool, if it is there, else on the disk.
 * Accounting: every page of the pool is announced in the directory or its key is in `#unannounced`.
 * Buffers of the caller are in use from the call until its promise resolves, not longer.
 */
export class PageStore {
  readonly #parts: PageStoreParts;
  readonly #remote: RemoteReads;
  #isPublishing = true;
  /** Keys in the pool that no directory shard has taken yet; tried again when they are set again or announced. */
  readonly #unannounced = new Set<string>();
  /** Pages that this node was told to drop: a copy that was on its way must not come back. */
  readonly #dropped = new Removals(DROPPED_KEYS_MAX_COUNT);
  readonly #hits = { local: 0, remote: 0, disk: 0 };
  #misses = 0;
  #readBytes = 0;
  #pagesWritten = 0;
  #writtenBytes = 0;
  #localChecksumFailures = 0;
  #closed = false;

  constructor(parts: PageStoreParts) {
    this.#parts = parts;
    this.#remote = new RemoteReads({ ...parts, nodeId: parts.identity.nodeId });
    reportPool(parts.pool, parts.metrics, { damagedPages: () => this.#localChecksumFailures });
  }

  stats(): PageStoreStats {
    return {
      hits: { ...this.#hits },
      misses: this.#misses,
      readBytes: this.#readBytes,
      pagesWritten: this.#pagesWritten,
      writtenBytes: this.#writtenBytes,
      checksumFailures: this.#localChecksumFailures + this.#parts.transport.stats().checksumFailures,
      staleReads: this.#parts.transport.stats().staleOps,
    };
  }

  /**
   * Publishes each page; true when it is in the pool and in the directory. Of a named entry it is the newest content then, anywhere. A
   * computed one that another node has is true, too, and not kept here.
   */
  async set(keys: readonly string[], pages: readonly CallerPage[], kind: EntryKind): Promise<boolean[]> {
    this.#checkOpen();
    const startMs = this.#parts.clock.nowMs();
    const origin: PageOrigin = { version: this.#parts.versions.next(), kind, isCopy: false };
    const results = new Array<boolean>(keys.length).fill(false);
    const announcements: Promise<void>[] = [];
    const publishing: Publishing = {
      keys,
      pages,
      origin,
      mayGoOn: (pagesLeft) => this.#mayPublish(pagesLeft),
      onPublished: (slice, published) => {
        if (this.#closed) return;
        const sliceKeys = keys.slice(slice.start, slice.end);
        countNotPublished(pages.slice(slice.start, slice.end), published, this.#parts);
        this.#parts.onSet?.(sliceKeys);
        const outdated = this.#parts.disk?.writeThrough(sliceKeys, published);
        if (outdated !== undefined) announcements.push(outdated);
        announcements.push(this.#announceSlice(sliceKeys, published, slice, { origin, results }));
      },
    };
    await (this.#parts.disk?.publish(publishing) ?? publishSlices(publishing, this.#parts));
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

  /** From now on every `set` is false; what is here is read as before. */
  stopPublishing(): void {
    this.#isPublishing = false;
    this.#parts.disk?.endWaits();
  }

  /** Reads each page into the caller's memory; what false leaves there is undefined. */
  async get(keys: readonly string[], pages: readonly CallerPage[]): Promise<boolean[]> {
    this.#checkOpen();
    const results = new Array<boolean>(keys.length).fill(false);
    const elsewhere = await this.#readLocal(keys, pages, results);
    if (elsewhere.length > 0 && !this.#closed) await this.#readElsewhere(keys, pages, elsewhere, results);
    return results;
  }

  /** Length in bytes of a page that this node or the directory has; null: neither has it, which counts as a miss. */
  async lengthOf(key: string): Promise<number | null> {
    this.#checkOpen();
    const { clock, directory, metrics } = this.#parts;
    const startMs = clock.nowMs();
    const location = this.locationsOf([key])[0] ?? (await directory.get([key]))[0] ?? null;
    if (location !== null && location.length <= PAGE_MAX_BYTES) return location.length;
    this.#misses++;
    metrics.recordReads('remote', { hits: 0, misses: 1, bytes: 0, seconds: (clock.nowMs() - startMs) / 1000 });
    return null;
  }

  /** Which pages this node or the directory has. Not a use. */
  async exists(keys: readonly string[]): Promise<boolean[]> {
    this.#checkOpen();
    const onDisk = this.#parts.disk?.hasBatch(keys);
    const here = Array.from(this.#parts.pool.hasBatch(keys), (flag, i) => flag === 1 || onDisk?.[i] === 1);
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
    const { pool, disk, directory } = this.#parts;
    const inPool = pool.clear();
    this.#parts.onGone?.(inPool);
    const onDisk = disk?.clear();
    await directory.delete(inPool, undefined, { withCopies: true });
    await directory.delete((await onDisk) ?? [], undefined, { withCopies: true });
  }

  /** Makes every node drop these pages. True: none can read the page any more. */
  async delete(keys: readonly string[]): Promise<boolean[]> {
    this.#checkOpen();
    return this.#parts.deleteEverywhere(keys, this.#parts.versions.next());
  }

  /**
   * Drops what is older than the version given for its key, with `isCopy` only copies of other nodes' pages. Resolves when a crash cannot bring
   * it back.
   */
  async drop(keys: readonly string[], voidBelow: readonly number[], { isCopy = false } = {}): Promise<void> {
    if (this.#closed) return;
    const { pool, disk, versions } = this.#parts;
    keys.forEach((key, i) => {
      versions.see(voidBelow[i] as number);
      this.#dropped.note(key, voidBelow[i] as number);
    });
    const gone = pool.removeOlder(keys, voidBelow, { isCopy });
    for (const key of gone) this.#unannounced.delete(key);
    this.#parts.onGone?.(gone);
    this.#parts.metrics.count('meshcache_dropped_pages_total', gone.length);
    if (!isCopy) await disk?.removeOlder(keys, voidBelow);
  }

  /** Whether this node was told that a page of that version is void. */
  isVoid(key: string, version: number): boolean {
    return version < this.#dropped.versionOf(key);
  }

  /** Called with the keys of pages that the pool or the disk has just dropped: what is left of them is stated anew. */
  forget(keys: readonly string[]): void {
    for (const key of keys) this.#unannounced.delete(key);
    this.#parts.disk?.dropped(keys);
    this.#parts.onGone?.(keys);
    this.restate(keys).catch((error: unknown) => {
      this.#parts.log.log('error', 'the directory could not be told of pages that are gone', { error: String(error) });
    });
  }

  /** Other nodes have read these pages. */
  touch(keys: readonly string[]): void {
    if (this.#closed) return;
    this.#parts.onTouched?.(keys);
    this.#parts.pool.touchBatch(keys);
    this.#parts.disk?.touchBatch(keys);
  }

  get isEmpty(): boolean {
    const { pool, disk } = this.#parts;
    return pool.size === 0 && (disk === undefined || disk.info().entries === 0);
  }

  /** Keys of everything that this node has, some at a time; what comes or goes meanwhile may be left out. */
  *keysInSlices(): Generator<readonly string[], void> {
    const { pool, disk } = this.#parts;
    if (this.#closed) return;
    yield pool.keys();
    for (const keys of disk?.keysInSlices() ?? []) {
      if (this.#closed) return;
      const inPool = pool.hasBatch(keys);
      yield keys.filter((_, i) => inPool[i] === 0);
    }
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
    await Promise.all([this.#parts.directory.delete(gone), this.#announceAgain(entries)]);
  }

  /** The locations to announce for those of `keys` that this node has now. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[] {
    const inPool = this.poolLocationsOf(keys);
    const onDisk = this.#parts.disk?.peekBatch(keys);
    return inPool.map((location, i) => {
      const written = onDisk?.[i] ?? null;
      return location ?? (written === null ? null : this.#diskLocationOf(written));
    });
  }

  /** Puts pages of the pool into the directory that were brought there from the disk. */
  async announcePromoted(keys: readonly string[]): Promise<void> {
    if (this.#closed) return;
    const entries = new Map<string, DataLocation>();
    this.poolLocationsOf(keys).forEach((location, i) => {
      if (location !== null) entries.set(keys[i] as string, location);
    });
    if (entries.size > 0) await this.#announceAgain(entries);
  }

  /** The locations of those of `keys` that the pool has now. */
  poolLocationsOf(keys: readonly string[]): (DataLocation | null)[] {
    return this.#parts.pool.peekBatch(keys).map((page) => (page === null ? null : this.#locationOf(page)));
  }

  /**
   * Calls under way end early, as misses. Resolves when what waits for the disk is written, or its time is over, and nothing touches
   * the pool's memory any more.
   */
  async close(): Promise<void> {
    this.#closed = true;
    this.#remote.close();
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
      ...originOf(page),
      ...pool.stampOf(page),
    });
  }

  #diskLocationOf(page: PublishedPage): DataLocation {
    const { length, checksum } = page;
    const { nodeId, incarnation, dataEndpoint: rdmaEndpoint } = this.#parts.identity;
    return new DataLocation({
      nodeId,
      incarnation,
      rdmaEndpoint,
      remoteAddr: 0n,
      rkey: 0,
      length,
      checksum,
      ...originOf(page),
      tier: 'disk',
    });
  }

  /** Results of pages that no directory owner takes become false. */
  async #announceSlice(
    sliceKeys: readonly string[],
    published: readonly (PublishedPage | null)[],
    { start }: Slice,
    { origin, results }: { readonly origin: PageOrigin; readonly results: boolean[] },
  ): Promise<void> {
    const entries = new Map<string, DataLocation>();
    published.forEach((page, j) => {
      const key = sliceKeys[j] as string;
      if (page === null) return;
      results[start + j] = true;
      const isStated = page.alreadyPresent && !this.#unannounced.has(key) && !page.isCopy;
      const { version, kind } = page.alreadyPresent && origin.kind === 'computed' ? page : origin;
      // A named entry is the newest from now on, even if its bytes are the same: another node may have set others meanwhile.
      if (!isStated || kind === 'named') entries.set(key, this.#locationOf({ ...page, version, kind, isCopy: false }));
    });
    if (entries.size === 0) return;
    const refused = await this.#announceSet(entries, origin);
    sliceKeys.forEach((key, j) => {
      if (refused.has(key)) results[start + j] = false;
    });
    countSkippedWrites(this.#parts.metrics, 'directory', refused.size);
  }

  /** Announces what has just been set, anew as long as owners know of something newer; returns the keys that are refused. */
  async #announceSet(entries: ReadonlyMap<string, DataLocation>, origin: PageOrigin): Promise<Set<string>> {
    const { pool, versions, keepsDuplicates } = this.#parts;
    const unlessHeld = origin.kind === 'computed' && !keepsDuplicates;
    const refused = new Set<string>();
    let { version } = origin;
    for (let left = entries, attempt = 1; ; attempt++) {
      const announced = await this.#announce(left, { unlessHeld });
      for (const key of announced.refused) refused.add(key);
      await this.#dropHeld(announced.held, left);
      const { outdated } = announced;
      if (outdated.length === 0 || this.#closed) return refused;
      const next = versions.next();
      const renewed = attempt < SET_ATTEMPTS_MAX_COUNT ? pool.renew(outdated, version, next) : [];
      const newest = pool.peekBatch(outdated);
      outdated.forEach((key, i) => {
        // What a later call has set here meanwhile has taken the page's place in the order of things.
        if (!renewed.includes(key) && (newest[i]?.version ?? 0) <= version) refused.add(key);
      });
      version = next;
      const locations = this.poolLocationsOf(renewed);
      left = new Map(renewed.flatMap((key, i) => (locations[i] ? [[key, locations[i] as DataLocation] as const] : [])));
      if (left.size === 0) return refused;
    }
  }

  /** Another node has these, and they do as well. */
  async #dropHeld(keys: readonly string[], entries: ReadonlyMap<string, DataLocation>): Promise<void> {
    if (keys.length === 0 || this.#closed) return;
    const { pool, disk, metrics } = this.#parts;
    const voidBelow = keys.map((key) => (entries.get(key)?.version ?? 0) + 1);
    this.#parts.onGone?.(pool.removeOlder(keys, voidBelow));
    metrics.count('meshcache_duplicate_pages_total', keys.length);
    await disk?.removeOlder(keys, voidBelow);
  }

  /** Announces pages that have been here; what is older than what the cluster has, or had, is dropped. */
  async #announceAgain(entries: ReadonlyMap<string, DataLocation>): Promise<void> {
    const { outdated } = await this.#announce(entries);
    if (outdated.length === 0) return;
    await this.drop(
      outdated,
      outdated.map((key) => (entries.get(key)?.version ?? 0) + 1),
    );
  }

  /** Puts locations into the directory. */
  async #announce(entries: ReadonlyMap<string, DataLocation>, { unlessHeld = false } = {}): Promise<Announced> {
    const { directory } = this.#parts;
    const announced: Announced = { refused: [], outdated: [], held: [] };
    const keys = [...entries.keys()];
    for (const key of keys) this.#unannounced.add(key);
    const taken = await directory.state(keys, [...entries.values()], { unlessHeld });
    if (this.#closed) return announced;
    const now = this.locationsOf(keys);
    const gone: string[] = [];
    keys.forEach((key, i) => {
      if (taken[i] === Taken.refused) announced.refused.push(key);
      else if (taken[i] === Taken.outdated) announced.outdated.push(key);
      else if (taken[i] === Taken.held) announced.held.push(key);
      if (taken[i] !== Taken.refused || now[i]?.tier !== 'memory') this.#unannounced.delete(key);
      if (now[i] === null) gone.push(key);
    });
    // Their deletes may have overtaken the put.
    if (gone.length > 0) await directory.delete(gone);
    return announced;
  }

  /** Copies what the own pool has; returns the indices of what is to be looked for elsewhere. */
  async #readLocal(keys: readonly string[], pages: readonly CallerPage[], results: boolean[]): Promise<number[]> {
    const { clock, pool, disk, metrics, verifyReads: isVerified } = this.#parts;
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
      disk?.touchBatch(keys.slice(start, end).filter((_, j) => outcomes[j] === 'read'));
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

  async #readElsewhere(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    results: boolean[],
  ): Promise<void> {
    const { clock, disk, metrics } = this.#parts;
    const startMs = clock.nowMs();
    const fromDisk: Promise<void>[] = [];
    const remote = await this.#remote.read(keys, pages, wanted, (own) => {
      fromDisk.push(this.#readDisk(keys, pages, own, results));
    });
    const { hits, bytes } = this.#takeRemote(keys, pages, remote, results);
    const seconds = (clock.nowMs() - startMs) / 1000;
    await Promise.all(fromDisk);
    // The directory may not know of what is on the disk, and other nodes may not have answered.
    const left = wanted.filter((i) => !results[i]);
    if (disk !== undefined && left.length > 0) await this.#readDisk(keys, pages, left, results);
    const misses = wanted.reduce((count, i) => count + Number(!results[i]), 0);
    this.#hits.remote += hits;
    this.#misses += misses;
    this.#readBytes += bytes;
    // What the own disk had was not read from other nodes.
    if (hits + misses > 0) metrics.recordReads('remote', { hits, misses, bytes, seconds });
  }

  /** Takes the results of what was read from other nodes, and tells these. */
  #takeRemote(
    keys: readonly string[],
    pages: readonly CallerPage[],
    remote: readonly RemoteRead[],
    results: boolean[],
  ): { readonly hits: number; readonly bytes: number } {
    const readKeys = new KeysByOwner();
    const failedKeys = new KeysByOwner();
    let hits = 0;
    let bytes = 0;
    for (const { index, nodeId, isRead } of remote) {
      (isRead ? readKeys : failedKeys).add(nodeId, keys[index] as string);
      if (!isRead) continue;
      results[index] = true;
      hits++;
      bytes += (pages[index] as CallerPage).length;
    }
    readKeys.forEach(this.#parts.onRemoteHits);
    failedKeys.forEach(this.#parts.onRemoteFailures);
    return { hits, bytes };
  }

  /** Reads those pages of a call that the own disk has. */
  async #readDisk(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    results: boolean[],
  ): Promise<void> {
    const { disk, clock, metrics } = this.#parts;
    if (disk === undefined || this.#closed) return;
    const startMs = clock.nowMs();
    const isHere = disk.hasBatch(wanted.map((i) => keys[i] as string));
    const here = wanted.filter((_, j) => isHere[j] === 1);
    if (here.length === 0) return;
    const outcomes = await disk.readPages(
      here.map((i) => keys[i] as string),
      here.map((i) => pages[i] as CallerPage),
    );
    let hits = 0;
    let bytes = 0;
    outcomes.forEach((outcome, j) => {
      const i = here[j] as number;
      if (outcome === 'damaged') metrics.count('meshcache_checksum_failures_total', 1, { source: 'disk' });
      if (outcome !== 'read') return;
      results[i] = true;
      hits++;
      bytes += (pages[i] as CallerPage).length;
    });
    this.#hits.disk += hits;
    this.#readBytes += bytes;
    metrics.recordReads('disk', { hits, misses: 0, bytes, seconds: (clock.nowMs() - startMs) / 1000 });
  }
}

/** Keys by what became of their announcement; those not named are in the directory. */
interface Announced {
  /** No owner has taken it. */
  readonly refused: string[];
  /** An owner knows of something newer. */
  readonly outdated: string[];
  /** Another node has it. */
  readonly held: string[];
}

function originOf({ version, kind, isCopy }: PageOrigin): PageOrigin {
  return { version, kind, isCopy };
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

function indicesWhere<T>(values: readonly T[], test: (value: T) => boolean): number[] {
  const indices: number[] = [];
  values.forEach((value, i) => {
    if (test(value)) indices.push(i);
  });
  return indices;
}
