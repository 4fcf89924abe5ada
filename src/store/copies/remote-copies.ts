import { assertAtMost, assertEqual } from '../../base/assert.js';
import { Mutex } from '../../base/concurrency/mutex.js';
import type { Clock } from '../../base/environment/clock.js';
import type { Logger } from '../../base/environment/log.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import {
  COPIES_POOL_FRACTION,
  COPY_REQUEST_TARGET_BYTES,
  COPY_REQUESTS_MAX_COUNT,
  PAGE_MAX_BYTES,
} from '../../base/limits.js';
import type { DirectoryClient } from '../../directory/client.js';
import { HostRegion } from '../../memory/host-region.js';
import { PageCopies } from '../../memory/page-copies.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PageBytes, PageOrigin, PublishedPool } from '../../pool/published-pool.js';
import { isAsGood } from '../../pool/slots/page-origin.js';
import { type CallerPage, RegionPage } from '../call/caller-page.js';
import { slicesOf } from '../call/page-slices.js';
import type { DiskTier } from '../disk/disk-tier.js';
import type { PageStatements } from '../page-statements.js';
import type { PageStore } from '../page-store.js';
import { RemoteReads, type RemoteReadsParts } from '../remote/remote-reads.js';

/** Why a page of another node is copied. */
export type CopyReason = 'handover' | 'hot' | 'pin';

export type RemoteCopiesParts = Omit<RemoteReadsParts, 'directory'> & {
  readonly directory: Pick<DirectoryClient, 'find' | 'get' | 'discard'>;
  readonly pool: Pick<
    PublishedPool,
    'capacity' | 'hasBatch' | 'fillPages' | 'unconfirmed' | 'unlease' | 'remove' | 'removeOlder'
  >;
  readonly disk?: Pick<DiskTier, 'peekBatch' | 'removeOlder'> | undefined;
  readonly pages: Pick<PageStore, 'forget'> & {
    readonly statements: Pick<PageStatements, 'announcePromoted' | 'isVoid'>;
  };
  /** Whether a client has pinned the page. */
  readonly isPinned: (key: string) => boolean;
  readonly clock: Clock;
  readonly copyThreads: CopyThreads;
  readonly log: Logger;
  readonly metrics: MetricsSink;
};

interface Wanted {
  readonly key: string;
  /** Length in bytes. */
  readonly length: number;
}

/**
 * Copies pages of other nodes into the own pool, where they are announced as this node's own; they are read and checked
 * like any page. A page that the program has set under a key, before or meanwhile, stays: a copy never replaces it.
 *
 * Accounting: `#copies` holds the bytes of every copied page that the pool may still have, the earliest first; together
 * at most COPIES_POOL_FRACTION of the pool. When there is no room, a frequently read page, or one that is to be pinned,
 * replaces the earliest copies that are not pinned, while a page that is handed over is refused; such pages come in the
 * order in which they are wanted. A page that the program sets here is no longer a copy.
 *
 * A copy that no directory owner has accepted is dropped again, because this node would not be told what happens to the
 * page. Until the owners have answered it is not read here: it may have been set anew while it was copied. Copies are not written to the own disk: each is only a second location of its page.
 */
export class RemoteCopies {
  readonly #parts: RemoteCopiesParts;
  readonly #reads: RemoteReads;
  readonly #maxBytes: number;
  readonly #copies = new Map<string, number>();
  #copiedBytes = 0;
  readonly #turns = new Mutex();
  #requests = 0;
  #isClosed = false;

  constructor(parts: RemoteCopiesParts) {
    this.#parts = parts;
    this.#reads = new RemoteReads(parts);
    this.#maxBytes = parts.pool.capacity * COPIES_POOL_FRACTION;
    parts.metrics.setGaugeProvider('meshcache_pool_copied_bytes', () => this.#copiedBytes);
  }

  /** Most bytes of the pool that copies may take. */
  get copiedBytes(): number {
    return this.#copiedBytes;
  }

  /** Records that the program has set pages under these keys: they are not copies any more. */
  set(keys: readonly string[]): void {
    if (this.#copies.size > 0) for (const key of keys) this.#forget(key);
  }

  /** Records that pages, maybe these, have left the pool. */
  gone(keys: readonly string[]): void {
    if (this.#isClosed || this.#copies.size === 0) return;
    const copies = keys.filter((key) => this.#copies.has(key));
    const isHere = this.#parts.pool.hasBatch(copies);
    for (const [i, key] of copies.entries()) if (isHere[i] === 0) this.#forget(key);
  }

  /**
   * Copies pages, from the first on those that `takes` accepts and for which copies have room all together; 1 for each
   * key whose page is in the own pool afterwards. While too many requests wait, all are refused with 0. Never rejects.
   */
  async copy(
    keys: readonly string[],
    reason: CopyReason,
    takes: (key: string, length: number) => boolean = () => true,
  ): Promise<Uint8Array> {
    const refused = new Uint8Array(keys.length);
    if (this.#requests >= COPY_REQUESTS_MAX_COUNT) return refused;
    this.#requests++;
    try {
      return await this.#turns.run(() => this.#copy(keys, reason, takes));
    } catch (error) {
      if (!this.#isClosed) {
        this.#parts.log.log('warn', 'copying pages of another node failed', { error: String(error) });
      }
      return refused;
    } finally {
      this.#requests--;
    }
  }

  /** Ends copies under way early. Resolves when nothing touches the pool any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#reads.close();
    await this.#turns.ended();
  }

  async #copy(
    keys: readonly string[],
    reason: CopyReason,
    takes: (key: string, length: number) => boolean,
  ): Promise<Uint8Array> {
    const { pool, directory, metrics, nodeId } = this.#parts;
    if (this.#isClosed) return new Uint8Array(keys.length);
    const isHere = pool.hasBatch(keys);
    const missing = [...new Set(keys.filter((_, i) => isHere[i] === 0))];
    const locations = await directory.get(missing);
    // The directory may be wrong about lengths: memory is only allocated for lengths that a page can have.
    const lengthMaxBytes = Math.min(this.#maxBytes, PAGE_MAX_BYTES);
    let leftBytes = this.#maxBytes - this.#pinnedBytes();
    const wanted = missing.flatMap((key, i): Wanted[] => {
      const { nodeId: owner = nodeId, length = 0 } = locations[i] ?? {};
      if (owner === nodeId || length === 0 || length > Math.min(lengthMaxBytes, leftBytes)) return [];
      if (!takes(key, length)) return [];
      leftBytes -= length;
      return [{ key, length }];
    });
    const sliceMaxBytes = Math.min(this.#maxBytes, COPY_REQUEST_TARGET_BYTES);
    for (const { start, end } of slicesOf(wanted, { maxBytes: sliceMaxBytes })) {
      if (this.#isClosed) return new Uint8Array(keys.length);
      const batch = wanted.slice(start, end);
      const hasRoom = this.#makeRoom(bytesOf(batch), reason);
      const count = await this.#copyBatch(hasRoom ? batch : this.#fitting(batch));
      if (count > 0) metrics.count('meshcache_copied_pages_total', count, { reason });
    }
    return this.#isClosed ? new Uint8Array(keys.length) : pool.hasBatch(keys);
  }

  /** Bytes of the copies that clients have pinned. */
  #pinnedBytes(): number {
    let bytes = 0;
    for (const [key, length] of this.#copies) if (this.#parts.isPinned(key)) bytes += length;
    return bytes;
  }

  /** The pages of a batch for which there is room, starting with the first. */
  #fitting(batch: readonly Wanted[]): readonly Wanted[] {
    let bytes = this.#copiedBytes;
    return batch.filter(({ length }) => {
      if (bytes + length > this.#maxBytes) return false;
      bytes += length;
      return true;
    });
  }

  /** Copies a batch; returns the number of copied pages. */
  async #copyBatch(batch: readonly Wanted[]): Promise<number> {
    if (batch.length === 0) return 0;
    const { pages, pool } = this.#parts;
    const keys = batch.map(({ key }) => key);
    const region = HostRegion.wrap(new SharedArrayBuffer(bytesOf(batch)));
    try {
      const targets = targetsIn(region, batch);
      const { reads } = await this.#reads.read({ keys, pages: targets, wanted: keys.map((_, i) => i) });
      if (this.#isClosed) return 0;
      const origins = new Map<number, PageOrigin>();
      for (const { indices, rows, columns } of reads) {
        indices.forEach((index, k) => {
          const { version = 0, kind = 'computed', expires = 0 } = columns.locationAt(rows[k] as number) ?? {};
          origins.set(index, { version, kind, isCopy: true, expires });
        });
      }
      const read = [...origins.keys()];
      const isCopied = await this.#publish(
        read.map((i) => keys[i] as string),
        read.map((i) => targets[i] as CallerPage),
        [...origins.values()],
      );
      if (this.#isClosed) return 0;
      await this.#removeOlder(
        keys,
        origins,
        read.filter((_, j) => isCopied[j] === true),
      );
      const copied = read.filter((_, j) => isCopied[j] === true).map((i) => batch[i] as Wanted);
      for (const { key, length } of copied) this.#add(key, length);
      const untaken = new Set(await pages.statements.announcePromoted(copied.map(({ key }) => key)));
      if (untaken.size > 0) this.#dropUntaken(batch, origins, untaken);
      return copied.length - untaken.size;
    } finally {
      pool.unconfirmed.delete(keys);
      region.free();
    }
  }

  #dropUntaken(batch: readonly Wanted[], origins: ReadonlyMap<number, PageOrigin>, untaken: ReadonlySet<string>): void {
    const { pool, pages } = this.#parts;
    const some = [...origins].filter(([i]) => untaken.has((batch[i] as Wanted).key));
    const keys = some.map(([i]) => (batch[i] as Wanted).key);
    const removed = pool.removeOlder(
      keys,
      some.map(([, { version }]) => version + 1),
      { isCopy: true },
    );
    for (const key of removed) this.#forget(key);
    if (removed.length > 0) pages.forget(removed);
  }

  /**
   * Publishes copies; true for each page that is now in the pool. False: it found no room, the program has set it
   * meanwhile, this node was told to drop it since it was read, or it has a newer content of its own on the disk: the
   * copy would hide that from the directory.
   */
  async #publish(
    keys: readonly string[],
    sources: readonly CallerPage[],
    origins: readonly PageOrigin[],
  ): Promise<boolean[]> {
    const { pool, pages } = this.#parts;
    let isVacant: boolean[] = [];
    const lengths = sources.map(({ length }) => length);
    const fill = (targets: readonly (PageBytes | null)[]) => {
      // From here on, a request to drop these pages finds them in the pool.
      const onDisk = this.#parts.disk?.peekBatch(keys);
      const wanted = targets.map((target, i) => {
        const origin = origins[i] as PageOrigin;
        return pages.statements.isVoid(keys[i] as string, origin.version) || isNewer(onDisk?.[i], origin)
          ? null
          : target;
      });
      isVacant = wanted.map((target) => target !== null);
      pool.unconfirmed.add(keys.filter((_, i) => isVacant[i]));
      return copyInto(this.#parts.copyThreads, wanted, sources);
    };
    const leases = await pool.fillPages(keys, lengths, fill, origins);
    pool.unlease(leases.filter((lease) => lease !== null));
    return leases.map((lease, i) => lease !== null && isVacant[i] === true);
  }

  /** Removes older versions of these named pages from the own disk: they must not reappear when the copy has gone. */
  async #removeOlder(
    keys: readonly string[],
    origins: ReadonlyMap<number, PageOrigin>,
    copied: readonly number[],
  ): Promise<void> {
    const named = copied.filter((i) => origins.get(i)?.kind === 'named');
    if (named.length === 0) return;
    await this.#parts.disk?.removeOlder(
      named.map((i) => keys[i] as string),
      named.map((i) => origins.get(i)?.version ?? 0),
    );
  }

  #add(key: string, length: number): void {
    this.#forget(key);
    // The page may have left the pool again already.
    if (this.#parts.pool.hasBatch([key])[0] === 0) return;
    this.#copies.set(key, length);
    this.#copiedBytes += length;
  }

  #forget(key: string): void {
    this.#copiedBytes -= this.#copies.get(key) ?? 0;
    this.#copies.delete(key);
  }

  /** Makes room for a copy; false: no room. */
  #makeRoom(bytes: number, reason: CopyReason): boolean {
    if (this.#copiedBytes + bytes <= this.#maxBytes) return true;
    const { pool, pages, isPinned } = this.#parts;
    if (reason === 'handover') return false;
    const removed: string[] = [];
    for (const key of this.#copies.keys()) {
      if (this.#copiedBytes + bytes <= this.#maxBytes) break;
      if (isPinned(key)) continue;
      this.#forget(key);
      if (pool.remove(key)) removed.push(key);
    }
    if (removed.length > 0) pages.forget(removed);
    return this.#copiedBytes + bytes <= this.#maxBytes;
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    let bytes = 0;
    for (const length of this.#copies.values()) bytes += length;
    assertEqual('remote copies: bytes', this.#copiedBytes, bytes);
    assertAtMost('remote copies: bytes', bytes, this.#maxBytes);
    assertAtMost('remote copies: requests', this.#requests, COPY_REQUESTS_MAX_COUNT);
  }
}

/** Copies each source to its target, if it has one; one checksum for each source, null where there is no target. */
async function copyInto(
  copyThreads: CopyThreads,
  targets: readonly (PageBytes | null)[],
  sources: readonly PageBytes[],
): Promise<(number | null)[]> {
  const copies = new PageCopies();
  const vacant = targets.flatMap((target, i) => (target === null ? [] : [i]));
  let bytes = 0;
  for (const i of vacant) {
    const source = sources[i] as PageBytes;
    copies.add(source.views, (targets[i] as PageBytes).views);
    bytes += source.length;
  }
  const isOffThread = copyThreads.take(vacant.length, bytes);
  const sums = isOffThread ? await copyThreads.copy(copies) : copies.run();
  const results = new Array<number | null>(targets.length).fill(null);
  vacant.forEach((i, j) => {
    results[i] = sums[j] as number;
  });
  return results;
}

/** Whether the own disk has a later content than the one that was copied. */
function isNewer(onDisk: PageOrigin | null | undefined, copied: PageOrigin): boolean {
  return onDisk != null && onDisk.version > copied.version && !isAsGood(onDisk, copied);
}

function targetsIn(region: HostRegion, batch: readonly Wanted[]): CallerPage[] {
  let addr = region.start;
  return batch.map(({ length }) => {
    const page = new RegionPage(region, addr, length);
    addr += length;
    return page;
  });
}

function bytesOf(batch: readonly Wanted[]): number {
  return batch.reduce((sum, { length }) => sum + length, 0);
}
