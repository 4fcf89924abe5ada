import { assert, assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import { Mutex } from '../../base/concurrency/mutex.js';
import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import { PROMOTE_ANSWER_MAX_MS, PROMOTE_LEASE_MS } from '../../base/limits.js';
import {
  type LocalRead,
  NO_ORIGIN,
  type PageBytes,
  type PageLease,
  type PageOrigin,
  type PublishedPool,
} from '../../pool/published-pool.js';
import type { DataLocation } from '../../types.js';
import type { HoldOutcome } from '../ground/other-holders.js';
import { STAY_LIMITS } from './hold-rules.js';

/** A page on the disk. */
export interface DiskPage extends Partial<PageOrigin> {
  readonly length: number;
  readonly checksum: number;
}

export interface PromotableDisk {
  /** The readable pages; null for others. Does not count as a use. */
  peekBatch(keys: readonly string[]): (DiskPage | null)[];
  /**
   * Reads pages; one outcome for each key. `read`: the bytes match their checksum. The targets are in use until the
   * promise resolves.
   */
  readPages(keys: readonly string[], targets: readonly PageBytes[]): Promise<LocalRead[]>;
}

export interface PromoterParts {
  readonly disk: PromotableDisk;
  readonly pool: Pick<PublishedPool, 'capacity' | 'peekBatch' | 'fillPages' | 'lease' | 'unlease'>;
  /** Announces pages of the pool in the directory; not awaited. */
  readonly announce: (keys: readonly string[]) => Promise<unknown>;
  /** Resolves with which pages of the disk are still good, as far as can be known; others are not promoted. */
  readonly confirm: (keys: readonly string[]) => Promise<boolean[]>;
  /** Locations of pages that are in the pool; null for others. */
  readonly locationsOf: (keys: readonly string[]) => (DataLocation | null)[];
  /** Bytes that pinned pages take from the room for promoted ones. */
  readonly pinnedBytes: () => number;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/** A reader for whom a page is kept in the pool. */
interface Holder {
  /** Number of answers with this location that the reader has not released yet. */
  answers: number;
  untilMs: number;
}

/** A page that is kept in the pool, or is being read into it. */
interface KeptPage {
  readonly key: string;
  readonly bytes: number;
  readonly holders: Map<string, Holder>;
  lease: PageLease | null;
  /** Resolves when the page is in the pool or has failed; undefined once that has happened. */
  arrival: Promise<void> | undefined;
  /** Outcome for a reader that finds the page neither in the pool nor on its way there. */
  failure: 'absent' | 'later';
}

interface Taken {
  readonly pages: ReadonlyMap<string, KeptPage | 'absent' | 'later'>;
  /** Whether no page could be taken, but more room would change that. */
  readonly isStuck: boolean;
}

/**
 * The owner's side of promotion: brings pages from its disk into its pool, where other nodes read them.
 *
 * A page is kept in the pool for each reader that got its location, until the reader releases it or its time is up. The
 * disk is read once for all readers of a page.
 *
 * Accounting: `#keptBytes` is the sum over `#kept`: all pages that are on their way or leased, never more than
 * PROMOTE_POOL_FRACTION of the pool minus its pinned pages, or one page. Readers without room wait in order of arrival,
 * and no later reader is served before them: a reader that asks often does not keep the others out.
 */
export class Promoter {
  readonly #parts: PromoterParts;
  readonly #maxBytes: number;
  readonly #kept = new Map<string, KeptPage>();
  #keptBytes = 0;
  readonly #roomTurns = new Mutex();
  /** Wakes the readers that wait for room. */
  #wake: () => void = () => {};
  #cancelTimer: (() => void) | undefined;
  readonly #fetches = new Set<Promise<void>>();
  #isClosed = false;

  constructor(parts: PromoterParts) {
    this.#parts = parts;
    this.#maxBytes = parts.pool.capacity * STAY_LIMITS.leased.poolFraction;
  }

  /**
   * Promotes pages, in order, as many as fit; one outcome for each key, after little more than PROMOTE_ANSWER_MAX_MS at
   * the latest. `reader` may read them for PROMOTE_LEASE_MS, and must {@link release} them.
   */
  async promote(reader: string, keys: readonly string[]): Promise<HoldOutcome[]> {
    const untilMs = this.#parts.clock.nowMs() + PROMOTE_ANSWER_MAX_MS;
    const all = [...new Set(keys)];
    const isGood = await this.#parts.confirm(all);
    const distinct = all.filter((_, i) => isGood[i]);
    let taken = this.#take(reader, distinct, !this.#roomTurns.isLocked);
    if (taken.isStuck) taken = await this.#roomTurns.run(() => this.#takeWhenRoom(reader, distinct, untilMs));
    await this.#arrived(taken, untilMs);
    const outcomes = this.#answer(reader, distinct, taken);
    return keys.map((key) => outcomes.get(key) ?? 'absent');
  }

  /** Records that `reader` is done with these pages, once for each time that a key is listed. */
  release(reader: string, keys: readonly string[]): void {
    for (const key of keys) {
      const page = this.#kept.get(key);
      const holder = page?.holders.get(reader);
      if (page === undefined || holder === undefined || --holder.answers > 0) continue;
      page.holders.delete(reader);
      this.#dropUnheld(page);
    }
  }

  /** Ends all leases. Resolves when no read from disk is in progress. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    for (const page of [...this.#kept.values()]) if (page.arrival === undefined) this.#drop(page);
    this.#wake();
    await Promise.all(this.#fetches);
  }

  async #takeWhenRoom(reader: string, keys: readonly string[], untilMs: number): Promise<Taken> {
    for (;;) {
      const taken = this.#take(reader, keys, true);
      const waitMs = untilMs - this.#parts.clock.nowMs();
      if (!taken.isStuck || waitMs <= 0) return taken;
      await this.#within(waitMs, new Promise<void>((resolve) => (this.#wake = resolve)));
    }
  }

  /** Collects pages that are here and, while there is room, starts the promotion of others. */
  #take(reader: string, keys: readonly string[], mayTakeRoom: boolean): Taken {
    const { pool, disk } = this.#parts;
    const pages = new Map<string, KeptPage | 'absent' | 'later'>();
    if (this.#isClosed) return { pages, isStuck: false };
    const inPool = pool.peekBatch(keys);
    const onDisk = disk.peekBatch(keys);
    const missing: KeptPage[] = [];
    let missingBytes = 0;
    let hasRoom = mayTakeRoom;
    for (const [i, key] of keys.entries()) {
      const known = this.#keptPage(key);
      const bytes = inPool[i]?.length ?? onDisk[i]?.length;
      const isOnDisk = inPool[i] === null;
      const isTooMuch = isOnDisk && missingBytes > 0 && missingBytes + (bytes ?? 0) > STAY_LIMITS.leased.sliceBytes;
      if (known !== undefined) {
        pages.set(key, known);
        this.#hold(known, reader);
        continue;
      }
      if (bytes === undefined || bytes > pool.capacity) {
        pages.set(key, 'absent');
        continue;
      }
      hasRoom &&= !isTooMuch && this.#hasRoom(bytes);
      if (!hasRoom) {
        pages.set(key, 'later');
        continue;
      }
      const page = this.#keep(key, bytes);
      pages.set(key, page);
      this.#hold(page, reader);
      if (isOnDisk) {
        missing.push(page);
        missingBytes += bytes;
      } else {
        page.lease = pool.lease([key])[0] ?? null;
      }
    }
    if (missing.length > 0) this.#fetch(missing);
    const all = [...pages.values()];
    return { pages, isStuck: all.includes('later') && all.every((page) => typeof page === 'string') };
  }

  /** Starts to read these pages from disk. */
  #fetch(pages: readonly KeptPage[]): void {
    const fetch = this.#fill(pages).finally(() => this.#fetches.delete(fetch));
    this.#fetches.add(fetch);
    for (const page of pages) page.arrival = fetch;
  }

  /** Reads pages from disk into the pool. Never rejects. */
  async #fill(pages: readonly KeptPage[]): Promise<void> {
    const { disk, pool, metrics, announce } = this.#parts;
    const keys = pages.map(({ key }) => key);
    const onDisk = disk.peekBatch(keys);
    const origins = onDisk.map((page) => originOf(page));
    const lengths = pages.map(({ bytes }) => bytes);
    let leases: readonly (PageLease | null)[] = [];
    try {
      leases = await pool.fillPages(keys, lengths, (targets) => this.#readFromDisk(pages, targets, onDisk), {
        origins,
      });
    } catch {
      for (const page of pages) page.failure = 'absent';
    }
    const arrived: string[] = [];
    pages.forEach((page, i) => {
      page.arrival = undefined;
      page.lease = leases[i] ?? null;
      if (page.lease !== null) arrived.push(page.key);
      for (const reader of page.holders.keys()) this.#hold(page, reader);
      if (page.lease === null || this.#isClosed) this.#drop(page);
      else this.#dropUnheld(page);
    });
    if (arrived.length === 0 || this.#isClosed) return;
    metrics.count('meshcache_promoted_pages_total', arrived.length);
    announce(arrived).catch(() => metrics.count('meshcache_promote_announce_failures_total'));
  }

  /** Reads pages from disk; one checksum for each page, null if it has no target or the read failed. */
  async #readFromDisk(
    pages: readonly KeptPage[],
    targets: readonly (PageBytes | null)[],
    onDisk: readonly (DiskPage | null)[],
  ): Promise<readonly (number | null)[]> {
    const { disk, metrics } = this.#parts;
    const wanted = pages.filter((_, i) => targets[i] !== null);
    const before = onDisk.filter((_, i) => targets[i] !== null);
    const keys = wanted.map(({ key }) => key);
    for (const page of wanted) page.failure = 'absent';
    const outcomes = await disk.readPages(
      keys,
      targets.filter((target) => target !== null),
    );
    const after = disk.peekBatch(keys);
    const sums = new Map<string, number>();
    keys.forEach((key, i) => {
      const checksum = before[i]?.checksum;
      // If the page under the key changed meanwhile, it is unknown which of the two was read.
      const isSame = checksum !== undefined && (after[i]?.checksum ?? checksum) === checksum;
      if (outcomes[i] === 'read' && isSame) sums.set(key, checksum);
    });
    if (sums.size < keys.length) metrics.count('meshcache_promote_failures_total', keys.length - sums.size);
    return pages.map(({ key }) => sums.get(key) ?? null);
  }

  /** Resolves when all pages on their way have arrived, or the time is up. */
  async #arrived({ pages }: Taken, untilMs: number): Promise<void> {
    const arrivals = new Set<Promise<void>>();
    for (const page of pages.values()) {
      if (typeof page !== 'string' && page.arrival !== undefined) arrivals.add(page.arrival);
    }
    if (arrivals.size === 0) return;
    await this.#within(untilMs - this.#parts.clock.nowMs(), Promise.all(arrivals));
  }

  #answer(reader: string, keys: readonly string[], { pages }: Taken): Map<string, HoldOutcome> {
    const outcomes = new Map<string, HoldOutcome>(keys.map((key) => [key, 'absent']));
    if (this.#isClosed) return outcomes;
    const locations = this.#parts.locationsOf(keys);
    keys.forEach((key, i) => {
      const page = pages.get(key) ?? 'absent';
      if (typeof page === 'string') {
        outcomes.set(key, page);
        return;
      }
      const location = locations[i];
      if (location?.tier !== 'memory') {
        outcomes.set(key, page.arrival === undefined ? page.failure : 'later');
        return;
      }
      outcomes.set(key, location);
      if (this.#kept.get(key) === page) this.#hold(page, reader).answers++;
    });
    return outcomes;
  }

  /** The kept page of a key; undefined if there is none, or if it was removed or replaced. */
  #keptPage(key: string): KeptPage | undefined {
    const page = this.#kept.get(key);
    if (page === undefined || page.arrival !== undefined || page.lease?.isLive === true) return page;
    this.#drop(page);
    return undefined;
  }

  #hasRoom(bytes: number): boolean {
    return this.#keptBytes === 0 || this.#keptBytes + bytes + this.#parts.pinnedBytes() <= this.#maxBytes;
  }

  #keep(key: string, bytes: number): KeptPage {
    const page: KeptPage = { key, bytes, holders: new Map(), lease: null, arrival: undefined, failure: 'later' };
    this.#kept.set(key, page);
    this.#keptBytes += bytes;
    return page;
  }

  /** Holds a page for `reader`, whose lease begins now. */
  #hold(page: KeptPage, reader: string): Holder {
    const untilMs = this.#parts.clock.nowMs() + PROMOTE_LEASE_MS;
    let holder = page.holders.get(reader);
    if (holder === undefined) {
      holder = { answers: 0, untilMs };
      page.holders.set(reader, holder);
    }
    holder.untilMs = untilMs;
    this.#setTimer(PROMOTE_LEASE_MS);
    return holder;
  }

  #dropUnheld(page: KeptPage): void {
    if (page.holders.size === 0 && page.arrival === undefined) this.#drop(page);
  }

  #drop(page: KeptPage): void {
    if (this.#kept.get(page.key) === page) {
      this.#kept.delete(page.key);
      this.#keptBytes = reduced('promoter: kept bytes', this.#keptBytes, page.bytes);
    }
    if (page.lease !== null) this.#parts.pool.unlease([page.lease]);
    page.lease = null;
    this.#wake();
  }

  #setTimer(delayMs: number): void {
    if (this.#isClosed) return;
    this.#cancelTimer ??= this.#parts.clock.after(delayMs, () => {
      this.#cancelTimer = undefined;
      this.#dropExpired();
    });
  }

  #dropExpired(): void {
    const nowMs = this.#parts.clock.nowMs();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const page of [...this.#kept.values()]) {
      // Pages on their way have no time limit; it begins when they arrive.
      if (page.arrival !== undefined) continue;
      for (const [reader, { untilMs }] of page.holders) {
        if (untilMs <= nowMs) page.holders.delete(reader);
        else nextMs = Math.min(nextMs, untilMs);
      }
      this.#dropUnheld(page);
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#setTimer(nextMs - nowMs);
  }

  /** Resolves with `promise`, or after `waitMs` milliseconds. */
  #within(waitMs: number, promise: Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.after(Math.max(0, waitMs), resolve);
      void promise.then(() => {
        cancel();
        resolve();
      });
    });
  }

  /** Throws `InvariantError` unless the accounting of this class holds, and every kept page will be released. */
  verify(): void {
    let bytes = 0;
    for (const [key, page] of this.#kept) {
      bytes += page.bytes;
      const name = (): string => `promoter: the page ${JSON.stringify(page.key)}`;
      assert(page.key === key, () => `${name()} is kept as ${JSON.stringify(key)}`);
      if (page.arrival !== undefined) {
        assert(this.#fetches.has(page.arrival), () => `${name()} is on its way, and nothing fetches it`);
        continue;
      }
      assert(!this.#isClosed, () => `${name()} is kept after the end`);
      assert(page.lease !== null, () => `${name()} is kept, neither leased nor on its way`);
      assert(
        page.holders.size > 0 && this.#cancelTimer !== undefined,
        () => `${name()} is kept for nobody, or for ever`,
      );
      for (const [reader, { answers }] of page.holders) {
        assert(answers >= 0, () => `${name()} has ${answers} answers to ${reader}`);
      }
    }
    assertEqual('promoter: bytes', this.#keptBytes, bytes);
    if (this.#kept.size > 1) assertAtMost('promoter: bytes of several pages', bytes, this.#maxBytes);
  }
}

function originOf(page: Partial<PageOrigin> | null): PageOrigin {
  const { version, kind, expires, setBy } = { ...NO_ORIGIN, ...page };
  return { version, kind, expires, setBy };
}
