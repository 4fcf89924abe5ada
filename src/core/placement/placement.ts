import { ArgumentError, MeshCacheError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import { defaultCore } from '../binding/core.js';
import { checkWait } from '../pool/pool-settings.js';
import type { RequestHint } from '../pool/pool-types.js';
import { hintNumber } from '../pool/request-terms.js';
import { PlacementDisk } from './placement-disk.js';
import { type PlacementOptions, type PlacementSettings, placementSettings } from './placement-options.js';
import { type PlacementCounts, type PlacementInterval, PlacementPool, PlacementSeries } from './placement-pool.js';
import { type PlacementRouter, placementRouter } from './placement-routing.js';

/** One request of a trace, as in the Mooncake format. */
export interface PlacementRequest {
  /** Time of the request. A time before that of the previous request counts as equal to it. */
  readonly timestampMs: number;
  /** One id per page, in order. Ids are chained: equal ids have equal prefixes. */
  readonly hashIds: readonly number[];
  /** The conversation, for routing by session. If missing, it is inferred from the pages. */
  readonly session?: string | number | undefined;
  /**
   * Hint that the caller gives with every read and write; the policy `yield` learns its meaning. Default: 0, no hint.
   */
  readonly hint?: RequestHint | undefined;
  /**
   * Milliseconds after which the caller expects to ask for these pages again; Infinity: never. Default: not told. The
   * policy `yield` evicts those first that are expected last.
   */
  readonly returnsInMs?: number | undefined;
  /** Pages that are never asked for again, as the caller says with this request. Default: none. */
  readonly overIds?: readonly number[] | undefined;
}

/** The outcome of one request. */
export interface PlacementOutcome {
  /** The node that served the request, counted from 0. */
  readonly node: number;
  /** Number of pages before the first miss. */
  readonly prefixHits: number;
  /** Prefix hits that were in other nodes' pools. */
  readonly remoteHits: number;
}

/** One node of a {@link PlacementSimulation}. */
export interface PlacementNode {
  /** Number of requests that the node has served. */
  readonly requests: number;
  /** Number of pages in the node's pool. */
  readonly pages: number;
  readonly evictions: number;
}

/** A report of reads in flight to the owner of the pages. */
interface Report {
  readonly dueMs: number;
  readonly owner: number;
  readonly keys: readonly string[];
  readonly hint: RequestHint;
}

/**
 * Simulates where the pages of a trace are placed in a cluster, and what later requests find there. The hash ring, the
 * allocator and the eviction policies are those of real nodes. There is no network, and no time other than the trace's.
 * It works wherever WebAssembly does.
 *
 * Requests are served one after the other, each by the node chosen by the routing. That node reads the longest prefix
 * of the request that exists anywhere in the cluster, in calls of `batchPages`, from its own pool or the owner's. It
 * sets the other pages in its own pool. After the call it drops those that another node has, as real nodes do without
 * `keep_duplicates`.
 *
 * Without a quarantine the counts equal those of `meshcache replay --quarantine-ms 0`: always with one node; with
 * several, unless a request there overtakes messages between nodes, because requests come without pauses. A quarantine
 * follows the trace's time here and real time there. A single node may have a disk tier, for whose
 * writes nothing waits. `promote_hot_reads` and `keep_duplicates` are not simulated.
 *
 *     const simulation = new PlacementSimulation({ nodes: 3, poolBytes: 1e9, pageBytes: 65536, policy: 'lru' });
 *     for (const request of trace) simulation.request(request);
 *     const { prefixHits, pagesAsked } = simulation.counts();
 *     simulation.free();
 */
export class PlacementSimulation {
  /** The options with their defaults. */
  readonly settings: PlacementSettings;
  readonly #pools: readonly PlacementPool[];
  /** Undefined without a disk tier, which only a single node has. */
  readonly #disk: PlacementDisk | undefined;
  readonly #router: PlacementRouter;
  readonly #series: PlacementSeries;
  /** The node that has each page; pages that are in no pool are missing. */
  readonly #owners = new Map<string, number>();
  readonly #requestsOfNode: number[];
  /** Reports in flight, in the order in which they are due. */
  #reports: Report[] = [];
  #nowMs = Number.NEGATIVE_INFINITY;

  /** Throws `ArgumentError` for invalid options. */
  constructor(options: PlacementOptions) {
    const settings = placementSettings(options);
    const { core = defaultCore(), segmentBytes } = options;
    this.settings = settings;
    this.#pools = Array.from({ length: settings.nodes }, () => new PlacementPool(settings, { core, segmentBytes }));
    this.#disk = settings.diskPages > 0 ? new PlacementDisk(settings, core) : undefined;
    this.#router = placementRouter(settings, core);
    this.#series = new PlacementSeries(settings.intervalMs);
    this.#requestsOfNode = new Array<number>(settings.nodes).fill(0);
  }

  /** Serves the next request. Throws `ArgumentError` for an invalid time, id, hint or wait before anything changes. */
  request({ timestampMs, hashIds, session, hint = 0, returnsInMs, overIds = [] }: PlacementRequest): PlacementOutcome {
    if (!Number.isFinite(timestampMs)) {
      throw new ArgumentError(`timestampMs must be a finite number, got ${shown(timestampMs)}`);
    }
    hintNumber(hint);
    if (returnsInMs !== undefined) checkWait('returnsInMs', returnsInMs);
    if (!Array.isArray(hashIds)) throw new ArgumentError(`hashIds must be a list of integers, got ${shown(hashIds)}`);
    if (!Array.isArray(overIds)) throw new ArgumentError(`overIds must be a list of integers, got ${shown(overIds)}`);
    const keys = hashIds.map(keyOf);
    const over = overIds.map(keyOf);
    const nowMs = Math.max(this.#nowMs, timestampMs);
    this.#nowMs = nowMs;
    this.#deliverReports(nowMs);
    const node = this.#router.route({ keys, session });
    const prefixHits = this.#prefixHits(keys);
    const { remoteHits, diskHits } = this.#read(node, keys.slice(0, prefixHits), hint);
    this.#set(node, keys.slice(prefixHits), hint);
    if (returnsInMs !== undefined) for (const pool of this.#pools) pool.expect(keys, returnsInMs, nowMs);
    if (over.length > 0) for (const pool of this.#pools) pool.expect(over, Number.POSITIVE_INFINITY, nowMs);
    this.#disk?.end(over);
    const counts = this.#series.at(nowMs);
    counts.requests++;
    counts.pagesAsked += keys.length;
    counts.prefixHits += prefixHits;
    counts.localHits += prefixHits - remoteHits - diskHits;
    counts.diskHits += diskHits;
    counts.remoteHits += remoteHits;
    counts.movedBytes += remoteHits * this.settings.pageBytes;
    this.#requestsOfNode[node] = (this.#requestsOfNode[node] as number) + 1;
    return { node, prefixHits, remoteHits };
  }

  /** The counts since the start. */
  counts(): PlacementCounts {
    return this.#series.total();
  }

  /** The counts by interval of trace time, in order; intervals without a request are omitted. */
  intervals(): PlacementInterval[] {
    return this.#series.intervals();
  }

  /** The nodes, in the order of their numbers. */
  nodes(): PlacementNode[] {
    return this.#pools.map(({ pages, evictions }, node) => {
      return { requests: this.#requestsOfNode[node] as number, pages, evictions };
    });
  }

  /** Checks every invariant; throws `ERR_CORE` with the broken one. Takes time in proportion to the pages. */
  verify(): void {
    let pages = 0;
    this.#disk?.verify();
    for (const [node, pool] of this.#pools.entries()) {
      pool.verify();
      for (const key of pool.keys()) {
        if (this.#owners.get(key) !== node) throw broken(`node ${node} has page ${key} and is not its owner`);
        pages++;
      }
    }
    if (pages !== this.#owners.size) throw broken(`${this.#owners.size} pages have owners, ${pages} are in pools`);
  }

  /**
   * Frees the memory of the pools and the ring; afterwards only {@link counts} and {@link intervals} may be used.
   * Idempotent.
   */
  free(): void {
    for (const pool of this.#pools) pool.free();
    this.#disk?.free();
    this.#router.free();
  }

  #prefixHits(keys: readonly string[]): number {
    let count = 0;
    const isThere = (key: string) => this.#owners.has(key) || this.#disk?.has(key) === true;
    while (count < keys.length && isThere(keys[count] as string)) count++;
    return count;
  }

  /** Reads pages, each of which some node has; returns how many were on other nodes, and on the disk only. */
  #read(node: number, keys: readonly string[], hint: RequestHint): { remoteHits: number; diskHits: number } {
    let [remoteHits, diskHits, isContinued] = [0, 0, false];
    for (const batch of this.#batches(keys)) {
      this.#pools[node]?.read(batch, hint);
      this.#disk?.read(batch, isContinued);
      isContinued = true;
      const keysOfOwner = new Map<number, string[]>();
      for (const key of batch) {
        const owner = this.#owners.get(key);
        if (owner === undefined) diskHits++;
        if (owner === node || owner === undefined) continue;
        const others = keysOfOwner.get(owner);
        if (others === undefined) keysOfOwner.set(owner, [key]);
        else others.push(key);
      }
      for (const [owner, pages] of keysOfOwner) {
        remoteHits += pages.length;
        this.#report(owner, pages, hint);
      }
    }
    return { remoteHits, diskHits };
  }

  #set(node: number, keys: readonly string[], hint: RequestHint): void {
    const pool = this.#pools[node] as PlacementPool;
    const counts = this.#series.at(this.#nowMs);
    for (const batch of this.#batches(keys)) {
      const { placed, evicted, evictions, refused } = pool.set(batch, { hint, nowMs: this.#nowMs });
      for (const key of evicted) if (this.#owners.get(key) === node) this.#owners.delete(key);
      const duplicates: string[] = [];
      for (const key of placed) {
        const owner = this.#owners.get(key) ?? node;
        if (owner === node) this.#owners.set(key, node);
        else duplicates.push(key);
      }
      if (duplicates.length > 0) pool.drop(duplicates, this.#nowMs);
      const before = this.#disk?.written ?? 0;
      this.#disk?.set(batch, evicted, this.#nowMs);
      counts.diskWrites += (this.#disk?.written ?? 0) - before;
      counts.pagesSet += batch.length - refused;
      counts.refused += refused;
      counts.duplicates += duplicates.length;
      counts.evictions += evictions;
    }
  }

  *#batches(keys: readonly string[]): Generator<readonly string[]> {
    const { batchPages } = this.settings;
    for (let start = 0; start < keys.length; start += batchPages) {
      yield keys.length <= batchPages ? keys : keys.slice(start, start + batchPages);
    }
  }

  #report(owner: number, keys: readonly string[], hint: RequestHint): void {
    const { reportDelayMs } = this.settings;
    if (reportDelayMs === 0) this.#pools[owner]?.reported(keys, hint);
    else if (reportDelayMs < Number.POSITIVE_INFINITY) {
      this.#reports.push({ dueMs: this.#nowMs + reportDelayMs, owner, keys, hint });
    }
  }

  /** Delivers the reports that are due. All have the same delay, so they are due in order. */
  #deliverReports(nowMs: number): void {
    const [first] = this.#reports;
    if (first === undefined || first.dueMs > nowMs) return;
    const late = this.#reports.findIndex(({ dueMs }) => dueMs > nowMs);
    const due = late < 0 ? this.#reports : this.#reports.slice(0, late);
    this.#reports = late < 0 ? [] : this.#reports.slice(late);
    for (const { owner, keys, hint } of due) this.#pools[owner]?.reported(keys, hint);
  }
}

function keyOf(hashId: number): string {
  if (Number.isSafeInteger(hashId)) return String(hashId);
  throw new ArgumentError(`a hash id must be an integer, got ${shown(hashId)}`);
}

function broken(what: string): MeshCacheError {
  return new MeshCacheError('ERR_CORE', `placement: ${what}`);
}
