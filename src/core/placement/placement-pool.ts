import type { Core } from '../binding/core.js';
import { PoolAllocator } from '../pool/pool-allocator.js';
import type { RequestHint, RequestOptions } from '../pool/pool-types.js';
import { REPORTS_CALLER } from '../pool/request-callers.js';
import type { PlacementSettings } from './placement-options.js';

/** The outcome of one write call, page by page. */
export interface PoolChanges {
  /** Keys of pages that are new in the pool. */
  readonly placed: Set<string>;
  /** Keys of pages that have left the pool, each once. */
  readonly evicted: Set<string>;
  readonly evictions: number;
  /** Number of pages of the call that found no room. */
  readonly refused: number;
}

/**
 * The pool of one simulated node. It makes all calls of the simulation to a {@link PoolAllocator}, and describes
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
      keepsHeads: true,
      ...(segmentBytes === undefined ? {} : { segmentBytes }),
    });
  }

  get pages(): number {
    return this.#allocator.size;
  }

  get evictions(): number {
    return this.#allocator.stats().evictions;
  }

  /** One read call of the node's program: pages that are in the pool count as used, in order. */
  read(keys: readonly string[], hint: RequestHint): void {
    this.#allocator.touchBatch(keys, { hint });
  }

  /** Another node's report that it has read these pages, in order. Some may have left the pool since. */
  reported(keys: readonly string[], hint: RequestHint): void {
    this.#allocator.touchBatch(keys, { hint, caller: REPORTS_CALLER, continues: false, endsElsewhere: true });
  }

  /**
   * Sets pages in order: a page that is in the pool counts as used, another one is placed. A later page of the same
   * call may be evicted for it.
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
        // A negative offset: the page found no room, or a later page of the run has taken its room.
        if ((placement.offsets[i] as number) < 0) return;
        inPool.add(key);
        placed.add(key);
        evicted.delete(key);
      });
    }
    // A page that was evicted at once for an older one is the policy's choice; otherwise the call is too large for the
    // pool.
    const isTaken = (key: string) => inPool.has(key) || (evicted.has(key) && this.pages > inPool.size);
    const refused = given.reduce((count, key) => count + Number(!isTaken(key)), 0);
    return { placed, evicted, evictions, refused };
  }

  /** Removes pages that another node has. */
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

/** Number of elements at the beginning that are equal to the first one. */
function runLength(flags: Uint8Array): number {
  let length = 1;
  while (length < flags.length && flags[length] === flags[0]) length++;
  return length;
}
