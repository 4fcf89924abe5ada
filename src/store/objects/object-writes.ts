import { assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import { within } from '../../base/environment/clock.js';
import {
  OBJECT_BUSY_BYTES_PER_S,
  OBJECT_BUSY_PAUSE_MS,
  OBJECT_CLOSE_TIMEOUT_MS,
  OBJECT_KNOWN_MAX_PAGES,
  OBJECT_PAGE_MAX_BYTES,
  OBJECT_QUEUE_MAX_KEY_CHARACTERS,
  OBJECT_QUEUE_MAX_PAGES,
  OBJECT_QUIET_MS,
  OBJECT_WRITES_MAX_BYTES,
  OBJECT_WRITES_MAX_COUNT,
} from '../../base/limits.js';
import { digestOf } from '../../directory/shard/removals.js';
import type { OwnMarker } from '../../objects/clear-marker.js';
import { isStorable, type ObjectHeader } from '../../objects/object-format.js';
import type { ObjectStore, Written } from '../../objects/object-store.js';
import type { PublishedPage } from '../../pool/published-pool.js';
import type { StoreGround } from '../ground/store-ground.js';
import type { ObjectSearch } from './object-search.js';

/** Collaborators of writes to the object store, beside the ground. */
interface ObjectWritesOwn {
  readonly store: ObjectStore;
  readonly search: ObjectSearch;
  readonly marker: OwnMarker;
  /** Id of this node as writer of objects. */
  readonly writer: string;
  /** Bytes per second sent to the store, on average. */
  readonly bytesPerS: number;
}

/** Queued pages that are looked up at a time after one of them was found to be gone. */
const GONE_LOOKUP_COUNT = 256;

/** A page that is being sent. */
interface Sending {
  /** Whether it must no longer be sent, because it was dropped or cleared. */
  isDropped: boolean;
  readonly ended: Promise<void>;
}

/**
 * Result of sending a page. `gone`: it is no longer here, or is not to be stored; `unsupported`: the store does not
 * honour conditional requests.
 */
type Outcome = Written | 'present' | 'gone' | 'unsupported';

/**
 * Sends computed pages to the object store in the background: a page is queued when it is read after it was set, and is
 * sent if this node holds the original, in its pool or on its disk, and the store does not have it yet.
 *
 * The queue holds keys only; a page is copied when it is sent. Pages that do not fit into the queue, or come while the
 * store fails, are skipped and counted; a page is queued again when it is read again.
 */
export class ObjectWrites {
  readonly #ground: StoreGround;
  readonly #own: ObjectWritesOwn;
  readonly #known = new KnownPages();
  readonly #queue = new Set<string>();
  #queuedCharacters = 0;
  readonly #sending = new Map<string, Sending>();
  #sendingBytes = 0;
  #sentPages = 0;
  /** Earliest time for sending the next page, and the same while pages are being set. */
  #nextMs = 0;
  #nextBusyMs = 0;
  /** Number of calls that are setting pages, and when the last one ended. */
  #setsCount = 0;
  #lastSetMs = Number.NEGATIVE_INFINITY;
  #cancelWait: (() => void) | undefined;
  #isClosed = false;

  constructor(ground: StoreGround, own: ObjectWritesOwn) {
    this.#ground = ground;
    this.#own = own;
    ground.metrics.setGaugeProvider('meshcache_object_queue_pages', () => this.stats().queuePages);
  }

  /** Pages sent since the store was created, and pages that wait or are being sent. */
  stats(): { readonly sentPages: number; readonly queuePages: number } {
    return { sentPages: this.#sentPages, queuePages: this.#queue.size + this.#sending.size };
  }

  /** Notes that pages which this node holds have been read. Very cheap. */
  used(keys: readonly string[]): void {
    if (this.#isClosed) return;
    const { store } = this.#own;
    const { metrics } = this.#ground;
    const isPaused = store.isWritingPaused;
    let skipped = 0;
    for (const key of keys) {
      if (this.#known.has(key) || this.#queue.has(key) || this.#sending.has(key)) continue;
      if (isPaused || !this.#enqueue(key)) skipped++;
    }
    if (skipped > 0) {
      const reason = isPaused ? 'store_failing' : 'queue_full';
      metrics.count('meshcache_object_skipped_pages_total', skipped, { reason });
    }
    if (this.#queue.size > 0) this.#sendMore();
  }

  /** Called when a call begins to set pages. */
  setBegins(): void {
    this.#setsCount++;
  }

  /** Called when a call that set pages has ended. */
  setEnds(): void {
    this.#setsCount = reduced('object writes: sets count', this.#setsCount, 1);
    this.#lastSetMs = this.#ground.clock.nowMs();
  }

  /**
   * Called with keys of deleted pages. A page that is being sent is stopped, refused by the store, or replaced by the
   * deletion mark.
   */
  dropped(keys: readonly string[]): void {
    for (const key of keys) {
      this.#dequeue(key);
      this.#known.delete(key);
      const sending = this.#sending.get(key);
      if (sending !== undefined) sending.isDropped = true;
    }
  }

  /** Called when this node clears pages: queued pages and those being sent are not stored, or are void. */
  cleared(): void {
    this.#queue.clear();
    this.#queuedCharacters = 0;
    this.#known.clear();
    for (const sending of this.#sending.values()) sending.isDropped = true;
  }

  /** Stops sending; resolves when nothing touches the pool any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelWait?.();
    const ended = Promise.all([...this.#sending.values()].map((sending) => sending.ended));
    await within(this.#ground.clock, OBJECT_CLOSE_TIMEOUT_MS, ended);
  }

  /** Queues a page; false: the queue is full. */
  #enqueue(key: string): boolean {
    if (this.#queue.size >= OBJECT_QUEUE_MAX_PAGES) return false;
    if (this.#queuedCharacters + key.length > OBJECT_QUEUE_MAX_KEY_CHARACTERS) return false;
    this.#queue.add(key);
    this.#queuedCharacters += key.length;
    return true;
  }

  #dequeue(key: string): void {
    if (this.#queue.delete(key))
      this.#queuedCharacters = reduced('object writes: queued characters', this.#queuedCharacters, key.length);
  }

  /** Sends queued pages as far as limits and the rate allow. */
  #sendMore(): void {
    const { clock } = this.#ground;
    if (this.#isClosed || this.#cancelWait !== undefined) return;
    for (const key of this.#queue) {
      const nowMs = clock.nowMs();
      const isBusy = this.#setsCount > 0 || nowMs - this.#lastSetMs < OBJECT_QUIET_MS;
      if (this.#sending.size >= (isBusy ? 1 : OBJECT_WRITES_MAX_COUNT)) return;
      if (this.#sending.size > 0 && this.#sendingBytes >= OBJECT_WRITES_MAX_BYTES) return;
      const busyMs = isBusy ? Math.min(this.#nextBusyMs - nowMs, OBJECT_QUIET_MS) : 0;
      const waitMs = Math.max(this.#nextMs - nowMs, busyMs);
      if (waitMs > 0) {
        this.#cancelWait = clock.after(waitMs, () => {
          this.#cancelWait = undefined;
          this.#sendMore();
        });
        return;
      }
      this.#dequeue(key);
      const page = this.#originalOf(key);
      if (page !== undefined) this.#send(key, page.length);
      else this.#dropGone();
    }
  }

  /** Removes pages that are gone from the front of the queue, with one lookup for all of them. */
  #dropGone(): void {
    const keys: string[] = [];
    for (const key of this.#queue) if (keys.push(key) >= GONE_LOOKUP_COUNT) break;
    const { pool, disk } = this.#ground;
    const inPool = pool.hasBatch(keys);
    const onDisk = disk?.hasBatch(keys);
    for (const [i, key] of keys.entries()) if (inPool[i] !== 1 && onDisk?.[i] !== 1) this.#dequeue(key);
  }

  #send(key: string, length: number): void {
    const { clock, metrics } = this.#ground;
    const { bytesPerS } = this.#own;
    this.#nextMs = Math.max(this.#nextMs, clock.nowMs()) + (length / bytesPerS) * 1000;
    const busyMs = Math.max(OBJECT_BUSY_PAUSE_MS, (length / OBJECT_BUSY_BYTES_PER_S) * 1000);
    this.#nextBusyMs = clock.nowMs() + busyMs;
    this.#sendingBytes += length;
    let end = (): void => {};
    const sending: Sending = {
      isDropped: false,
      ended: new Promise((resolve) => {
        end = resolve;
      }),
    };
    this.#sending.set(key, sending);
    this.#store(key, sending)
      .catch((): Outcome => 'failed')
      .then((outcome) => {
        this.#sending.delete(key);
        this.#sendingBytes = reduced('object writes: sending bytes', this.#sendingBytes, length);
        if (outcome === 'done') this.#sentPages++;
        if (outcome === 'done' || outcome === 'present') this.#noteStored(key, sending);
        metrics.count('meshcache_object_writes_total', 1, { result: outcome });
        end();
        this.#sendMore();
      });
  }

  #noteStored(key: string, { isDropped }: Sending): void {
    this.#own.search.notePresent(key);
    if (!isDropped) this.#known.add(key);
  }

  /** Stores a page, unless the store has it. */
  async #store(key: string, sending: Sending): Promise<Outcome> {
    const { store, search, marker } = this.#own;
    const isConditional = await store.isConditional();
    if (isConditional === false) return 'unsupported';
    if (isConditional === undefined || !(await marker.ready())) return 'failed';
    const name = store.names.ofPage(key);
    const found = await store.readHeader(name);
    if (found.kind === 'failed') return 'failed';
    const header = found.kind === 'object' ? found.object.header : undefined;
    const isPage = header !== undefined && !search.isDamaged(key) && search.isPageOf(key, header);
    if (isPage && (await search.begin(undefined).isGood(header))) return 'present';
    // No await from here until the page is taken, so it is in the pool or on the disk after all clears of the
    // generation.
    const { generation } = marker;
    const page = this.#originalOf(key);
    if (sending.isDropped || this.#isClosed || generation === undefined || page === undefined) return 'gone';
    // A page that was set before the key was deleted stays deleted; a mark of a clock far ahead is ignored.
    const isDeleted =
      header?.kind === 'deleted' && header.key === key && !this.#ground.versions.isAhead(header.version);
    if (isDeleted && page.version < header.version) return 'gone';
    const body = await this.#copyOf(key, page);
    if (body === undefined || sending.isDropped || this.#isClosed) return 'gone';
    const { length, checksum, version, expires } = page;
    const about: ObjectHeader = {
      ...{ kind: 'page', key, length, checksum, version, expires },
      ...{ generation, writer: this.#own.writer },
    };
    // The existing object is replaced only if it is unchanged.
    const replaces = found.kind === 'absent' ? null : found.tag;
    if (replaces === undefined) return 'failed';
    return store.write(name, about, { body: [body], replaces });
  }

  /** The page of a key, if this node has the original and it may go to the store. */
  #originalOf(key: string): PublishedPage | undefined {
    const { pool, disk, versions } = this.#ground;
    const page = pool.peekBatch([key])[0] ?? disk?.peekBatch([key])[0] ?? undefined;
    if (page === undefined || page.kind !== 'computed' || page.setBy !== 0 || page.length > OBJECT_PAGE_MAX_BYTES)
      return undefined;
    const isOver = page.expires !== 0 && page.expires <= versions.now();
    return isOver || versions.isAhead(page.version, page.expires) || !isStorable(key) ? undefined : page;
  }

  /** The bytes of a page; undefined if it is gone or was replaced. */
  async #copyOf(key: string, { length, checksum, version }: PublishedPage): Promise<Uint8Array | undefined> {
    const { pool, disk } = this.#ground;
    const bytes = new Uint8Array(length);
    const target = { views: [bytes], length };
    const isInPool = (pool.peekBatch([key])[0] ?? null) !== null;
    const [outcome] = isInPool
      ? await pool.readPages([key], [target], { isVerified: true })
      : ((await disk?.readPages([key], [target])) ?? []);
    if (this.#isClosed) return undefined;
    const page = this.#originalOf(key);
    const isSame = page?.checksum === checksum && page.version === version && page.length === length;
    return outcome === 'read' && isSame ? bytes : undefined;
  }

  /** Throws `InvariantError` unless the queue and what is being sent are counted and within their limits. */
  verify(): void {
    let characters = 0;
    for (const { length } of this.#queue) characters += length;
    assertEqual('object writes: characters of queued keys', this.#queuedCharacters, characters);
    assertAtMost('object writes: queued pages', this.#queue.size, OBJECT_QUEUE_MAX_PAGES);
    assertAtMost('object writes: pages that are being sent', this.#sending.size, OBJECT_WRITES_MAX_COUNT);
  }
}

/**
 * Pages known to be in the object store, by the digests of their keys: two generations, of which the older one is
 * forgotten when the younger one is full. Two keys with one digest count as one, so one of them may never be sent.
 */
class KnownPages {
  #young = new Set<number>();
  #old = new Set<number>();

  has(key: string): boolean {
    const digest = digestOf(key);
    return this.#young.has(digest) || this.#old.has(digest);
  }

  add(key: string): void {
    if (this.#young.size >= OBJECT_KNOWN_MAX_PAGES / 2) {
      this.#old = this.#young;
      this.#young = new Set();
    }
    this.#young.add(digestOf(key));
  }

  delete(key: string): void {
    const digest = digestOf(key);
    this.#young.delete(digest);
    this.#old.delete(digest);
  }

  clear(): void {
    this.#young.clear();
    this.#old.clear();
  }
}
