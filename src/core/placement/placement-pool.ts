import type { Core } from '../binding/core.js';
import { PoolAllocator } from '../pool/pool-allocator.js';
import type { RequestHint, RequestOptions } from '../pool/pool-types.js';
import { REPORTS_CALLER } from '../pool/request-callers.js';
import type { PlacementSettings } from './placement-options.js';

/** What became of the pages of one write call. */
export interface PoolChanges {
  /** Keys of pages that are new in the pool. */
  readonly placed: Set<string>;
  /** Keys of pages that have left it, each once. */
  readonly evicted: Set<string>;
  readonly evictions: number;
  /** Pages of the call that have found no room. */
  readonly refused: number;
}

/**
 * The pool of one simulated node: all of the simulation's calls to a {@link PoolAllocator} are here. It is told the same of requests as a
 * store tells its pool.
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
      ...(segmentBytes === undefined ? {} : { segmentBytes }),
    });
  }

  get pages(): number {
    return this.#allocator.size;
  }

  get evictions(): number {
    return this.#allocator.stats().evictions;
  }

  /** One read call of the node's program; those that are here count as used, in order. */
  read(keys: readonly string[], hint: RequestHint): void {
    this.#allocator.touchBatch(keys, { hint });
  }

  /** Another node reports that it has read these pages, in order; some may have gone. */
  reported(keys: readonly string[], hint: RequestHint): void {
    this.#allocator.touchBatch(keys, { hint, caller: REPORTS_CALLER, continues: false, endsElsewhere: true });
  }

  /** Sets pages in order: one that is here counts as used, another one is placed. What is evicted for it may be a later one of the call. */
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
        // Else it has found no room, or a later one of the run has taken it.
        if ((placement.offsets[i] as number) < 0) return;
        inPool.add(key);
        placed.add(key);
        evicted.delete(key);
      });
    }
    // Evicted at once for a page that was there before: the policy's choice. Else the call is too large.
    const isTaken = (key: string) => inPool.has(key) || (evicted.has(key) && this.pages > inPool.size);
    const refused = given.reduce((count, key) => count + Number(!isTaken(key)), 0);
    return { placed, evicted, evictions, refused };
  }

  /** Removes pages that another node has. */
  drop(keys: readonly string[], nowMs: number): void {
    this.#allocator.removeBatch(keys, nowMs);
  }

  /** Every key, for checks. */
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

/** Elements from the first on that are like the first. */
function runLength(flags: Uint8Array): number {
  let length = 1;
  while (length < flags.length && flags[length] === flags[0]) length++;
  return length;
}
