/** The outcome of requests to a {@link PlacementSimulation}; counts are of pages where no unit is named. */
export interface PlacementCounts {
  readonly requests: number;
  readonly pagesAsked: number;
  /** Pages that came before the first miss of their request: all of them are read. */
  readonly prefixHits: number;
  /** Prefix hits that were read from the pool of the node that served the request. */
  readonly localHits: number;
  /** Prefix hits that were read from another node's pool. */
  readonly remoteHits: number;
  /** Pages from the first miss on, which the node that served the request sets. */
  readonly pagesSet: number;
  /** Pages that were set although another node had them: they took room in the pool, and were dropped again. */
  readonly duplicates: number;
  /** Pages that were to be set, and were not in the pool at the end of the call, for want of room. */
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

/** Counts that can be added to. */
export type OpenCounts = { -readonly [Name in keyof PlacementCounts]: number };

/** Makes counts that are all zero. */
function noPlacementCounts(): OpenCounts {
  return {
    requests: 0,
    pagesAsked: 0,
    prefixHits: 0,
    localHits: 0,
    remoteHits: 0,
    pagesSet: 0,
    duplicates: 0,
    refused: 0,
    evictions: 0,
    movedBytes: 0,
  };
}

/** Counts by intervals of time. Intervals without a request have no element. */
export class PlacementSeries {
  readonly #intervalMs: number;
  readonly #intervals: { readonly startMs: number; readonly counts: OpenCounts }[] = [];
  #originMs = 0;
  #endMs = Number.NEGATIVE_INFINITY;

  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  /** The counts of the interval in which `nowMs` lies; it never goes back. */
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

  /** All intervals together. */
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
