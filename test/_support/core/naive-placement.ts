import type { PlacementRequest } from '../../../src/core/index.js';

export interface NaiveOptions {
  readonly nodes: number;
  readonly poolPages: number;
  readonly batchPages: number;
  readonly reportDelayMs: number;
}

/** A plain model of PlacementSimulation with LRU and round-robin routing: one map in the order of use for each pool. */
export class NaivePlacement {
  localHits = 0;
  remoteHits = 0;
  evictions = 0;
  duplicates = 0;
  readonly #options: NaiveOptions;
  readonly #pools: Set<number>[];
  /** The part of a request that had each page last, for each pool. */
  readonly #hadBy: Map<number, number>[];
  /** The last call of each pool's program. */
  readonly #last: { part: number; wasRead: boolean }[];
  #parts = 0;
  readonly #reports: { readonly dueMs: number; readonly owner: number; readonly page: number }[] = [];
  #requests = 0;

  constructor(options: NaiveOptions) {
    this.#options = options;
    this.#pools = Array.from({ length: options.nodes }, () => new Set<number>());
    this.#hadBy = this.#pools.map(() => new Map<number, number>());
    this.#last = this.#pools.map(() => ({ part: 0, wasRead: false }));
  }

  request({ timestampMs, hashIds }: PlacementRequest): void {
    while ((this.#reports[0]?.dueMs ?? Number.POSITIVE_INFINITY) <= timestampMs) {
      const { owner, page } = this.#reports.shift() as { owner: number; page: number };
      this.#use(owner, page, ++this.#parts);
    }
    const node = this.#requests++ % this.#options.nodes;
    const pool = this.#pools[node] as Set<number>;
    const gap = hashIds.findIndex((page) => this.#owner(page) < 0);
    const hits = gap < 0 ? hashIds.length : gap;
    for (const [i, page] of hashIds.slice(0, hits).entries()) {
      if (i % this.#options.batchPages === 0) this.#call(node, true);
      const owner = this.#owner(page);
      if (owner === node) {
        this.localHits++;
        this.#use(node, page, this.#last[node]?.part ?? 0);
      } else {
        this.remoteHits++;
        this.#report(owner, page, timestampMs);
      }
    }
    for (let start = hits; start < hashIds.length; start += this.#options.batchPages) {
      const batch = hashIds.slice(start, start + this.#options.batchPages);
      const before = batch.filter((page) => pool.has(page));
      const part = this.#call(node, false);
      for (const page of batch) {
        if (pool.has(page)) this.#use(node, page, part);
        else this.#place(node, page, part);
      }
      for (const page of batch) {
        const isElsewhere = this.#pools.some((other, i) => i !== node && other.has(page));
        if (!pool.has(page) || !isElsewhere || before.includes(page)) continue;
        pool.delete(page);
        this.duplicates++;
      }
    }
  }

  #owner(page: number): number {
    return this.#pools.findIndex((pool) => pool.has(page));
  }

  /** A call of a node's program; a write goes on with the request of a read. */
  #call(node: number, isRead: boolean): number {
    const last = this.#last[node] as { part: number; wasRead: boolean };
    if (isRead || !last.wasRead) last.part = ++this.#parts;
    last.wasRead = isRead;
    return last.part;
  }

  #use(node: number, page: number, part: number): void {
    const pool = this.#pools[node] as Set<number>;
    if (!pool.delete(page)) return;
    pool.add(page);
    this.#hadBy[node]?.set(page, part);
  }

  #place(node: number, page: number, part: number): void {
    const pool = this.#pools[node] as Set<number>;
    if (pool.size === this.#options.poolPages) {
      const victim = pool.values().next().value as number;
      if (this.#hadBy[node]?.get(victim) === part) return;
      pool.delete(victim);
      this.evictions++;
    }
    pool.add(page);
    this.#hadBy[node]?.set(page, part);
  }

  #report(owner: number, page: number, nowMs: number): void {
    const { reportDelayMs } = this.#options;
    if (reportDelayMs === 0) this.#use(owner, page, ++this.#parts);
    else if (Number.isFinite(reportDelayMs)) this.#reports.push({ dueMs: nowMs + reportDelayMs, owner, page });
  }
}

/** Hits of a cache that knows the future; searches the rest of the trace for each page. */
export function naiveClairvoyantHits(requests: readonly PlacementRequest[], capacityPages: number): number {
  const pages = requests.flatMap(({ hashIds }) => hashIds);
  const cache = new Set<number>();
  const nextUse = (page: number, after: number): number => {
    const next = pages.indexOf(page, after + 1);
    return next < 0 ? Number.POSITIVE_INFINITY : next;
  };
  let hits = 0;
  let at = 0;
  for (const { hashIds } of requests) {
    const gap = hashIds.findIndex((page) => !cache.has(page));
    hits += gap < 0 ? hashIds.length : gap;
    for (const page of hashIds) {
      cache.add(page);
      const now = at++;
      if (cache.size <= capacityPages) continue;
      const candidates = [...cache].map((candidate) => ({ candidate, next: nextUse(candidate, now) }));
      cache.delete(candidates.reduce((a, b) => (b.next > a.next ? b : a)).candidate);
    }
  }
  return hits;
}
