import type { Clock } from '../base/environment/clock.js';
import { HISTORY_INTERVALS_COUNT, HISTORY_STEPS_S } from '../base/limits.js';
import { quantileOf } from '../base/quantile.js';
import {
  HISTORY_COUNTS,
  HISTORY_GAUGES,
  type HistoryCount,
  type HistoryReport,
  type HistorySample,
} from './history-report.js';

/** Seconds that recent figures cover. */
const RECENT_WINDOW_S = 30;
/** Shortest time over which a rate is computed. */
const RATE_MIN_MS = 500;

interface NodeHistoryOptions {
  /** Upper bounds of the latency buckets, seconds. */
  readonly boundsS: readonly number[];
  readonly sample: () => Promise<HistorySample>;
  readonly clock: Clock;
}

/** Rates and latencies of the last seconds; null if there is nothing to measure. */
interface RecentFigures {
  readonly windowS: number;
  readonly readP50S: number | null;
  readonly readP99S: number | null;
  readonly readBytesPerS: number;
  readonly writtenBytesPerS: number;
  readonly evictionsPerS: number;
  readonly asked: number;
  readonly found: number;
  readonly pageLifetimeS: number | null;
}

/**
 * A node's figures of the last hour, in memory of fixed size. A sample is taken every 2 s. Each ring keeps every sample
 * or every n-th one, so that older figures are coarser. Counts are kept as totals, so that a ring can be thinned by
 * leaving out rows.
 */
export class NodeHistory {
  readonly #options: NodeHistoryOptions;
  readonly #rings: readonly SampleRing[];
  readonly #row: Float64Array;
  #taken = 0;
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(options: NodeHistoryOptions) {
    this.#options = options;
    const columns = HISTORY_COUNTS.length + HISTORY_GAUGES.length + options.boundsS.length + 1;
    this.#row = new Float64Array(columns);
    // Between n + 1 rows there are n intervals.
    this.#rings = HISTORY_INTERVALS_COUNT.map((count) => new SampleRing(count + 1, columns));
  }

  /** Begins to take samples. Nothing may have been counted before. */
  start(): void {
    for (const ring of this.#rings) ring.push(this.#options.clock.nowMs(), this.#row);
    this.#await();
  }

  /** Stops taking samples. Idempotent. */
  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  /**
   * Returns the figures in steps of `stepS`, which is one of HISTORY_STEPS_S. The last interval ends with the latest
   * sample, so it may be shorter.
   */
  report(stepS: number): Omit<HistoryReport, 'node_id' | 'incarnation'> {
    const ring = this.#rings[HISTORY_STEPS_S.indexOf(stepS)];
    const finest = this.#rings[0];
    if (ring === undefined || finest === undefined) throw new RangeError(`no history has steps of ${stepS} s`);
    const rows = Array.from({ length: ring.size }, (_, i) => ({ timeMs: ring.time(i), values: ring.row(i) }));
    const newest = finest.size - 1;
    if (newest >= 0 && finest.time(newest) > (rows.at(-1)?.timeMs ?? 0)) {
      rows.push({ timeMs: finest.time(newest), values: finest.row(newest) });
    }
    const nowMs = this.#options.clock.nowMs();
    const ages = rows.map(({ timeMs }) => Math.round(nowMs - timeMs));
    const intervals = (column: number): number[] =>
      rows.slice(1).map(({ values }, i) => (values[column] as number) - (rows[i]?.values[column] as number));
    const buckets = Array.from({ length: this.#options.boundsS.length + 1 }, (_, i) => i);
    return {
      from_age_ms: ages[0] ?? 0,
      ages_ms: ages.slice(1),
      counts: columnsOf(HISTORY_COUNTS.map((name, i) => [name, intervals(i)])),
      gauges: columnsOf(
        HISTORY_GAUGES.map((name, i) => [
          name,
          rows.slice(1).map(({ values }) => values[HISTORY_COUNTS.length + i] as number),
        ]),
      ),
      read_latency: {
        bounds_s: this.#options.boundsS,
        buckets: columnsOf(buckets.map((i) => [String(i), intervals(FIRST_BUCKET + i)])),
      },
      totals: totalsOf(rows.at(-1)?.values ?? this.#row),
    };
  }

  /**
   * Returns the figures of the last 30 s, and the page lifetime over the finest ring; undefined before there are two
   * samples.
   */
  recent(): RecentFigures | undefined {
    const ring = this.#rings[0];
    if (ring === undefined || ring.size < 2) return undefined;
    const last = ring.size - 1;
    let first = last;
    while (first > 0 && ring.time(last) - ring.time(first) < RECENT_WINDOW_S * 1000) first--;
    const windowMs = ring.time(last) - ring.time(first);
    if (windowMs < RATE_MIN_MS) return undefined;
    const [from, to, oldest] = [ring.row(first), ring.row(last), ring.row(0)];
    const between = (name: HistoryCount, since = from): number => {
      const column = HISTORY_COUNTS.indexOf(name);
      return (to[column] as number) - (since[column] as number);
    };
    const perS = (count: number): number => (count * 1000) / windowMs;
    const counts = Array.from(to.subarray(FIRST_BUCKET), (count, i) => count - (from[FIRST_BUCKET + i] as number));
    const calls = { boundsS: this.#options.boundsS, counts };
    const pages = to[HISTORY_COUNTS.length + HISTORY_GAUGES.indexOf('pool_pages')] as number;
    const evicted = between('evictions', oldest);
    return {
      windowS: windowMs / 1000,
      readP50S: quantileOf(calls, 0.5),
      readP99S: quantileOf(calls, 0.99),
      readBytesPerS: perS(between('local_bytes') + between('remote_bytes') + between('disk_bytes')),
      writtenBytesPerS: perS(between('written_bytes')),
      evictionsPerS: perS(between('evictions')),
      asked: between('asked'),
      found: between('found'),
      pageLifetimeS: evicted > 0 ? (pages * (ring.time(last) - ring.time(0))) / 1000 / evicted : null,
    };
  }

  #await(): void {
    const stepS = HISTORY_STEPS_S[0] as number;
    this.#cancel = this.#options.clock.after(stepS * 1000, () => void this.#take(stepS));
  }

  async #take(stepS: number): Promise<void> {
    const sample = await this.#options.sample().catch(() => undefined);
    if (this.#isStopped) return;
    if (sample !== undefined) {
      this.#taken++;
      this.#fill(sample);
      const timeMs = this.#options.clock.nowMs();
      for (const [i, ring] of this.#rings.entries()) {
        if (this.#taken % ((HISTORY_STEPS_S[i] as number) / stepS) === 0) ring.push(timeMs, this.#row);
      }
    }
    this.#await();
  }

  #fill({ counts, gauges, readBuckets }: HistorySample): void {
    const row = this.#row;
    for (const [i, name] of HISTORY_COUNTS.entries()) row[i] = counts[name];
    for (const [i, name] of HISTORY_GAUGES.entries()) row[HISTORY_COUNTS.length + i] = gauges[name];
    for (let i = 0; FIRST_BUCKET + i < row.length; i++) row[FIRST_BUCKET + i] = readBuckets[i] ?? 0;
  }
}

/** Column of the first latency bucket, after all counts and gauges. */
const FIRST_BUCKET = HISTORY_COUNTS.length + HISTORY_GAUGES.length;

function totalsOf(row: Float64Array): HistoryReport['totals'] {
  const counts = Object.fromEntries(HISTORY_COUNTS.map((name, i) => [name, row[i] as number]));
  return { counts, read_buckets: [...row.subarray(FIRST_BUCKET)] };
}

function columnsOf(columns: readonly (readonly [string, readonly number[]])[]): Record<string, readonly number[]> {
  return Object.fromEntries(columns.filter(([, values]) => values.some((value) => value !== 0)));
}

/** The last rows of a table of numbers, each with its time. A new row replaces the oldest. */
class SampleRing {
  readonly #capacity: number;
  readonly #columns: number;
  readonly #times: Float64Array;
  readonly #values: Float64Array;
  #next = 0;
  #size = 0;

  constructor(capacity: number, columns: number) {
    this.#capacity = capacity;
    this.#columns = columns;
    this.#times = new Float64Array(capacity);
    this.#values = new Float64Array(capacity * columns);
  }

  /** Number of rows. */
  get size(): number {
    return this.#size;
  }

  /** Copies `row`, which must have a value for each column. */
  push(timeMs: number, row: Float64Array): void {
    this.#times[this.#next] = timeMs;
    this.#values.set(row, this.#next * this.#columns);
    this.#next = (this.#next + 1) % this.#capacity;
    this.#size = Math.min(this.#size + 1, this.#capacity);
  }

  /** Returns the time of a row; row 0 is the oldest. */
  time(index: number): number {
    return this.#times[this.#place(index)] as number;
  }

  /** Returns the row itself, not a copy. It is valid until the next `push`. */
  row(index: number): Float64Array {
    const start = this.#place(index) * this.#columns;
    return this.#values.subarray(start, start + this.#columns);
  }

  #place(index: number): number {
    return (this.#next - this.#size + index + this.#capacity) % this.#capacity;
  }
}
