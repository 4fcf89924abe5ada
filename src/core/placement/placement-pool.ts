import type { Core } from '../binding/core.js';
import { PoolAllocator } from '../pool/pool-allocator.js';
import type { RequestHint, RequestOptions } from '../pool/pool-types.js';
import { REPORTS_CALLER } from '../pool/request-terms.js';
import type { PlacementSettings } from './placement-options.js';

/** The outcome of one write call, page by page. */
interface PoolChanges {
  /** Keys of pages that are new in the pool. */
  readonly placed: Set<string>;
  /** Keys of pages that have left the pool, each once. */
  readonly evicted: Set<string>;
  readonly evictions: number;
  /** Number of pages of the call that found no room. */
  readonly refused: number;
}

/**
 * The pool of one simulated node. It makes all of the simulation's calls to a {@link PoolAllocator}, and describes
 * requests to it as a store does.
 */
export class PlacementPool {
  readonly #allocator: PoolAllocator;
  readonly #pageBytes: number;

  constructor(settings: PlacementSettings, { core, segmentBytes }: { core: Core; segmentBytes: number | undefined }) {
    this.#pageBytes = settings.pageBytes;
    this.#allocator = new PoolAllocator({
      core,
      capacityBytes: settings.poolBytes,
      policy: settings.policy,
      quarantineMs: settings.quarantineMs,
      // With a disk, the head of a request is still available when the pool has only its end.
      keepsHeads: settings.diskPages === 0,
      ...(segmentBytes === undefined ? {} : { segmentBytes }),
    });
  }

  get pages(): number {
    return this.#allocator.size;
  }

  get evictions(): number {
    return this.#allocator.stats().evictions;
  }

  /** Simulates one read call of the node's program: pages in the pool count as used, in order. */
  read(keys: readonly string[], hint: RequestHint): void {
    this.#allocator.touchBatch(keys, { hint });
  }

  /** Handles another node's report that it has read these pages, in order. Some may have left the pool since. */
  reported(keys: readonly string[], hint: RequestHint): void {
    this.#allocator.touchBatch(keys, { hint, caller: REPORTS_CALLER, continues: false, endsElsewhere: true });
  }

  /**
   * Sets pages in order: a page that is in the pool counts as used, others are placed. A page may be evicted for a
   * later page of the same call.
   */
  set(given: readonly string[], { hint, nowMs }: { hint: RequestHint; nowMs: number }): PoolChanges {
    const keys = [...new Set(given)];
    const inPool = new Set<string>();
    const placed = new Set<string>();
    const evicted = new Set<string>();
    let evictions = 0;
    let part: RequestOptions = { hint };
    for (let start = 0; start < keys.length; ) {
      const isHere = this.#allocator.hasBatch(start === 0 ? keys : keys.slice(start));
      const end = start + runLength(isHere);
      const run = start === 0 && end === keys.length ? keys : keys.slice(start, end);
      start = end;
      if (isHere[0] === 1) {
        this.#allocator.touchBatch(run, part);
        for (const key of run) inPool.add(key);
        part = { hint, continues: true };
        continue;
      }
      const placement = this.#allocator.publishBatch(run, this.#pageBytes, nowMs, part);
      part = { hint, continues: true };
      for (const key of placement.evicted) {
        inPool.delete(key);
        placed.delete(key);
        evicted.add(key);
      }
      evictions += placement.evicted.length;
      run.forEach((key, i) => {
        // Negative offset: the page found no room, or was evicted for a later page of the run.
        if ((placement.offsets[i] as number) < 0) return;
        inPool.add(key);
        placed.add(key);
        evicted.delete(key);
      });
    }
    // If a new page was evicted at once for an older one, that is the policy's choice; otherwise the call is too large
    // for the pool.
    const isTaken = (key: string) => inPool.has(key) || (evicted.has(key) && this.pages > inPool.size);
    const refused = given.reduce((count, key) => count + Number(!isTaken(key)), 0);
    return { placed, evicted, evictions, refused };
  }

  /** Notes when pages will be asked for; see `PoolAllocator.expectBatch`. */
  expect(keys: readonly string[], inMs: number, nowMs: number): void {
    this.#allocator.expectBatch(keys, inMs, nowMs);
  }

  /** Removes pages that another node has, too. */
  drop(keys: readonly string[], nowMs: number): void {
    this.#allocator.removeBatch(keys, nowMs);
  }

  /** The keys of all pages, for checks. */
  keys(): string[] {
    return this.#allocator.keys();
  }

  verify(): void {
    this.#allocator.verify();
  }

  free(): void {
    this.#allocator.free();
  }
}

/** Number of leading elements that equal the first one. */
function runLength(flags: Uint8Array): number {
  let length = 1;
  while (length < flags.length && flags[length] === flags[0]) length++;
  return length;
}

/** The outcome of requests to a {@link PlacementSimulation}; counts are in pages unless named otherwise. */
export interface PlacementCounts {
  readonly requests: number;
  readonly pagesAsked: number;
  /** Pages before the first miss of their request, all of which are read. */
  readonly prefixHits: number;
  /** Prefix hits that were read from the pool of the node that served the request. */
  readonly localHits: number;
  /** Prefix hits that were read from another node's pool. */
  readonly remoteHits: number;
  /** Prefix hits that were read from the disk tier of the node. */
  readonly diskHits: number;
  /** Pages that were written to the disk tier. */
  readonly diskWrites: number;
  /** Pages from the first miss on, which the serving node sets. */
  readonly pagesSet: number;
  /** Pages that were set although another node had them: they took room in the pool and were dropped again. */
  readonly duplicates: number;
  /** Pages to be set that were not in the pool at the end of the call, for want of room. */
  readonly refused: number;
  readonly evictions: number;
  /** Bytes of pages that one node has read from another. */
  readonly movedBytes: number;
}

/** The counts of one interval of the trace's time. */
export interface PlacementInterval extends PlacementCounts {
  /** The start of the interval; the first one begins with the first request. */
  readonly startMs: number;
}

/** Mutable counts. */
type OpenCounts = { -readonly [Name in keyof PlacementCounts]: number };

/** Creates counts that are all zero. */
function noPlacementCounts(): OpenCounts {
  return {
    requests: 0,
    pagesAsked: 0,
    prefixHits: 0,
    localHits: 0,
    remoteHits: 0,
    diskHits: 0,
    diskWrites: 0,
    pagesSet: 0,
    duplicates: 0,
    refused: 0,
    evictions: 0,
    movedBytes: 0,
  };
}

/** Counts by interval of time. Intervals without a request have no element. */
export class PlacementSeries {
  readonly #intervalMs: number;
  readonly #intervals: { readonly startMs: number; readonly counts: OpenCounts }[] = [];
  #originMs = 0;
  #endMs = Number.NEGATIVE_INFINITY;

  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  /** The counts of the interval that contains `nowMs`, which must never decrease. */
  at(nowMs: number): OpenCounts {
    const last = this.#intervals.at(-1);
    if (last !== undefined && nowMs < this.#endMs) return last.counts;
    if (last === undefined) this.#originMs = nowMs;
    const index = Math.floor((nowMs - this.#originMs) / this.#intervalMs);
    const startMs = this.#originMs + index * this.#intervalMs;
    this.#endMs = startMs + this.#intervalMs;
    const counts = noPlacementCounts();
    this.#intervals.push({ startMs, counts });
    return counts;
  }

  /** Totals over all intervals. */
  total(): PlacementCounts {
    const sum = noPlacementCounts();
    const names = Object.keys(sum) as (keyof PlacementCounts)[];
    for (const { counts } of this.#intervals) for (const name of names) sum[name] += counts[name];
    return sum;
  }

  intervals(): PlacementInterval[] {
    return this.#intervals.map(({ startMs, counts }) => ({ startMs, ...counts }));
  }
}
