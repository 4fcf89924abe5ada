/** What the requests of a {@link PlacementSimulation} have found and done; pages where no unit is named. */
export interface PlacementCounts {
  readonly requests: number;
  readonly pagesAsked: number;
  /** Pages that came before the first miss of their request: all of them are read. */
  readonly prefixHits: number;
  /** Of these, read from the pool of the node that served the request. */
  readonly localHits: number;
  /** Of these, read from another node's pool. */
  readonly remoteHits: number;
  /** Pages from the first miss on, which the node that served the request sets. */
  readonly pagesSet: number;
  /** Of these, pages that another node had: they took room in the pool and were dropped again. */
  readonly duplicates: number;
  /** Of these, pages that were not in the pool when the call had ended: there was no room. */
  readonly refused: number;
  readonly evictions: number;
  /** Bytes of pages that one node has read from another. */
  readonly movedBytes: number;
}

/** What happened in one interval of the trace's time. */
export interface PlacementInterval extends PlacementCounts {
  /** Its start; intervals count from the first request's. */
  readonly startMs: number;
}

/** Counts that are being added to. */
export type OpenCounts = { -readonly [Name in keyof PlacementCounts]: number };

/** Of nothing. */
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
