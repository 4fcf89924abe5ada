import { type Clock, systemClock } from '../base/clock.js';
import { ArgumentError } from '../base/errors.js';
import { PoolAllocator, type PoolAllocatorStats } from '../core/index.js';
import { regionOf, resolve } from '../memory/address-space.js';
import { crc32 } from '../memory/checksum.js';
import type { HostRegion } from '../memory/host-region.js';

export interface PublishedPoolOptions {
  /** Called with the keys of pages that have left the pool without being asked to. */
  readonly onEvict?: (keys: string[]) => void;
  readonly policy?: 'lru' | 's3fifo';
  /** Milliseconds for which a freed range is not reused; 0 reuses it at once. */
  readonly quarantineMs?: number;
  /** Never shorten the quarantine; a page for which there is no room meanwhile is refused. */
  readonly neverReuseEarly?: boolean;
  readonly clock?: Clock;
}

/** Bytes of one page, which lie in `views` one after the other. */
export interface PageBytes {
  readonly views: readonly Uint8Array[];
  /** Bytes in all views together. */
  readonly length: number;
}

export interface PublishedPage {
  /** From the start of the pool. */
  readonly offset: number;
  readonly length: number;
  readonly checksum: number;
  /** The page was there before, byte for byte: nothing was copied. */
  readonly alreadyPresent: boolean;
}

/**
 * The pages of one node in a range of host memory that peers may read.
 *
 * The allocator decides offsets; this class alone writes page bytes. A page enters the index and
 * gets its bytes within one synchronous call, so that nobody in the process can see an entry whose
 * bytes are not there yet. Its checksum is taken over the copy in the pool.
 *
 * Accounting: every key of the allocator has its checksum at its slot in `#checksumBySlot`.
 */
export class PublishedPool {
  readonly baseAddr: bigint;
  readonly capacity: number;
  readonly rkey: number;
  readonly #region: HostRegion;
  /** Offset of the pool's start in its region. */
  readonly #regionOffset: number;
  readonly #allocator: PoolAllocator;
  readonly #clock: Clock;
  readonly #onEvict: (keys: string[]) => void;
  #checksumBySlot = new Uint32Array(1024);
  #finalStats: PoolAllocatorStats | undefined;

  /** `capacity` bytes from `baseAddr` on must lie in one live `HostRegion`; `rkey` is what peers show to read them. */
  constructor(baseAddr: bigint, capacity: number, rkey: number, options: PublishedPoolOptions = {}) {
    if (typeof baseAddr !== 'bigint' || !Number.isSafeInteger(capacity)) {
      throw new ArgumentError(
        `pool: needs an address (bigint) and a number of bytes, got ${typeof baseAddr}, ${capacity}`,
      );
    }
    const region = regionOf(Number(baseAddr), capacity);
    if (region === null) {
      throw new ArgumentError(
        `pool: ${capacity} bytes from address ${baseAddr} on are not within a live HostRegion; allocate or wrap one first`,
      );
    }
    const regionOffset = Number(baseAddr - region.addr);
    if (regionOffset % region.segmentBytes !== 0 && region.segmentBytes < region.length) {
      throw new ArgumentError(`pool: starts ${regionOffset} bytes into a region of several segments; start it at one`);
    }
    this.baseAddr = baseAddr;
    this.capacity = capacity;
    this.rkey = rkey;
    this.#region = region;
    this.#regionOffset = regionOffset;
    this.#clock = options.clock ?? systemClock;
    this.#onEvict = options.onEvict ?? (() => {});
    this.#allocator = new PoolAllocator({
      capacityBytes: capacity,
      segmentBytes: Math.min(capacity, region.segmentBytes),
      policy: options.policy ?? 'lru',
      quarantineMs: options.quarantineMs ?? 0,
      neverReuseEarly: options.neverReuseEarly ?? false,
    });
  }

  get size(): number {
    return this.#allocator.size;
  }

  get bytesUsed(): number {
    return this.#allocator.usedBytes;
  }

  /**
   * Copies `length` bytes from `srcPtr` (in a live `HostRegion`) into the pool. Returns the address
   * at which peers read them; null when there is no room: too big, or all pinned or in quarantine.
   */
  publish(key: string, srcPtr: bigint, length: number): bigint | null {
    if (!Number.isSafeInteger(length) || length < 1) {
      throw new ArgumentError(`publish: length must be a whole number of at least 1 byte, got ${length}`);
    }
    const views = resolve(Number(srcPtr), length);
    if (views === null) {
      throw new ArgumentError(`publish: ${length} bytes from ${srcPtr} on are not within a live HostRegion`);
    }
    const [page] = this.publishBatch([key], [{ views, length }]);
    return page ? this.baseAddr + BigInt(page.offset) : null;
  }

  /**
   * Publishes in order; one result a key. Of a key given twice the last page counts, for both. The
   * call blocks for as long as the copying takes: callers slice large batches.
   */
  publishBatch(keys: readonly string[], pages: readonly PageBytes[]): (PublishedPage | null)[] {
    const lastIndex = new Map(keys.map((key, i) => [key, i]));
    if (lastIndex.size < keys.length) {
      const unique = [...lastIndex.values()];
      const published = this.publishBatch(
        unique.map((i) => keys[i] as string),
        unique.map((i) => pages[i] as PageBytes),
      );
      const byKey = new Map(unique.map((i, j) => [keys[i], published[j] ?? null]));
      return keys.map((key) => byKey.get(key) ?? null);
    }
    const results = new Array<PublishedPage | null>(keys.length).fill(null);
    const here = this.peekBatch(keys);
    const present = here.map((page, i) => (isSamePage(page, pages[i] as PageBytes) ? page : null));
    const allGone = new Set<string>();
    // Run by run, so that pages which are here and new ones are used in the order of the keys.
    for (let start = 0, end = 0; start < keys.length; start = end) {
      const isPresent = present[start] !== null;
      end = start + 1;
      while (end < keys.length && (present[end] !== null) === isPresent) end++;
      const run = { start, end };
      const gone = isPresent
        ? this.#useRun(keys, present, run, results)
        : this.#publishRun({ keys, pages, here }, run, results);
      for (const key of gone) {
        allGone.add(key);
        const index = lastIndex.get(key) ?? -1;
        if (index >= end) present[index] = null;
        else if (index < start && index >= 0) results[index] = null;
      }
    }
    // Last, so that no entry is without its bytes whatever the callback does.
    if (allGone.size > 0) this.#onEvict([...allGone]);
    return results;
  }

  /** Where each page lies, in order; null for those that are not here. Counts as a use. */
  lookupBatch(keys: readonly string[]): (PublishedPage | null)[] {
    return this.#pages(this.#allocator.lookupBatch(keys));
  }

  /** Like {@link lookupBatch}, without counting as a use. */
  peekBatch(keys: readonly string[]): (PublishedPage | null)[] {
    return this.#pages(this.#allocator.peekBatch(keys));
  }

  /** The page's bytes in the pool: valid until control goes back to the event loop, not to be written. */
  bytesOf(page: PublishedPage): Uint8Array {
    return this.#bytes(page.offset, page.length);
  }

  addressOf(key: string): [remoteAddr: bigint, length: number] | null {
    const found = this.#allocator.lookup(key);
    return found === null ? null : [this.baseAddr + BigInt(found.offset), found.bytes];
  }

  has(key: string): boolean {
    return this.#allocator.has(key);
  }

  /** One element a key, 1 when it is here. Does not count as a use. */
  hasBatch(keys: readonly string[]): Uint8Array {
    return this.#allocator.hasBatch(keys);
  }

  /** Counts as a use of those that are here. */
  touchBatch(keys: readonly string[]): void {
    this.#allocator.touchBatch(keys);
  }

  /** Asked-for removal: `onEvict` is not called. */
  remove(key: string): boolean {
    return this.#allocator.remove(key, this.#clock.nowMs());
  }

  /** Every key, next victim first. */
  keys(): string[] {
    return this.#allocator.keys();
  }

  /** Removes everything and returns what was removed. */
  clear(): string[] {
    const keys = this.#allocator.keys();
    this.#allocator.clear(this.#clock.nowMs());
    return keys;
  }

  /** After {@link free}: as they were last. */
  stats(): PoolAllocatorStats {
    return this.#finalStats ?? this.#allocator.stats();
  }

  /** Gives the index's memory back; only {@link stats} may be used afterwards. The region is its owner's to free. */
  free(): void {
    this.#finalStats ??= this.#allocator.stats();
    this.#allocator.free();
  }

  #useRun(
    keys: readonly string[],
    present: readonly (PublishedPage | null)[],
    { start, end }: Run,
    results: (PublishedPage | null)[],
  ): readonly string[] {
    this.#allocator.touchBatch(keys.slice(start, end));
    for (let i = start; i < end; i++) results[i] = present[i] ?? null;
    return [];
  }

  /** Returns the keys of pages that are gone: evicted, or replaced by one that could not be placed. */
  #publishRun(
    { keys, pages, here }: PublishBatch,
    { start, end }: Run,
    results: (PublishedPage | null)[],
  ): readonly string[] {
    const runKeys = keys.slice(start, end);
    const lengths = Float64Array.from(runKeys, (_, j) => (pages[start + j] as PageBytes).length);
    const { offsets, slots, evicted } = this.#allocator.publishBatch(runKeys, lengths, this.#clock.nowMs());
    const gone = [...evicted];
    for (let j = 0; j < runKeys.length; j++) {
      const offset = offsets[j] as number;
      const page = pages[start + j] as PageBytes;
      if (offset >= 0 && this.#copyIn(offset, page)) {
        const checksum = crc32(this.#bytes(offset, page.length));
        this.#setChecksum(slots[j] as number, checksum);
        results[start + j] = { offset, length: page.length, checksum, alreadyPresent: false };
        continue;
      }
      if (offset >= 0) this.remove(runKeys[j] as string);
      if (here[start + j] !== null) gone.push(runKeys[j] as string);
    }
    return gone;
  }

  #pages(found: { offsets: Float64Array; bytes: Float64Array; slots: Int32Array }): (PublishedPage | null)[] {
    const pages: (PublishedPage | null)[] = [];
    for (let i = 0; i < found.offsets.length; i++) {
      const offset = found.offsets[i] as number;
      const checksum = this.#checksumBySlot[found.slots[i] as number] as number;
      pages.push(offset < 0 ? null : { offset, length: found.bytes[i] as number, checksum, alreadyPresent: true });
    }
    return pages;
  }

  /** False: the source is not as long as it was said to be; its memory may have been detached meanwhile. */
  #copyIn(offset: number, page: PageBytes): boolean {
    const sourceBytes = page.views.reduce((sum, view) => sum + view.length, 0);
    if (sourceBytes !== page.length) return false;
    const target = this.#bytes(offset, page.length);
    let at = 0;
    for (const view of page.views) {
      target.set(view, at);
      at += view.length;
    }
    return true;
  }

  #bytes(offset: number, length: number): Uint8Array {
    return this.#region.bytes(this.#regionOffset + offset, length);
  }

  #setChecksum(slot: number, checksum: number): void {
    if (slot >= this.#checksumBySlot.length) {
      const larger = new Uint32Array(Math.max(slot + 1, this.#checksumBySlot.length * 2));
      larger.set(this.#checksumBySlot);
      this.#checksumBySlot = larger;
    }
    this.#checksumBySlot[slot] = checksum;
  }
}

interface PublishBatch {
  readonly keys: readonly string[];
  readonly pages: readonly PageBytes[];
  /** What was here under each key before the batch. */
  readonly here: readonly (PublishedPage | null)[];
}

/** Indices of a batch, the end excluded. */
interface Run {
  readonly start: number;
  readonly end: number;
}

/** Whether what is here has the very bytes; they are summed only when the lengths agree. */
function isSamePage(here: PublishedPage | null, page: PageBytes): boolean {
  return here !== null && here.length === page.length && here.checksum === checksumOf(page);
}

function checksumOf(page: PageBytes): number {
  let checksum = 0;
  for (const view of page.views) checksum = crc32(view, checksum);
  return checksum;
}
