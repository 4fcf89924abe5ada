import { originOf } from '../../directory/shard/removals.js';
import { HostRegion } from '../../memory/host-region.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PageBytes, PageOrigin } from '../../pool/published-pool.js';
import { isAsGood } from '../../pool/slots/page-origin.js';
import type { DataLocation } from '../../types.js';
import { type CallerPage, copyInto, RegionPage } from '../call/caller-page.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';
import { RemoteReads } from '../remote/remote-reads.js';

/** A page to copy. */
export interface WantedPage {
  readonly key: string;
  /** Length in bytes. */
  readonly length: number;
  /** Where the page is looked for first; default: where the directory says. */
  readonly location?: DataLocation;
}

/** How a batch is copied. */
export interface CopyOptions {
  /** Called with the pages that are now in the pool, before directory owners are told. */
  readonly onCopied?: (pages: readonly WantedPage[]) => void;
}

/**
 * Copies pages of other nodes into the pool and announces them; they are read and checked like any page. A copy never
 * replaces a page that the program has set under its key, before or meanwhile.
 *
 * A copy that no directory owner has accepted is dropped again, because this node would not hear what happens to the
 * page. A copy is not readable here until the owners have answered: the page may have been set again while it was
 * copied.
 */
export class PageCopier {
  readonly #ground: StoreGround;
  readonly #statements: PageStatements;
  readonly #copyThreads: CopyThreads;
  readonly #reads: RemoteReads;
  #isClosed = false;

  constructor(ground: StoreGround, statements: PageStatements, copyThreads: CopyThreads) {
    this.#ground = ground;
    this.#statements = statements;
    this.#copyThreads = copyThreads;
    this.#reads = new RemoteReads(ground);
  }

  /** Ends copies in progress early. */
  close(): void {
    this.#isClosed = true;
    this.#reads.close();
  }

  /**
   * Copies a batch, whose keys must be distinct; returns the number of copied pages that the directory has accepted.
   * The batch is in memory twice meanwhile.
   */
  async copy(batch: readonly WantedPage[], options: CopyOptions = {}): Promise<number> {
    if (batch.length === 0 || this.#isClosed) return 0;
    const { onCopied } = options;
    const keys = batch.map(({ key }) => key);
    const region = HostRegion.wrap(new SharedArrayBuffer(bytesOf(batch)));
    const origins = new Map<number, PageOrigin>();
    try {
      const targets = targetsIn(region, batch);
      const wanted = keys.map((_, i) => i);
      const locationOf = (i: number) => batch[i]?.location;
      const { reads } = await this.#reads.read({ keys, pages: targets, wanted, locationOf });
      if (this.#isClosed) return 0;
      for (const { indices, rows, columns } of reads) {
        indices.forEach((index, k) => {
          const location = columns.locationAt(rows[k] as number);
          if (location !== null) origins.set(index, originOfCopy(location));
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
      const copied = read.filter((_, j) => isCopied[j] === true).map((i) => batch[i] as WantedPage);
      onCopied?.(copied);
      const untaken = new Set(await this.#statements.announcePromoted(copied.map(({ key }) => key)));
      if (untaken.size > 0) this.#dropUntaken(batch, origins, untaken);
      return copied.length - untaken.size;
    } catch (error) {
      // No owner has accepted the copies, so nobody may read them.
      if (!this.#isClosed) this.#dropUntaken(batch, origins, new Set(keys));
      throw error;
    } finally {
      region.free();
    }
  }

  /** Drops copies that no directory owner has accepted. */
  #dropUntaken(
    batch: readonly WantedPage[],
    origins: ReadonlyMap<number, PageOrigin>,
    untaken: ReadonlySet<string>,
  ): void {
    const { pool, feed } = this.#ground;
    const some = [...origins].filter(([i]) => untaken.has((batch[i] as WantedPage).key));
    const keys = some.map(([i]) => (batch[i] as WantedPage).key);
    const removed = pool.removeOlder(
      keys,
      some.map(([, { version }]) => version + 1),
      'copies',
    );
    if (removed.length > 0) feed.evicted(removed);
  }

  /**
   * Publishes copies; true for each page that is now in the pool. False: it found no room, the program has set it
   * meanwhile, this node was told to drop it since it was read, or this node's disk has newer content of its own, which
   * the copy would hide from the directory.
   */
  async #publish(
    keys: readonly string[],
    sources: readonly CallerPage[],
    origins: readonly PageOrigin[],
  ): Promise<boolean[]> {
    const { pool } = this.#ground;
    let isVacant: boolean[] = [];
    const lengths = sources.map(({ length }) => length);
    const fill = (targets: readonly (PageBytes | null)[]) => {
      // From here on, a request to drop these pages finds them in the pool.
      const onDisk = this.#ground.disk?.peekBatch(keys);
      const wanted = targets.map((target, i) => {
        const origin = origins[i] as PageOrigin;
        return this.#statements.isVoid(keys[i] as string, origin.version, origin.setBy) || isNewer(onDisk?.[i], origin)
          ? null
          : target;
      });
      isVacant = wanted.map((target) => target !== null);
      return copyInto(this.#copyThreads, wanted, sources);
    };
    const leases = await pool.fillPages(keys, lengths, fill, { origins, state: 'unconfirmed' });
    pool.unlease(leases.filter((lease) => lease !== null));
    return leases.map((lease, i) => lease !== null && isVacant[i] === true);
  }

  /**
   * Removes older versions of these named pages from this node's disk: they must not reappear when the copy is gone.
   */
  async #removeOlder(
    keys: readonly string[],
    origins: ReadonlyMap<number, PageOrigin>,
    copied: readonly number[],
  ): Promise<void> {
    const named = copied.filter((i) => origins.get(i)?.kind === 'named');
    if (named.length === 0) return;
    await this.#ground.disk?.removeOlder(
      named.map((i) => keys[i] as string),
      named.map((i) => origins.get(i)?.version ?? 0),
    );
  }
}

/**
 * Origin of a copy: version, kind and expiry of the page, and the node that set it. That is the node read from, or, if
 * it had a copy itself, the origin of that copy.
 */
function originOfCopy({ nodeId, version, kind, expires, setBy }: DataLocation): PageOrigin {
  return { version, kind, expires, setBy: setBy || originOf(nodeId) };
}

/** Whether this node's disk has later content than the copied page. */
function isNewer(onDisk: PageOrigin | null | undefined, copied: PageOrigin): boolean {
  return onDisk != null && onDisk.version > copied.version && !isAsGood(onDisk, copied);
}

function targetsIn(region: HostRegion, batch: readonly WantedPage[]): CallerPage[] {
  let addr = region.start;
  return batch.map(({ length }) => {
    const page = new RegionPage(region, addr, length);
    addr += length;
    return page;
  });
}

/** Total bytes of pages. */
export function bytesOf(batch: readonly WantedPage[]): number {
  return batch.reduce((sum, { length }) => sum + length, 0);
}
