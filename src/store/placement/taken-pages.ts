import { assertAtMost } from '../../base/assert.js';
import { Semaphore } from '../../base/concurrency/mutex.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { laterExpiry } from '../../base/expiry.js';
import {
  PAGE_MAX_BYTES,
  PLACEMENT_REQUEST_TARGET_BYTES,
  PLACEMENT_REQUESTS_AT_ONCE_COUNT,
  PLACEMENT_REQUESTS_MAX_COUNT,
} from '../../base/limits.js';
import { originOf } from '../../directory/shard/removals.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PageOrigin, PublishedPage } from '../../pool/published-pool.js';
import { slicesOf } from '../call/key-steps.js';
import { PageCopier, type WantedPage } from '../copies/page-copier.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';
import { type PageToPlace, PlacementOutcome, type PlacementRequest } from './placement-messages.js';

/**
 * The pages that other nodes place on this one, a storage node. It reads them with the read path for all pages, checks
 * included, so no node writes into the memory of another one.
 *
 * A taken page is a copy that is kept like the node's own pages: it has the whole pool and the disk, and stays when the
 * node that has set it dies.
 */
export class TakenPages {
  readonly #ground: StoreGround;
  readonly #statements: PageStatements;
  readonly #lines: SparseLog;
  readonly #copier: PageCopier;
  readonly #turns = new Semaphore(PLACEMENT_REQUESTS_AT_ONCE_COUNT);
  #requests = 0;
  /** Tells that the last request has ended. */
  #onNone: () => void = () => {};
  #isStopped = false;
  #isClosed = false;

  constructor(ground: StoreGround, statements: PageStatements, copyThreads: CopyThreads) {
    this.#ground = ground;
    this.#statements = statements;
    this.#lines = new SparseLog(ground);
    this.#copier = new PageCopier(ground, statements, copyThreads);
  }

  /** Takes pages; one `PlacementOutcome` for each. Never rejects. */
  async take(request: PlacementRequest): Promise<Uint8Array> {
    const isDone = await this.#inTurn(() => this.#take(request));
    return isDone ?? new Uint8Array(request.pages.length).fill(PlacementOutcome.busy);
  }

  /** Takes pages of a node that is drained; 1 for each key whose page is here afterwards. Never rejects. */
  async takeOver(keys: readonly string[]): Promise<Uint8Array> {
    const { pool, directory, cluster } = this.#ground;
    const { nodeId } = cluster;
    const taken = await this.#inTurn(async () => {
      const isHere = pool.hasBatch(keys);
      const missing = [...new Set(keys.filter((_, i) => isHere[i] === 0))];
      const locations = await directory.get(missing);
      const wanted = missing.flatMap((key, i): WantedPage[] => {
        const { nodeId: owner = nodeId, length = 0 } = locations[i] ?? {};
        return owner === nodeId || length === 0 || length > this.#maxBytes ? [] : [{ key, length }];
      });
      await this.#copy(wanted, 'handover');
      return this.#isClosed ? new Uint8Array(keys.length) : pool.hasBatch(keys);
    });
    return taken ?? new Uint8Array(keys.length);
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
    return Math.min(this.#ground.pool.capacity, PAGE_MAX_BYTES);
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

  async #take({ placer, pages: asked }: PlacementRequest): Promise<Uint8Array> {
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
      const keys = older.map(({ key }) => key);
      const versions = older.map(({ version }) => version);
      await this.#statements.dropCopies(keys, versions);
    }
    await this.#copy([...wanted.values()], 'placement');
    if (this.#isClosed) return new Uint8Array(asked.length).fill(PlacementOutcome.busy);
    await this.#renewOlder(originOf(placer), asked);
    return this.#outcomes(asked);
  }

  /** Copies pages, and writes them to the own disk. */
  async #copy(wanted: readonly WantedPage[], reason: string): Promise<void> {
    const { pool, disk, metrics } = this.#ground;
    for (const { start, end } of slicesOf(wanted, { maxBytes: PLACEMENT_REQUEST_TARGET_BYTES })) {
      if (this.#isClosed) return;
      const batch = wanted.slice(start, end);
      const count = await this.#copier.copy(batch);
      if (count > 0) metrics.count('meshcache_copied_pages_total', count, { reason });
      if (this.#isClosed || disk === undefined) continue;
      const keys = batch.map(({ key }) => key);
      const pages = pool.peekBatch(keys).map((page) => (page !== null && page.setBy !== 0 ? page : null));
      const present = keys.filter((_, i) => pages[i] !== null);
      await disk.writeThrough(
        present,
        pages.filter((page) => page !== null),
      );
    }
  }

  /**
   * Gives named pages that are here with the same bytes the version with which they were set again elsewhere, and the
   * node that has: by an older one they would be void. Computed pages that are here get the later expiry, as on a node
   * that sets them again.
   */
  async #renewOlder(placer: number, asked: readonly PageToPlace[]): Promise<void> {
    const { pool, disk } = this.#ground;
    const renewed = pool.peekBatch(asked.map(({ key }) => key)).flatMap((here, i) => {
      const page = asked[i] as PageToPlace;
      if (here === null) return [];
      if (isShorter(here, page)) return pool.renew([page.key], here.version, here.version, { expires: page.expires });
      if (!isSame(here, page) || here.version >= page.version || here.kind !== 'named') return [];
      return pool.renew([page.key], here.version, page.version, here.setBy === 0 ? {} : { setBy: placer });
    });
    if (renewed.length === 0) return;
    disk?.renew(renewed);
    await this.#statements.restate(renewed);
  }

  #outcomes(asked: readonly PageToPlace[]): Uint8Array {
    const { pool } = this.#ground;
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

  /** The pages of these keys in the pool, else on the disk. */
  #peek(keys: readonly string[]): (PublishedPage | null)[] {
    const { pool, disk } = this.#ground;
    const onDisk = disk?.peekBatch(keys);
    return pool.peekBatch(keys).map((page, i) => page ?? onDisk?.[i] ?? null);
  }

  /** Throws `InvariantError` unless the requests are within their limit. */
  verify(): void {
    assertAtMost('taken pages: requests', this.#requests, PLACEMENT_REQUESTS_MAX_COUNT);
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
