import { assert, assertEqual, reduced } from '../../base/assert.js';
import { type Clock, within } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import {
  DISK_HELD_POOL_FRACTION,
  DISK_STALL_MS,
  DISK_UNRECORDED_MAX_KEYS,
  DISK_WAITING_CLOSE_TIMEOUT_MS,
} from '../../base/limits.js';
import { type Keys, pickKeys, stringsOf } from '../../core/binding/key-batch.js';
import type { RequestOptions } from '../../core/index.js';
import type { DiskInfo, DiskReadOptions, DiskStore } from '../../disk/disk-store.js';
import type { LeavingPage, PageBytes } from '../../pool/page-batch.js';
import type { LocalRead, PageLease, PagesOf, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import { PageLimits } from '../../pool/tenants/page-limits.js';
import { type Cleared, indicesWhere } from '../call/key-steps.js';
import { PageFeed, type PageFollower } from '../call/page-feed.js';
import type { RequestParts } from '../call/request-calls.js';
import { LeavingPages } from './leaving-pages.js';
import { type Backlog, PacedPublishing } from './paced-publishing.js';
import { type Publishing, publishSlices } from './publishing.js';

/** The part of a disk store that a tier needs. */
export type TierDisk = Pick<
  DiskStore,
  | 'close'
  | 'dropExpired'
  | 'exists'
  | 'firstExpiry'
  | 'fits'
  | 'hasBatch'
  | 'hasRoomFor'
  | 'info'
  | 'keepsRemoved'
  | 'keysInSlices'
  | 'queuedKeys'
  | 'peekBatch'
  | 'putPage'
  | 'readPages'
  | 'removalsWritten'
  | 'removeExpired'
  | 'hasCopiesOf'
  | 'removeOlder'
  | 'removeOther'
  | 'renew'
  | 'skipped'
  | 'state'
  | 'touchBatch'
>;

export interface DiskTierParts {
  readonly disk: TierDisk;
  readonly pool: PublishedPool;
  /** Lengths of the longest pages that the pool accepts; default: those of a pool without quotas. */
  readonly limits?: PageLimits;
  /**
   * When pages are written. `wait`: when they are set, and publishing waits when too many bytes wait for the disk.
   * `skip`: when they are set, but publishing goes on, and pages evicted before they are written are not on disk.
   * `evicted`: when the pool evicts them, see {@link LeavingPages}; publishing goes on.
   */
  readonly writes: 'wait' | 'skip' | 'evicted';
  /** Hears of pages that were written after the pool had dropped them; until then they were in no tier. */
  readonly feed?: PageFeed;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/** Details of a page that is given to the disk. */
interface AboutWrite {
  /** The request that has set the page. */
  readonly request: RequestOptions | undefined;
  /** Whether the disk was just found to have no page with the key. */
  readonly isNew: boolean;
}

/** A page that waits for room in the queue. */
interface WaitingPage {
  /** Lease of the page in the pool; null: the pool may evict the page. */
  lease: PageLease | null;
  /** The request that has set the page. */
  readonly request: RequestOptions | undefined;
}

/**
 * The disk behind a pool: published pages are written in the background, and can be read there after their eviction.
 *
 * A queued page is leased in the pool until it is written; its bytes are taken from there, without a copy. When other
 * bytes are published under its key, the lease ends early; the page is then not listed on disk, and if that comes too
 * late its checksum is wrong. Pages for which the queue has no room wait, with a lease too if publishing waits for the
 * disk.
 *
 * With {@link LeavingPages}, pages are written when the pool evicts them instead.
 *
 * Accounting: `#heldBytes` is the sum over the queued pages and the pages that wait with a lease: at most
 * DISK_HELD_POOL_FRACTION of the pool, or one page.
 */
export class DiskTier implements Backlog, PageFollower {
  readonly maxBytes: number;
  readonly #disk: TierDisk;
  readonly #pool: PublishedPool;
  readonly #clock: Clock;
  readonly #feed: PageFeed;
  /** Undefined if publishing does not wait for the disk. */
  readonly #paced: PacedPublishing | undefined;
  /** Undefined if pages are written when they are set. */
  readonly #leaving: LeavingPages | undefined;
  /**
   * Pages for which the queue had no room, in the order in which they were set. They are written when there is room, if
   * the pool still has them.
   */
  readonly #waiting = new Map<string, WaitingPage>();
  #heldBytes = 0;
  /** Leases of the queued pages. */
  readonly #queued = new Set<PageLease>();
  /** When the disk last finished a write, or received the first one. */
  #movedAtMs = 0;
  /**
   * Keys of removed pages whose removal the disk could not record. Setting or deleting such a key again also waits for
   * the record; with DISK_UNRECORDED_MAX_KEYS of them, every key does.
   */
  readonly #unrecorded = new Set<string>();
  #onNoneWaiting: () => void = () => {};
  #isClosed = false;

  constructor(parts: DiskTierParts) {
    const { disk, pool, limits = new PageLimits(pool), writes, feed = new PageFeed(), clock, metrics } = parts;
    this.#disk = disk;
    this.#pool = pool;
    this.#clock = clock;
    this.#feed = feed;
    this.maxBytes = pool.capacity * DISK_HELD_POOL_FRACTION;
    this.#paced = writes === 'wait' ? new PacedPublishing({ pool, limits, backlog: this, clock, metrics }) : undefined;
    this.#leaving = writes === 'evicted' ? new LeavingPages(disk, pool, (key) => feed.evicted([key])) : undefined;
  }

  /** Publishes pages in the pool. The caller must call {@link writeThrough} for each slice that is reported to it. */
  publish(publishing: Publishing): Promise<void> {
    return this.#paced?.publish(publishing) ?? publishSlices(publishing, { pool: this.#pool, clock: this.#clock });
  }

  /** Ends all waits: publishing no longer waits for the disk. */
  endWaits(): void {
    this.#paced?.stop();
  }

  hasRoomFor(bytes: number): boolean {
    return this.#heldBytes === 0 || this.#heldBytes + bytes <= this.maxBytes;
  }

  fits(length: number): boolean {
    return this.#disk.fits(length);
  }

  isMoving(): boolean {
    return !this.#disk.state.isPaused && this.stallsInMs() > 0;
  }

  stallsInMs(): number {
    return this.#queued.size === 0 ? Number.POSITIVE_INFINITY : this.#movedAtMs + DISK_STALL_MS - this.#clock.nowMs();
  }

  letGo(): void {
    for (const waiting of this.#waiting.values()) {
      if (waiting.lease === null) continue;
      const { lease } = waiting;
      waiting.lease = null;
      this.#endHold(lease);
    }
  }

  info(): DiskInfo {
    return this.#disk.info();
  }

  /**
   * Queues pages that have just been published, unless they are written when they leave; null for pages that were not.
   * A page that has already left the pool is not written. Other bytes on disk under the key are removed: the promise
   * resolves when a crash cannot bring them back, and rejects if the disk does not record that. Undefined if there were
   * none.
   */
  writeThrough(
    keys: Keys,
    published: readonly (PublishedPage | null)[],
    request?: RequestParts,
  ): Promise<void> | undefined {
    const outdated: string[] = [];
    const strings = stringsOf(keys);
    // One lookup for all keys: within this call the disk gets no other pages.
    const isStored = this.#disk.hasBatch(keys);
    const leases = this.#pool.lease(keys);
    const pages = leases.map((lease, i) => lease?.page ?? published[i] ?? null);
    // Expired pages are not stored, and would be in the way. Where no new page has been published, they stay until
    // their removal is reported.
    const come = indicesWhere(pages, (page) => page !== null);
    this.#disk.dropExpired(come.length === pages.length ? keys : pickKeys(keys, come));
    leases.forEach((lease, i) => {
      const page = pages[i] ?? null;
      const isNew = isStored[i] === 0;
      // The removal comes first: the new page may find no room or be gone already, and then the old one must not be
      // read.
      const key = strings[i] as string;
      if (page !== null && ((!isNew && this.#disk.removeOther(key, page)) || this.#isUnrecorded(key)))
        outdated.push(key);
      if (lease !== null) this.#write(lease, { request: request?.next(), isNew });
      // The page was already evicted to make room for others, so it is not written.
      else if (page !== null && this.#leaving === undefined && !this.#disk.exists(key)) this.#disk.skipped(1);
    });
    this.#writeWaiting();
    return outdated.length > 0 ? this.#recorded(outdated) : undefined;
  }

  /** One byte for each key; 1: the disk has the page, or will have it. Does not count as a use. */
  hasBatch(keys: Keys): Uint8Array {
    return this.#disk.hasBatch(keys);
  }

  /**
   * One byte for each key; 1: the page can be read now. If the disk does not answer, only pages that wait to be written
   * can.
   */
  readableBatch(keys: Keys): Uint8Array {
    return this.#disk.hasBatch(keys, { canRead: true });
  }

  /** Whether the disk does not answer. */
  get isHung(): boolean {
    return this.#disk.state.isHung;
  }

  peekBatch(keys: Keys): (PublishedPage | null)[] {
    return this.#disk.peekBatch(keys);
  }

  /** Counts uses of pages in the pool as uses on the disk, too. */
  touchBatch(keys: readonly string[], request?: RequestOptions): void {
    if (keys.length > 0) this.#disk.touchBatch(keys, request);
  }

  /**
   * Reads pages; one outcome for each key. The targets are in use until the promise resolves, which is soon after the
   * signal is aborted.
   */
  readPages(keys: readonly string[], targets: readonly PageBytes[], options?: DiskReadOptions): Promise<LocalRead[]> {
    return this.#disk.readPages(keys, targets, options);
  }

  /** Keys of all pages, slice by slice. */
  keysInSlices(): Iterable<string[]> {
    return this.#disk.keysInSlices();
  }

  /** Whether there may be copies of pages that the node with this origin has set; 0: of any node's pages. */
  hasCopiesOf(origin: number): boolean {
    return this.#disk.hasCopiesOf(origin);
  }

  /** Keys of the pages that are on their way to the disk. */
  queuedKeys(): string[] {
    return this.#disk.queuedKeys();
  }

  /**
   * Removes pages older than the version given for their key, restricted to the kind `of`. Once it resolves, a crash
   * cannot bring them back; it rejects if the disk does not record that.
   */
  async removeOlder(keys: readonly string[], voidBelow: readonly number[], of?: PagesOf): Promise<void> {
    const wasWritten = this.#disk.removeOlder(keys, voidBelow, of);
    if (this.#waiting.size > 0) for (const key of keys) if (!this.#pool.has(key)) this.#endWait(key);
    this.#writeWaiting();
    if (wasWritten || keys.some((key) => this.#isUnrecorded(key))) await this.#recorded(keys);
  }

  /** Removes expired pages, at most `maxCount`; returns their keys. */
  removeExpired(maxCount: number): string[] {
    return this.#disk.removeExpired(maxCount);
  }

  /** The earliest expiry of a page; 0: none expires. */
  get firstExpiry(): number {
    return this.#disk.firstExpiry;
  }

  /** Passes later versions of pages in the pool on to the disk. */
  renew(keys: readonly string[]): void {
    for (const [i, page] of this.#pool.peekBatch(keys).entries()) if (page) this.#disk.renew(keys[i] as string, page);
  }

  /**
   * Writes everything that waits, here and in the queue, each within a deadline. Afterwards nothing here touches the
   * pool.
   */
  async close(): Promise<void> {
    this.#paced?.close();
    // Pages of a pool that outlives its process are found there.
    if (this.#leaving !== undefined && this.#pool.kept === undefined) this.#writeRest(this.#leaving);
    const noneWaiting = new Promise<void>((resolve) => {
      this.#onNoneWaiting = resolve;
    });
    this.#writeWaiting();
    await within(this.#clock, DISK_WAITING_CLOSE_TIMEOUT_MS, noneWaiting);
    this.#isClosed = true;
    this.#leaving?.close();
    if (this.#waiting.size > 0) this.#disk.skipped(this.#waiting.size);
    await this.#disk.close();
  }

  /** Resolves when a crash cannot bring back removed pages. */
  removalsWritten(): Promise<void> {
    return this.#disk.removalsWritten();
  }

  /** Called when pages are cleared: earlier calls that wait to set them end. */
  cleared(cleared: Cleared): void {
    this.#paced?.cleared(cleared);
    this.#leaving?.cleared(cleared);
  }

  /** Notes when pages of the pool will be asked for, in milliseconds; Infinity: never. */
  expect(keys: readonly string[], inMs: number): void {
    this.#leaving?.expect(keys, inMs);
  }

  /** Called when the pool evicts a page, whose bytes are valid until the call returns. */
  leaving(page: LeavingPage): void {
    this.#leaving?.leaving(page);
  }

  set(keys: readonly string[]): void {
    this.#leaving?.asked(keys);
  }

  readHere(keys: readonly string[]): void {
    this.#leaving?.asked(keys);
  }

  touched(keys: readonly string[]): void {
    this.#leaving?.asked(keys);
  }

  gone(keys: readonly string[]): void {
    this.#leaving?.asked(keys);
  }

  /** Called when the pool has dropped these pages: unwritten ones are lost. */
  evicted(keys: readonly string[]): void {
    if (this.#waiting.size === 0) return;
    const lost = keys.filter((key) => this.#endWait(key));
    if (lost.length > 0) this.#disk.skipped(lost.length);
  }

  /** Has pages of the pool that are not on disk wait to be written, the next ones to be evicted last. */
  #writeRest(leaving: LeavingPages): void {
    const keys = this.#pool.keys();
    const isOnDisk = this.#disk.hasBatch(keys);
    for (const [i, page] of this.#pool.peekLive(keys).entries()) {
      const key = keys[i] as string;
      if (page === null || isOnDisk[i] === 1 || !leaving.isWorth(key, page)) continue;
      this.#waiting.set(key, { lease: null, request: undefined });
    }
  }

  /** Resolves when a crash cannot bring back removed pages of these keys. */
  async #recorded(keys: readonly string[]): Promise<void> {
    try {
      await this.#disk.removalsWritten();
    } catch (error) {
      for (const key of keys) if (this.#unrecorded.size < DISK_UNRECORDED_MAX_KEYS) this.#unrecorded.add(key);
      throw error;
    }
  }

  /** Whether a crash may bring back a removed page of this key. */
  #isUnrecorded(key: string): boolean {
    if (this.#unrecorded.size === 0) return false;
    if (!this.#disk.keepsRemoved) this.#unrecorded.clear();
    return this.#unrecorded.size === DISK_UNRECORDED_MAX_KEYS || this.#unrecorded.has(key);
  }

  #write(lease: PageLease, about: AboutWrite): void {
    const { key, page } = lease;
    // Copies are those of a storage node, which is to keep them.
    if (this.#leaving !== undefined && page.setBy === 0 && !this.#disk.exists(key)) {
      this.#pool.unlease([lease]);
    } else if (!this.#disk.fits(page.length)) {
      this.#endWait(key);
      this.#disk.skipped(1);
      this.#pool.unlease([lease]);
    } else if (this.#waiting.get(key)?.lease?.isLive) {
      // The waiting lease covers the same bytes: a lease of other bytes would have ended.
      this.#pool.unlease([lease]);
    } else {
      this.#endWait(key);
      // The disk has, or will have, these bytes under the key: others have been removed.
      if (this.#mayQueueNow(page.length) || this.#disk.exists(key)) this.#queue(lease, about);
      else this.#wait(lease, about.request);
    }
  }

  /**
   * Whether a page may be queued. If publishing waits for the disk, waiting pages come first; otherwise any page that
   * finds room is queued.
   */
  #mayQueueNow(length: number): boolean {
    return (this.#paced === undefined || this.#waiting.size === 0) && this.#disk.hasRoomFor(length);
  }

  #queue(lease: PageLease, { request, isNew }: AboutWrite): void {
    const { key, page } = lease;
    const release = (): void => {
      this.#queued.delete(lease);
      this.#movedAtMs = this.#clock.nowMs();
      const isLate = !lease.isLive;
      this.#endHold(lease);
      this.#writeWaiting();
      if (isLate && !this.#isClosed && !this.#waiting.has(key) && this.#disk.hasBatch([key])[0] === 1)
        this.#feed.evicted([key]);
    };
    const { length, checksum, version, kind, expires, setBy } = page;
    const bytes = { views: this.#pool.viewsOf(page), length };
    const about = { version, kind, expires, setBy, request, isNew };
    if (this.#disk.putPage(key, bytes, checksum, release, about) !== 'queued') {
      this.#pool.unlease([lease]);
      return;
    }
    if (this.#queued.size === 0) this.#movedAtMs = this.#clock.nowMs();
    this.#queued.add(lease);
    this.#heldBytes += page.length;
  }

  #wait(lease: PageLease, request: RequestOptions | undefined): void {
    const { key, page } = lease;
    const isHeld = this.#paced !== undefined && this.isMoving() && this.hasRoomFor(page.length);
    this.#waiting.set(key, { lease: isHeld ? lease : null, request });
    if (isHeld) this.#heldBytes += page.length;
    else this.#pool.unlease([lease]);
  }

  /** Ends the wait of a page; false if it was not waiting. */
  #endWait(key: string): boolean {
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return false;
    this.#waiting.delete(key);
    if (waiting.lease !== null) this.#endHold(waiting.lease);
    return true;
  }

  #endHold(lease: PageLease): void {
    this.#heldBytes = reduced('disk tier: held bytes', this.#heldBytes, lease.page.length);
    this.#pool.unlease([lease]);
    this.#paced?.changed();
  }

  #writeWaiting(): void {
    if (this.#isClosed) return;
    if (!this.isMoving()) this.letGo();
    for (const [key, { request }] of this.#waiting) {
      const [page] = this.#pool.peekBatch([key]);
      if (page && !this.#disk.hasRoomFor(page.length)) return;
      // Takes a new lease of the current page, because the lease that it waited with may have ended.
      const [lease] = this.#pool.lease([key]);
      this.#endWait(key);
      if (lease) this.#queue(lease, { request, isNew: false });
    }
    this.#onNoneWaiting();
  }

  /** Throws `InvariantError` unless the accounting of this class holds; the disk's owner verifies the disk. */
  verify(): void {
    this.#leaving?.verify();
    let bytes = 0;
    const waiting = Array.from(this.#waiting.values(), ({ lease }) => lease);
    for (const lease of [...this.#queued, ...waiting]) bytes += lease?.page.length ?? 0;
    assertEqual('disk tier: bytes that are held', this.#heldBytes, bytes);
    const isLeased = this.#paced !== undefined || waiting.every((lease) => lease === null);
    assert(isLeased, 'disk tier: pages wait with a lease, and publishing does not wait for the disk');
    for (const [key, { lease }] of this.#waiting) {
      const isOwn = lease === null || (lease.key === key && !this.#queued.has(lease));
      assert(isOwn, () => `disk tier: the lease with which ${JSON.stringify(key)} waits is of another page`);
    }
  }
}
