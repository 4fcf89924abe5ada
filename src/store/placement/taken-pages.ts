import { assertAtMost } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { laterExpiry } from '../../base/expiry.js';
import {
  PAGE_MAX_BYTES,
  PLACEMENT_REQUEST_TARGET_BYTES,
  PLACEMENT_REQUESTS_AT_ONCE_COUNT,
  PLACEMENT_REQUESTS_MAX_COUNT,
} from '../../base/limits.js';
import type { DirectoryClient } from '../../directory/client.js';
import { Semaphore } from '../../disk/page-file/semaphore.js';
import type { PageOrigin, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import { fewAtOnce } from '../call/key-steps.js';
import { slicesOf } from '../call/page-slices.js';
import { PageCopier, type PageCopierParts, type WantedPage } from '../copies/page-copier.js';
import type { DiskTier } from '../disk/disk-tier.js';
import type { PageStatements } from '../page-statements.js';
import type { PageStore } from '../page-store.js';
import { type ClearRequest, type PageToPlace, PlacementOutcome, type PlacementRequest } from './placement-messages.js';
import { takenForOf } from './storage-nodes.js';

export type TakenPagesParts = Omit<PageCopierParts, 'directory' | 'pool' | 'disk' | 'pages'> & {
  readonly directory: Pick<DirectoryClient, 'find' | 'get' | 'discard'>;
  readonly pool: PageCopierParts['pool'] & Pick<PublishedPool, 'capacity' | 'keysInSlices' | 'peekBatch' | 'renew'>;
  readonly disk?: Pick<DiskTier, 'keysInSlices' | 'peekBatch' | 'removeOlder' | 'renew' | 'writeThrough'> | undefined;
  readonly pages: Pick<PageStore, 'forget'> & {
    readonly statements: Pick<
      PageStatements,
      'announcePromoted' | 'drop' | 'isVoid' | 'locationsOf' | 'restate' | 'retract'
    >;
  };
  readonly clock: Clock;
};

/** Stands for the node that a page was taken for where that is not known: one that is drained. */
const NO_PLACER = '';

/**
 * The pages that other nodes place on this one, a storage node. It reads them with the read path for all pages, checks included, so no node writes
 * into the memory of another one.
 *
 * A taken page is like the node's own: it has the whole pool and the disk, and stays when the node that has placed it dies. It goes like a copy:
 * when that node clears its pages, as well as when it is overwritten, deleted or expires. So the directory knows it as a copy, and the pool
 * which node has placed it last.
 */
export class TakenPages {
  readonly #parts: TakenPagesParts;
  readonly #lines: SparseLog;
  readonly #copier: PageCopier;
  readonly #turns = new Semaphore(PLACEMENT_REQUESTS_AT_ONCE_COUNT);
  #requests = 0;
  /** Tells that the last request has ended. */
  #onNone: () => void = () => {};
  /** The pages on their way here, request by request, and the nodes that place them. */
  readonly #coming = new Set<{ readonly takenFor: number; readonly keys: readonly string[] }>();
  #isStopped = false;
  #isClosed = false;

  constructor(parts: TakenPagesParts) {
    this.#parts = parts;
    this.#lines = new SparseLog(parts);
    this.#copier = new PageCopier(parts);
  }

  /** Takes pages; one `PlacementOutcome` for each. Never rejects. */
  async take({ placer, pages }: PlacementRequest): Promise<Uint8Array> {
    const isDone = await this.#inTurn(() => this.#take(takenForOf(placer), pages));
    return isDone ?? new Uint8Array(pages.length).fill(PlacementOutcome.busy);
  }

  /** Takes pages of a node that is drained; 1 for each key whose page is here afterwards. Never rejects. */
  async takeOver(keys: readonly string[]): Promise<Uint8Array> {
    const { pool, directory, nodeId } = this.#parts;
    const taken = await this.#inTurn(async () => {
      const isHere = pool.hasBatch(keys);
      const missing = [...new Set(keys.filter((_, i) => isHere[i] === 0))];
      const locations = await directory.get(missing);
      const wanted = missing.flatMap((key, i): WantedPage[] => {
        const { nodeId: owner = nodeId, length = 0 } = locations[i] ?? {};
        return owner === nodeId || length === 0 || length > this.#maxBytes ? [] : [{ key, length }];
      });
      await this.#copy(takenForOf(NO_PLACER), wanted, 'handover');
      return this.#isClosed ? new Uint8Array(keys.length) : pool.hasBatch(keys);
    });
    return taken ?? new Uint8Array(keys.length);
  }

  /** Drops the pages that a node has placed here. Resolves when they cannot be read any more, and the directory has been told. */
  async clear({ placer, voidBelow, prefixes }: ClearRequest): Promise<void> {
    const { clock } = this.#parts;
    const takenFor = takenForOf(placer);
    const isCleared = (key: string, page: PageOrigin | null): boolean =>
      page !== null &&
      page.takenFor === takenFor &&
      page.version < voidBelow &&
      prefixes?.some((prefix) => key.startsWith(prefix)) !== false;
    // Pages on their way are dropped whatever their version: it is not known yet. A page that was set after this is placed anew.
    await this.#drop(
      [...this.#coming].flatMap(({ keys, takenFor: ofNode }) => {
        const unknown = { version: 0, kind: 'computed', isCopy: true, expires: 0, takenFor: ofNode } as const;
        return keys.filter((key) => isCleared(key, unknown));
      }),
      voidBelow,
    );
    for (const keys of this.#keysInSlices()) {
      if (this.#isClosed) return;
      const pages = this.#peek(keys);
      await this.#drop(
        keys.filter((key, i) => isCleared(key, pages[i] ?? null)),
        voidBelow,
      );
      await clock.yield();
    }
  }

  /** Ends copies under way early. Resolves when nothing touches the pool any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#copier.close();
    if (this.#requests > 0) await new Promise<void>((resolve) => (this.#onNone = resolve));
  }

  /** Takes no pages from now on; those that are here, and requests under way, are not affected. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Longest page that is taken, in bytes. */
  get #maxBytes(): number {
    return Math.min(this.#parts.pool.capacity, PAGE_MAX_BYTES);
  }

  /** Works on a request when those before it are done; undefined: it is refused, or has failed. */
  async #inTurn<T>(work: () => Promise<T>): Promise<T | undefined> {
    if (this.#isClosed || this.#isStopped || this.#requests >= PLACEMENT_REQUESTS_MAX_COUNT) return undefined;
    this.#requests++;
    try {
      return await this.#turns.use(async () => (this.#isClosed ? undefined : await work()));
    } catch (error) {
      if (!this.#isClosed) this.#lines.log('warn', 'taking pages of another node failed', { error: String(error) });
      return undefined;
    } finally {
      if (--this.#requests === 0) this.#onNone();
    }
  }

  async #take(takenFor: number, asked: readonly PageToPlace[]): Promise<Uint8Array> {
    const { pages } = this.#parts;
    const before = this.#peek(asked.map(({ key }) => key));
    const older: PageToPlace[] = [];
    const wanted = new Map<string, PageToPlace>();
    asked.forEach((page, i) => {
      const here = before[i] ?? null;
      if (page.length > this.#maxBytes || (here !== null && (isSame(here, page) || isNewer(here, page)))) return;
      if (here !== null) older.push(page);
      wanted.set(page.key, page);
    });
    // A copy of an older content would be in the way.
    if (older.length > 0) {
      await pages.statements.drop(
        older.map(({ key }) => key),
        older.map(({ version }) => version),
        { isCopy: true },
      );
    }
    await this.#copy(takenFor, [...wanted.values()], 'placement');
    if (this.#isClosed) return new Uint8Array(asked.length).fill(PlacementOutcome.busy);
    await this.#renewOlder(asked);
    return this.#outcomes(asked);
  }

  /** Copies pages, and writes them to the own disk. */
  async #copy(takenFor: number, wanted: readonly WantedPage[], reason: string): Promise<void> {
    const { pool, disk, metrics } = this.#parts;
    const coming = { takenFor, keys: wanted.map(({ key }) => key) };
    this.#coming.add(coming);
    try {
      for (const { start, end } of slicesOf(wanted, { maxBytes: PLACEMENT_REQUEST_TARGET_BYTES })) {
        if (this.#isClosed) return;
        const batch = wanted.slice(start, end);
        const count = await this.#copier.copy(batch, { takenFor });
        if (count > 0) metrics.count('meshcache_copied_pages_total', count, { reason });
        if (this.#isClosed || disk === undefined) continue;
        const keys = batch.map(({ key }) => key);
        const pages = pool.peekBatch(keys).map((page) => (page?.takenFor === takenFor ? page : null));
        const present = keys.filter((_, i) => pages[i] !== null);
        const outdated = disk.writeThrough(
          present,
          pages.filter((page) => page !== null),
        );
        await outdated;
      }
    } finally {
      this.#coming.delete(coming);
    }
  }

  /**
   * Gives named pages that are here with the same bytes the version with which they were set again elsewhere: by an older one they would be void.
   * Computed pages that are here get the later expiry, as on a node that sets them again.
   */
  async #renewOlder(asked: readonly PageToPlace[]): Promise<void> {
    const { pool, disk, pages } = this.#parts;
    const renewed = pool.peekBatch(asked.map(({ key }) => key)).flatMap((here, i) => {
      const page = asked[i] as PageToPlace;
      if (here === null) return [];
      if (isShorter(here, page)) return pool.renew([page.key], here.version, here.version, page.expires);
      if (!isSame(here, page) || here.version >= page.version || here.kind !== 'named') return [];
      return pool.renew([page.key], here.version, page.version);
    });
    if (renewed.length === 0) return;
    disk?.renew(renewed);
    await pages.statements.restate(renewed);
  }

  #outcomes(asked: readonly PageToPlace[]): Uint8Array {
    const { pool } = this.#parts;
    const after = this.#peek(asked.map(({ key }) => key));
    return Uint8Array.from(asked, (page, i) => {
      const here = after[i] ?? null;
      if (page.length > this.#maxBytes) return PlacementOutcome.tooLarge;
      if (here === null || pool.unconfirmed.has(page.key)) return PlacementOutcome.unread;
      const isAsSet = isSame(here, page) && (page.kind === 'computed' || here.version >= page.version);
      if (isAsSet) return PlacementOutcome.placed;
      return isNewer(here, page) ? PlacementOutcome.outdated : PlacementOutcome.unread;
    });
  }

  /** Drops copies that are older than the version, and withdraws them from the directory. */
  async #drop(keys: readonly string[], voidBelow: number): Promise<void> {
    if (keys.length === 0) return;
    const { statements } = this.#parts.pages;
    await statements.drop(
      keys,
      keys.map(() => voidBelow),
      { isCopy: true },
    );
    const left = statements.locationsOf(keys);
    const gone = keys.filter((_, i) => (left[i] ?? null) === null);
    if (gone.length > 0) await statements.retract(gone);
  }

  /** The pages of these keys in the pool, else on the disk. */
  #peek(keys: readonly string[]): (PublishedPage | null)[] {
    const { pool, disk } = this.#parts;
    const onDisk = disk?.peekBatch(keys);
    return pool.peekBatch(keys).map((page, i) => page ?? onDisk?.[i] ?? null);
  }

  *#keysInSlices(): Generator<readonly string[], void> {
    const { pool, disk } = this.#parts;
    for (const keys of pool.keysInSlices()) {
      if (this.#isClosed) return;
      yield* fewAtOnce(keys);
    }
    if (this.#isClosed) return;
    for (const keys of disk?.keysInSlices() ?? []) yield* fewAtOnce(keys);
  }

  /** Throws `InvariantError` unless the requests are within their limit, and pages are on their way for one of them. */
  verify(): void {
    assertAtMost('taken pages: requests', this.#requests, PLACEMENT_REQUESTS_MAX_COUNT);
    assertAtMost('taken pages: requests with pages on their way', this.#coming.size, this.#requests);
    this.#turns.verify();
  }
}

/** Whether the page that is here is as good as the one that is to be placed, but for its version. */
function isSame(here: PublishedPage, page: PageToPlace): boolean {
  if (here.length !== page.length || here.kind !== page.kind) return false;
  if (page.kind === 'computed') return laterExpiry(here.expires, page.expires) === here.expires;
  return here.checksum === page.checksum && here.expires === page.expires;
}

/** Whether the computed page that is here is as good as the one that is to be placed, but expires earlier. */
function isShorter(here: PublishedPage, page: PageToPlace): boolean {
  return here.kind === 'computed' && page.kind === 'computed' && here.length === page.length && !isSame(here, page);
}

function isNewer(here: PageOrigin, page: PageToPlace): boolean {
  return here.version > page.version;
}
