import { assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import { Semaphore } from '../../base/concurrency/mutex.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { laterExpiry } from '../../base/expiry.js';
import { PAGE_MAX_BYTES } from '../../base/limits.js';
import { originOf } from '../../directory/shard/removals.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PublishedPage } from '../../pool/published-pool.js';
import { isReadable } from '../../pool/slots/local-pages.js';
import type { DataLocation, NodeRole } from '../../types.js';
import { slicesOf } from '../call/key-steps.js';
import type { PageFollower } from '../call/page-feed.js';
import type { HoldOutcome, HoldRequest } from '../ground/other-holders.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';
import type { ObjectTier } from '../objects/object-tier.js';
import { HOLD_RULES, type HoldReason, type OwnReason, type PageSource, STAY_LIMITS, type Stay } from './hold-rules.js';
import { bytesOf, PageCopier, type WantedPage } from './page-copier.js';
import type { Promoter } from './promoter.js';
import type { WantedPages } from './wanted-pages.js';

/** Collaborators of the held pages, beside the ground. */
export interface HeldPagesOptions {
  readonly statements: PageStatements;
  /** Brings pages from this node's disk into the pool; null: there is no disk. */
  readonly promoter: Promoter | null;
  /** Brings pages from the object store into the pool; undefined without one. */
  readonly objects: Pick<ObjectTier, 'bring'> | undefined;
  /** Learns which pages this node hands over when it drains. */
  readonly wanted: WantedPages;
  readonly role: NodeRole;
  readonly copyThreads: CopyThreads;
}

/** A local call that has pages brought into the pool; it may accept only some of them, and end early. */
export interface Bringing {
  /** Starts a new count of what may be brought, and returns a test to be called for each page in turn. */
  admission(): (key: string, length: number) => boolean;
  /** Called with pages that have arrived; those of this node's disk and of the object store stay until it returns. */
  arrived(keys: readonly string[]): void;
  /** Whether nothing more is to be brought. */
  readonly isOver: boolean;
  /** Aborting it ends reads from the object store at once. */
  readonly signal?: CancelSignal | undefined;
}

/** How copied pages are kept. */
type CopyStay = Exclude<Stay, 'leased'>;

/** Requests of one kind, running or waiting. */
interface Lane {
  readonly turns: Semaphore;
  requests: number;
}

/**
 * Pages that this node holds because another one has asked it to (`pages.hold`), and pages that it copies for itself.
 * {@link HOLD_RULES} has the rules for each reason.
 *
 * A page comes from the first of these sources that has it: this node's pool, its disk, the asking node, another node
 * that the directory names, the object store; the rule says which of them are asked. It is read and checked like any
 * page (see `PageCopier`), so no node writes into the memory of another one.
 *
 * A page kept for a while ("passing") is only a second location and is not written to this node's disk. A page kept for
 * good ("lasting"), on a storage node, may use the whole pool and the disk, and stays when the node that has set it
 * dies.
 *
 * Accounting: `#passing` holds the bytes of every passing page that the pool may still have, the earliest first, in
 * total at most COPIES_POOL_FRACTION of the pool. Pages among them that a client has pinned stay. A page that the
 * program sets here, or that is placed here, is no longer passing.
 */
export class HeldPages implements PageFollower {
  readonly #ground: StoreGround;
  readonly #options: HeldPagesOptions;
  readonly #lines: SparseLog;
  readonly #copier: PageCopier;
  readonly #lanes: Readonly<Record<CopyStay, Lane>>;
  readonly #passing = new Map<string, number>();
  #passingBytes = 0;
  readonly #passingMaxBytes: number;
  /** Called when the last request has ended. */
  #onNone: () => void = () => {};
  #state: 'open' | 'stopped' | 'closed' = 'open';

  constructor(ground: StoreGround, options: HeldPagesOptions) {
    this.#ground = ground;
    this.#options = options;
    this.#lines = new SparseLog(ground);
    this.#copier = new PageCopier(ground, options.statements, options.copyThreads);
    this.#lanes = { passing: laneOf('passing'), lasting: laneOf('lasting') };
    this.#passingMaxBytes = ground.pool.capacity * STAY_LIMITS.passing.poolFraction;
    ground.metrics.setGaugeProvider('meshcache_pool_copied_bytes', () => this.#passingBytes);
  }

  /** Bytes of the pool that passing pages take. */
  get passingBytes(): number {
    return this.#passingBytes;
  }

  /** Whether pages of other nodes are copied; false after {@link stop}. */
  get mayCopy(): boolean {
    return this.#state === 'open';
  }

  /** Carries out a request of another node; one outcome for each key. */
  async hold(request: HoldRequest): Promise<HoldOutcome[]> {
    const { role, promoter, wanted } = this.#options;
    const { why, asker, keys } = request;
    const { stay: stays, handsOn } = HOLD_RULES[why];
    const stay = stays[role];
    if (stay === 'leased') return promoter?.promote(asker, keys) ?? keys.map(() => 'absent');
    if (stay === null || !this.mayCopy) return keys.map(() => 'busy');
    const outcomes = await this.#inTurn(stay, () => this.#take(request, stay));
    // If the node has begun to drain meanwhile, it chose the pages to hand over without these.
    if (outcomes === undefined || !this.mayCopy) return keys.map(() => 'busy');
    if (handsOn) wanted.read(keys.filter((_, i) => outcomes[i] === 'held').reverse());
    return outcomes;
  }

  /** Records that `reader` has read these pages, which were leased for it. */
  release(reader: string, keys: readonly string[]): void {
    this.#options.promoter?.release(reader, keys);
  }

  /**
   * Brings pages into the pool for this node itself, in order, as far as there is room; 1 for each key whose page is in
   * the pool afterwards. Never rejects.
   */
  async bring(keys: readonly string[], why: OwnReason, call: Bringing = EVERYTHING): Promise<Uint8Array> {
    for (const source of HOLD_RULES[why].sources) {
      if (!this.mayCopy || call.isOver) break;
      await this.#bringFrom(source, keys, why, call);
    }
    return this.#isClosed ? new Uint8Array(keys.length) : this.#ground.pool.hasBatch(keys);
  }

  /** Called when the program has set pages under these keys: they are no longer passing. */
  set(keys: readonly string[]): void {
    if (this.#passing.size > 0) for (const key of keys) this.#forget(key);
  }

  /** Called when pages, possibly these, have left the pool. */
  gone(keys: readonly string[]): void {
    if (this.#isClosed || this.#passing.size === 0) return;
    const passing = keys.filter((key) => this.#passing.has(key));
    const isHere = this.#ground.pool.hasBatch(passing);
    for (const [i, key] of passing.entries()) if (isHere[i] === 0) this.#forget(key);
  }

  /** Stops copying; pages that are here, and requests in progress, are not affected. */
  stop(): void {
    if (this.#state === 'open') this.#state = 'stopped';
  }

  /** Ends copies in progress early. Resolves when nothing touches the pool any more. */
  async close(): Promise<void> {
    this.#state = 'closed';
    this.#copier.close();
    if (this.#requests > 0) await new Promise<void>((resolve) => (this.#onNone = resolve));
  }

  get #isClosed(): boolean {
    return this.#state === 'closed';
  }

  get #requests(): number {
    return this.#lanes.passing.requests + this.#lanes.lasting.requests;
  }

  /** Runs a request after those before it; undefined: it was refused, or has failed. */
  async #inTurn<T>(stay: CopyStay, work: () => Promise<T>): Promise<T | undefined> {
    const lane = this.#lanes[stay];
    if (this.#isClosed || lane.requests >= STAY_LIMITS[stay].requestsMaxCount) return undefined;
    lane.requests++;
    try {
      return await lane.turns.use(async () => (this.#isClosed ? undefined : await work()));
    } catch (error) {
      this.#warn(error);
      return undefined;
    } finally {
      lane.requests--;
      if (this.#requests === 0) this.#onNone();
    }
  }

  #warn(error: unknown): void {
    if (!this.#isClosed) this.#lines.log('warn', 'copying pages of another node failed', { error: String(error) });
  }

  /** Takes over pages that this node does not have yet from the asking node; undefined once this node closes. */
  async #take({ why, asker, keys, pages }: HoldRequest, stay: CopyStay): Promise<HoldOutcome[] | undefined> {
    const { statements } = this.#options;
    const before = this.#peek(keys, why);
    const wanted = new Map<string, WantedPage>();
    const older: number[] = [];
    for (const [i, key] of keys.entries()) {
      const here = before[i] ?? null;
      const page = pages[i] as DataLocation;
      const isGood = here !== null && (isSame(here, page) || here.version > page.version);
      if (isGood || this.#isAhead(page)) continue;
      if (here !== null) older.push(i);
      wanted.set(key, { key, length: page.length, location: page });
    }
    // A copy of older content would be in the way.
    if (older.length > 0) {
      await statements.dropCopies(
        older.map((i) => keys[i] as string),
        older.map((i) => (pages[i] as DataLocation).version),
      );
    }
    await this.#copy([...wanted.values()], { why, stay });
    if (this.#isClosed) return undefined;
    await this.#renewOlder(asker, keys, pages);
    if (stay === 'lasting') await this.#makeLasting(keys);
    return this.#isClosed ? undefined : this.#outcomes({ keys, pages, why }, stay);
  }

  /** Copies the pages that `takes` accepts and that find room. */
  async #copy(
    found: readonly WantedPage[],
    how: {
      readonly why: HoldReason;
      readonly stay: CopyStay;
      readonly takes?: (key: string, length: number) => boolean;
    },
  ): Promise<void> {
    const { why, stay, takes = () => true } = how;
    // Lengths reported by others may be wrong: memory is only allocated for lengths that a page can have.
    const maxBytes = this.#pageMaxBytes(stay);
    let leftBytes = stay === 'passing' ? this.#passingMaxBytes - this.#pinnedBytes() : Number.POSITIVE_INFINITY;
    const wanted = found.filter(({ key, length }) => {
      if (length > Math.min(maxBytes, leftBytes) || !takes(key, length)) return false;
      leftBytes -= length;
      return true;
    });
    const sliceMaxBytes = Math.min(maxBytes, STAY_LIMITS[stay].sliceBytes);
    for (const { start, end } of slicesOf(wanted, { maxBytes: sliceMaxBytes })) {
      if (this.#isClosed) return;
      const batch = wanted.slice(start, end);
      const count = await (stay === 'passing' ? this.#copyPassing(batch, why) : this.#copier.copy(batch));
      if (count > 0) this.#ground.metrics.count('meshcache_copied_pages_total', count, { reason: why });
      if (stay === 'lasting' && !this.#isClosed) await this.#write(batch.map(({ key }) => key));
    }
  }

  /** Longest page that is copied, in bytes. */
  #pageMaxBytes(stay: CopyStay): number {
    return Math.min(this.#ground.pool.capacity * STAY_LIMITS[stay].poolFraction, PAGE_MAX_BYTES);
  }

  /** Copies the pages of a batch that find room, and counts them; returns the number of copied pages. */
  #copyPassing(batch: readonly WantedPage[], why: HoldReason): Promise<number> {
    return this.#copier.copy(this.#withRoom(batch, why), {
      onCopied: (copied) => {
        for (const { key, length } of copied) this.#add(key, length);
      },
    });
  }

  #add(key: string, length: number): void {
    this.#forget(key);
    // The page may already have left the pool again.
    if (this.#ground.pool.hasBatch([key])[0] === 0) return;
    this.#passing.set(key, length);
    this.#passingBytes += length;
  }

  #forget(key: string): void {
    this.#passingBytes = reduced('held pages: passing bytes', this.#passingBytes, this.#passing.get(key) ?? 0);
    this.#passing.delete(key);
  }

  /** Bytes of the passing pages that clients have pinned. */
  #pinnedBytes(): number {
    let bytes = 0;
    for (const [key, length] of this.#passing) if (this.#ground.pins.has(key)) bytes += length;
    return bytes;
  }

  /** The pages of a batch that find room, in order. They replace passing ones if the rule allows it. */
  #withRoom(batch: readonly WantedPage[], why: HoldReason): readonly WantedPage[] {
    const hasRoom = (bytes: number): boolean => this.#passingBytes + bytes <= this.#passingMaxBytes;
    const batchBytes = bytesOf(batch);
    if (HOLD_RULES[why].replaces) this.#dropEarliest(() => hasRoom(batchBytes));
    let bytes = 0;
    return batch.filter(({ length }) => {
      if (!hasRoom(bytes + length)) return false;
      bytes += length;
      return true;
    });
  }

  /** Drops the earliest unpinned passing pages until `isEnough`. */
  #dropEarliest(isEnough: () => boolean): void {
    const { pool, feed, pins } = this.#ground;
    const removed: string[] = [];
    for (const key of this.#passing.keys()) {
      if (isEnough()) break;
      if (pins.has(key)) continue;
      this.#forget(key);
      if (pool.remove(key)) removed.push(key);
    }
    if (removed.length > 0) feed.evicted(removed);
  }

  async #bringFrom(source: PageSource, keys: readonly string[], why: OwnReason, call: Bringing): Promise<void> {
    try {
      if (source === 'disk') await this.#bringFromDisk(keys, call);
      else if (source === 'nodes') await this.#inTurn('passing', () => this.#bringFromNodes(keys, why, call));
      else await this.#bringFromObjects(keys, call);
    } catch (error) {
      this.#warn(error);
    }
  }

  /** Brings pages from this node's disk into the pool, as many as fit. */
  async #bringFromDisk(keys: readonly string[], call: Bringing): Promise<void> {
    const { promoter } = this.#options;
    const { disk, cluster } = this.#ground;
    const { nodeId } = cluster;
    if (promoter === null || disk === undefined) return;
    let wanted: readonly string[] = [...new Set(keys)];
    while (wanted.length > 0 && !call.isOver && this.mayCopy) {
      const takes = call.admission();
      const found = disk.peekBatch(wanted);
      const asked = wanted.filter((key, i) => {
        const length = found[i]?.length ?? 0;
        return length > 0 && takes(key, length);
      });
      if (asked.length === 0) return;
      const outcomes = await promoter.promote(nodeId, asked);
      const arrived = asked.filter((_, i) => typeof outcomes[i] !== 'string');
      call.arrived(arrived);
      promoter.release(nodeId, arrived);
      // Without progress, the remaining pages wait for room, or for a slow disk.
      if (arrived.length === 0) return;
      wanted = asked.filter((_, i) => outcomes[i] === 'later');
    }
  }

  async #bringFromNodes(keys: readonly string[], why: OwnReason, call: Bringing): Promise<void> {
    const { directory, cluster } = this.#ground;
    const { nodeId } = cluster;
    const missing = this.#notInPool(keys);
    if (missing.length === 0) return;
    const locations = await directory.get(missing);
    const found = missing.flatMap((key, i): WantedPage[] => {
      const { nodeId: holder = nodeId, length = 0 } = locations[i] ?? {};
      return holder === nodeId || length === 0 ? [] : [{ key, length }];
    });
    await this.#copy(found, { why, stay: 'passing', takes: call.admission() });
    if (!this.#isClosed) call.arrived(missing.filter((key) => this.#passing.has(key)));
  }

  /** Brings pages from the object store into the pool; each is then a page of this node like any other. */
  async #bringFromObjects(keys: readonly string[], call: Bringing): Promise<void> {
    const missing = this.#notInPool(keys);
    if (missing.length === 0) return;
    const use = async (indices: readonly number[]): Promise<void> =>
      call.arrived(indices.map((i) => missing[i] as string));
    await this.#options.objects?.bring({ keys: missing, signal: call.signal, use });
  }

  /** The distinct keys whose pages are not in the pool. */
  #notInPool(keys: readonly string[]): string[] {
    const isHere = this.#ground.pool.hasBatch(keys);
    return [...new Set(keys.filter((_, i) => isHere[i] === 0))];
  }

  /** Turns passing pages under these keys, which were copied for another reason, into lasting ones. */
  async #makeLasting(keys: readonly string[]): Promise<void> {
    const passing = keys.filter((key) => this.#passing.has(key));
    for (const key of passing) this.#forget(key);
    await this.#write(passing);
  }

  /** Writes copies that are in the pool to this node's disk. */
  async #write(keys: readonly string[]): Promise<void> {
    const { pool, disk } = this.#ground;
    if (disk === undefined || keys.length === 0) return;
    const pages = pool.peekBatch(keys).map((page) => (page !== null && page.setBy !== 0 ? page : null));
    const present = keys.filter((_, i) => pages[i] !== null);
    await disk.writeThrough(
      present,
      pages.filter((page) => page !== null),
    );
  }

  /**
   * Gives a named page that is here with the same bytes the version with which it was set again elsewhere, and the node
   * that did so; with its old version it would be void. A computed page that is here gets the later expiry, as if it
   * were set again here.
   */
  async #renewOlder(asker: string, keys: readonly string[], pages: readonly DataLocation[]): Promise<void> {
    const { pool, disk } = this.#ground;
    const renewed = pool.peekBatch(keys).flatMap((here, i) => {
      const [key, page] = [keys[i] as string, pages[i] as DataLocation];
      if (here === null || this.#isAhead(page)) return [];
      if (isShorter(here, page)) return pool.renew([key], here.version, here.version, { expires: page.expires });
      if (!isSame(here, page) || here.version >= page.version || here.kind !== 'named') return [];
      const origin = here.setBy === 0 ? {} : { setBy: page.setBy || originOf(asker) };
      return pool.renew([key], here.version, page.version, origin);
    });
    if (renewed.length === 0) return;
    disk?.renew(renewed);
    await this.#options.statements.restate(renewed);
  }

  #outcomes({ keys, pages, why }: Omit<HoldRequest, 'asker'>, stay: CopyStay): HoldOutcome[] {
    const maxBytes = this.#pageMaxBytes(stay);
    return this.#peek(keys, why).map((here, i) => {
      const page = pages[i] as DataLocation;
      if (here === null) return page.length > maxBytes ? 'too_large' : 'absent';
      if (!isReadable(here)) return 'absent';
      const isAsSet = isSame(here, page) && (page.kind === 'computed' || here.version >= page.version);
      if (isAsSet) return 'held';
      return here.version > page.version ? 'outdated' : 'absent';
    });
  }

  /** Whether the page was set with a clock that is too far ahead: nobody reads such a page. */
  #isAhead({ version, expires }: DataLocation): boolean {
    return this.#ground.versions.isAhead(version, expires);
  }

  /** The pages of these keys in the pool, else on the disk if that is a source. */
  #peek(keys: readonly string[], why: HoldReason): (PublishedPage | null)[] {
    const { pool, disk } = this.#ground;
    // A disk that does not answer holds nothing that can be read.
    const onDisk =
      HOLD_RULES[why].sources.includes('disk') && disk?.isHung === false ? disk.peekBatch(keys) : undefined;
    return pool.peekBatch(keys).map((page, i) => page ?? onDisk?.[i] ?? null);
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    let bytes = 0;
    for (const length of this.#passing.values()) bytes += length;
    assertEqual('held pages: bytes', this.#passingBytes, bytes);
    assertAtMost('held pages: bytes', bytes, this.#passingMaxBytes);
    for (const [stay, { requests, turns }] of Object.entries(this.#lanes)) {
      assertAtMost(`held pages: ${stay} requests`, requests, STAY_LIMITS[stay as CopyStay].requestsMaxCount);
      turns.verify();
    }
  }
}

/** Brings every page for which there is room. */
const EVERYTHING: Bringing = { admission: () => () => true, arrived() {}, isOver: false };

function laneOf(stay: CopyStay): Lane {
  return { turns: new Semaphore(STAY_LIMITS[stay].atOnceCount), requests: 0 };
}

/** Whether the local page is as good as another node's, apart from its version. */
function isSame(here: PublishedPage, page: DataLocation): boolean {
  if (here.length !== page.length || here.kind !== page.kind) return false;
  if (page.kind === 'computed') return laterExpiry(here.expires, page.expires) === here.expires;
  return here.checksum === page.checksum && here.expires === page.expires;
}

/** Whether the local computed page is as good as another node's, but expires earlier. */
function isShorter(here: PublishedPage, page: DataLocation): boolean {
  return here.kind === 'computed' && page.kind === 'computed' && here.length === page.length && !isSame(here, page);
}
