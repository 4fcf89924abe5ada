import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import { CLIENT_NAMES_MAX_COUNT } from '../../base/limits.js';
import { clientSeries, countLookup } from '../../metrics/metric-catalogue.js';
import { Status } from '../wire/messages.js';

/** All ways in which pages travel: directly in the client's own memory, through staging memory, or on the socket. */
export const CLIENT_WAYS: readonly ClientWay[] = ['direct', 'staged', 'bytes'];
/** How a page travels between a node and a client. */
export type ClientWay = 'direct' | 'staged' | 'bytes';

/** Counts of one client, or of all clients with one name. */
export interface ClientFigures {
  readonly requests: number;
  readonly errors: number;
  readonly hits: number;
  readonly misses: number;
  readonly read_bytes: number;
  readonly pages_written: number;
  readonly written_bytes: number;
  /** Pages that the client looked up, and how many were found before the first miss of their lookup (`found`). */
  readonly lookups: number;
  readonly found: number;
  /** Bytes of pages, read and written, by how they travelled. */
  readonly bytes_by_way: Readonly<Record<ClientWay, number>>;
}

interface Sized {
  readonly length: number;
}

/** Name that stands for all further clients when there are too many names. */
const OTHER_NAMES = 'other';

const STATUS_NAMES: ReadonlyMap<number, string> = new Map(Object.entries(Status).map(([name, value]) => [value, name]));

/** Counts for one connection, and for all connections of its name. */
export class ClientCounts {
  readonly #metrics: MetricsSink;
  readonly #client: string;
  readonly #figures = {
    requests: 0,
    errors: 0,
    hits: 0,
    misses: 0,
    read_bytes: 0,
    pages_written: 0,
    written_bytes: 0,
    lookups: 0,
    found: 0,
  };
  readonly #bytesByWay: Record<ClientWay, number> = { direct: 0, staged: 0, bytes: 0 };

  /** `client` is the name used in the metrics, from a bounded set. */
  constructor(metrics: MetricsSink, client: string) {
    this.#metrics = metrics;
    this.#client = client;
    // Series begin at 0, so that their first increase is visible.
    for (const [name, labels] of clientSeries(client)) metrics.count(name, 0, labels);
  }

  figures(): ClientFigures {
    return { ...this.#figures, bytes_by_way: { ...this.#bytesByWay } };
  }

  request(): void {
    this.#figures.requests++;
    this.#metrics.count('meshcache_client_requests_total', 1, { client: this.#client });
  }

  failed(status: Status): void {
    this.#figures.errors++;
    const reason = toSnakeCase(STATUS_NAMES.get(status) ?? 'failed');
    this.#metrics.count('meshcache_client_errors_total', 1, { client: this.#client, reason });
  }

  /** Counts a lookup of `asked` pages that found the first `found` of them before its first miss. */
  lookup(asked: number, found: number): void {
    const client = this.#client;
    this.#figures.lookups += asked;
    this.#figures.found += found;
    countLookup(this.#metrics, asked, found);
    const missing = asked - found;
    if (found > 0) this.#metrics.count('meshcache_client_lookup_pages_total', found, { client, result: 'found' });
    if (missing > 0) this.#metrics.count('meshcache_client_lookup_pages_total', missing, { client, result: 'missing' });
  }

  /** Counts a read; `results` has one element for each page. */
  read(way: ClientWay, pages: readonly Sized[], results: readonly boolean[]): void {
    const { count: hits, bytes } = sumOf(pages, results);
    const misses = results.length - hits;
    const client = this.#client;
    this.#figures.hits += hits;
    this.#figures.misses += misses;
    this.#figures.read_bytes += bytes;
    this.#bytesByWay[way] += bytes;
    if (hits > 0) this.#metrics.count('meshcache_client_reads_total', hits, { client, result: 'hit' });
    if (misses > 0) this.#metrics.count('meshcache_client_reads_total', misses, { client, result: 'miss' });
    if (bytes > 0) this.#metrics.count('meshcache_client_read_bytes_total', bytes, { client, way });
  }

  written(way: ClientWay, pages: readonly Sized[], results: readonly boolean[]): void {
    const { count, bytes } = sumOf(pages, results);
    const client = this.#client;
    this.#figures.pages_written += count;
    this.#figures.written_bytes += bytes;
    this.#bytesByWay[way] += bytes;
    this.#metrics.count('meshcache_client_writes_total', count, { client });
    this.#metrics.count('meshcache_client_written_bytes_total', bytes, { client, way });
  }
}

/** The names used in the metrics: the first CLIENT_NAMES_MAX_COUNT client names, and one name for all others. */
export class ClientNames {
  readonly #known = new Set<string>();

  shown(name: string): string {
    if (!this.#known.has(name)) {
      if (this.#known.size >= CLIENT_NAMES_MAX_COUNT) return OTHER_NAMES;
      this.#known.add(name);
    }
    return name;
  }
}

function sumOf(
  pages: readonly Sized[],
  results: readonly boolean[],
): { readonly count: number; readonly bytes: number } {
  let count = 0;
  let bytes = 0;
  results.forEach((isDone, i) => {
    if (!isDone) return;
    count++;
    bytes += pages[i]?.length ?? 0;
  });
  return { count, bytes };
}

function toSnakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
