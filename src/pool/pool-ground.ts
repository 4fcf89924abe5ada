import { assertAtMost } from '../base/assert.js';
import type { Clock } from '../base/environment/clock.js';
import { ArgumentError } from '../base/errors.js';
import { regionOf } from '../memory/address-space.js';
import type { HostRegion } from '../memory/host-region.js';
import { STAMP_BYTES } from '../memory/page-stamp.js';
import type { CopyThreads } from './copy-threads.js';
import { KeptPages } from './kept-pages.js';
import type { PageBytes } from './page-batch.js';
import { PageIndex, type PageIndexOptions, type PageOrigin, type PublishedPage } from './page-index.js';
import { PageLeases } from './page-leases.js';
import { PageStamps } from './page-stamps.js';
import { indexOptionsOf, type PublishedPoolOptions } from './pool-options.js';

/** The ground that the parts of one pool stand on: its memory, index, leases, stamps and records. */
export class PoolGround {
  readonly memory: PoolMemory;
  readonly index: PageIndex;
  readonly leases: PageLeases;
  /** Undefined: pages have no stamps. */
  readonly stamps: PageStamps | undefined;
  /** Undefined: the memory does not outlive the process. */
  readonly kept: KeptPages | undefined;
  readonly copyThreads: CopyThreads;
  readonly clock: Clock;
  readonly capacity: number;
  readonly #onEvict: (keys: string[]) => void;
  readonly #onLeaving: PublishedPoolOptions['onLeaving'];
  #longestBytes = 0;

  /** Takes `capacity` bytes from `baseAddr` on, in one live `HostRegion`. Throws `ArgumentError` if there is none. */
  constructor(baseAddr: bigint, capacity: number, options: PublishedPoolOptions) {
    const { records, keepsCopies, stamps } = options;
    this.memory = new PoolMemory(baseAddr, capacity);
    this.capacity = capacity;
    this.copyThreads = options.copyThreads;
    this.clock = options.clock;
    this.#onEvict = options.onEvict ?? (() => {});
    this.stamps = stamps && new PageStamps((offset, length) => this.memory.bytes(offset, length), stamps);
    const settings = indexOptionsOf(options, { capacityBytes: capacity, segmentBytes: this.memory.segmentBytes });
    const ofStamps = { spaceMinBytes: STAMP_BYTES, onFreed: (slot: number) => this.#freed(slot) };
    this.#onLeaving = options.onLeaving;
    const onEvicted: PageIndexOptions['onEvicted'] = options.onLeaving && ((...told) => this.#leaving(...told));
    this.index = new PageIndex({ ...settings, ...(stamps && { ...ofStamps, onEvicted }) });
    this.leases = new PageLeases(this.index);
    this.kept = records && this.stamps && new KeptPages(records, this.index, this.stamps, { capacity, keepsCopies });
  }

  /** Length in bytes of the longest page so far. */
  get longestBytes(): number {
    return this.#longestBytes;
  }

  /** The page's bytes as read-only views, valid until control returns to the event loop or a hold of the page ends. */
  viewsOf({ offset, length, slot }: PublishedPage): Uint8Array[] {
    assertAtMost('pool: end of a page', offset + length, this.capacity);
    if (this.stamps === undefined) return [this.memory.bytes(offset, length)];
    const tail = this.stamps.tailBytesOf(slot, length);
    return length > STAMP_BYTES ? [this.memory.bytes(offset, length - STAMP_BYTES), tail] : [tail];
  }

  /** Removes a page and ends its leases. False: it was not here, or had not all its bytes. */
  remove(key: string): boolean {
    this.leases.endOf(key);
    return this.index.remove(key);
  }

  /** Stamps and records a page that has just been filled; no reader has been told of it yet. */
  filled(key: string, page: PublishedPage): PublishedPage {
    this.#longestBytes = Math.max(this.#longestBytes, page.length);
    this.stamps?.set(page.slot, page.offset, page.length);
    this.kept?.filled(key, page);
    return page;
  }

  /** Updates the origin of a page that was set again. */
  setOrigin(key: string, page: PublishedPage, origin: PageOrigin): void {
    this.index.setOrigin(page, origin);
    this.kept?.filled(key, { ...page, ...origin });
  }

  /** Reports a page that was evicted at once, for a later page of its own batch: its bytes were never here. */
  leavesAtOnce(key: string, bytes: PageBytes, origin: PageOrigin): void {
    this.#onLeaving?.({ ...origin, key, bytes, checksum: undefined });
  }

  /** Reports pages that have left the pool without a request to remove them. */
  tellGone(keys: ReadonlySet<string>): void {
    if (keys.size > 0) this.#onEvict([...keys]);
  }

  /** Reports an evicted page whose bytes and stamp are still in place. */
  #leaving(key: string, page: Omit<PublishedPage, 'offset'>): void {
    const offset = this.stamps?.offsetOf(page.slot, page.length) ?? 0;
    const bytes = { views: this.viewsOf({ ...page, offset }), length: page.length };
    const { checksum, version, kind, expires, setBy } = page;
    this.#onLeaving?.({ key, bytes, checksum, version, kind, expires, setBy });
  }

  #freed(slot: number): void {
    this.stamps?.destroy(slot);
    this.kept?.freed(slot);
  }
}

/** The range of a host region that holds the pages of one pool. */
export class PoolMemory {
  /** No page crosses a multiple of this many bytes. */
  readonly segmentBytes: number;
  readonly #region: HostRegion;
  /** Offset of the pool's start in its region. */
  readonly #regionOffset: number;

  /** Uses `capacity` bytes from `baseAddr`. Throws `ArgumentError` unless they lie in one live `HostRegion`. */
  constructor(baseAddr: bigint, capacity: number) {
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
    this.segmentBytes = Math.min(capacity, region.segmentBytes);
    this.#region = region;
    this.#regionOffset = regionOffset;
  }

  /** Bytes of the pool, starting at an offset. */
  bytes(offset: number, length: number): Uint8Array {
    return this.#region.bytes(this.#regionOffset + offset, length);
  }
}
