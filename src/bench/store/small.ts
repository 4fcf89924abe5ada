import { formatSize } from '../../base/sizes.js';
import { HostRegion } from '../../memory/host-region.js';
import { RedisPeer } from '../measuring/redis.js';
import { type BenchOptions, type BenchReport, inRound, median } from '../measuring/report.js';
import { benchKeys, destinationPool, isStamped, stampPage } from '../measuring/store-pages.js';
import { StorePair } from './store-pair.js';

const PAGE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10] as const;
const FULL_WORK_BYTES = 64 * 2 ** 20;
const QUICK_WORK_BYTES = 4 * 2 ** 20;
const FULL_PAGES = 4_096;
const QUICK_PAGES = 256;
/**
 * Size of the peer's pool relative to the pages. It has room for rounding and for the previous pages in quarantine.
 */
const POOL_SLACK = 8;
const IN_FLIGHT_COUNT = 64;
const BATCH_PAGES = 128;
/** Number of reads that are made one after the other; the other measurements read all pages. */
const ALONE_READS_COUNT = 1_000;
/** How long each reader reads before the counted rounds, so that the JIT compiler has done its work. */
const WARM_UP_MS = 1_000;
/** Minimum duration of a throughput measurement; passes are repeated until it is reached. */
const MEASURED_MIN_MS = 200;
/** Settings of the cluster of each reader, by the reader's name. */
const CONFIGS = {
  batchGetV1: { location_reuse_ms: 0 },
  'batchGetV1, no map': { location_reuse_ms: 0, cluster_map: 0 },
  'batchGetV1, secret': { location_reuse_ms: 0, cluster_secret: 'the secret of the benchmark' },
  'batchGetV1, again': { location_reuse_ms: 10_000 },
};

/** One way to read single pages of the other process. */
interface SmallReader {
  readonly name: string;
  /** Reads one page into its destination; rejects if it could not be read. */
  one(page: number): Promise<void>;
  /** Reads these pages in one call. */
  batch(pages: readonly number[]): Promise<void>;
  isRight(page: number): boolean;
}

interface Figures {
  inFlightPerS: number[];
  p50Us: number[];
  p99Us: number[];
  batchPerS: number[];
  cpuUs: number[];
}

/**
 * Reads single pages of another process: many at a time, one after the other, and in batches, and compares with redis
 * and ioredis. A round before the counted ones checks each page. All lookups cross to the other process, except those
 * of pages that are read again.
 */
export async function smallBench(options: BenchOptions): Promise<BenchReport> {
  const bench = await SmallBench.start(options);
  try {
    const rows: BenchReport['rows'][number][] = [];
    for (const pageBytes of PAGE_SIZES_BYTES) rows.push(...(await bench.measure(pageBytes)));
    return {
      title: 'small: single pages from the pool of another process, over loopback',
      rows,
      notes: [
        `in_flight: pages a second, ${IN_FLIGHT_COUNT} reads of one page each under way; batch: of ${BATCH_PAGES} pages; one: ${ALONE_READS_COUNT} reads one after the other.`,
        `Medians of ${options.rounds} interleaved rounds; ratios to ioredis in the same round; cpu: of this process, in flight, a page.`,
        ...(options.quick
          ? []
          : [
              `Before the counted rounds each reader has read for ${WARM_UP_MS / 1000} s; a measurement of throughput takes at least ${MEASURED_MIN_MS} ms.`,
            ]),
        'Verified; every lookup crosses to the other process, but for `again`: what was read within location_reuse_ms. ioredis: getBuffer, the batches in a pipeline.',
        ...bench.notes(),
      ],
    };
  } finally {
    await bench.close();
  }
}

class SmallBench {
  readonly #options: BenchOptions;
  readonly #pair: StorePair;
  readonly #destination: HostRegion;
  readonly #redis: RedisPeer | string;

  private constructor(parts: {
    options: BenchOptions;
    pair: StorePair;
    destination: HostRegion;
    redis: RedisPeer | string;
  }) {
    this.#options = parts.options;
    this.#pair = parts.pair;
    this.#destination = parts.destination;
    this.#redis = parts.redis;
  }

  static async start(options: BenchOptions): Promise<SmallBench> {
    const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
    options.progress('starting two processes');
    const pair = await StorePair.start(Object.values(CONFIGS), { poolBytes: workBytes * POOL_SLACK, workBytes });
    const destination = HostRegion.allocate(workBytes);
    await destination.prefault();
    return new SmallBench({ options, pair, destination, redis: await RedisPeer.start() });
  }

  notes(): string[] {
    return typeof this.#redis === 'string' ? [`Without redis: ${this.#redis}.`] : [];
  }

  async measure(pageBytes: number): Promise<BenchReport['rows'][number][]> {
    const { rounds, quick, progress } = this.#options;
    const page = formatSize(pageBytes);
    // The reader itself owns about half of the keys, which are left out.
    const published = Math.min(2 * (quick ? QUICK_PAGES : FULL_PAGES), this.#destination.length / pageBytes);
    progress(`publishing ${published} pages of ${page}`);
    await this.#pair.peer.call({ kind: 'publish', pageBytes, pages: published, isComputed: true });
    await this.#fillRedis(pageBytes, published);
    const readers = await this.#readers(pageBytes, published);
    const figures = readers.map((): Figures => ({ inFlightPerS: [], p50Us: [], p99Us: [], batchPerS: [], cpuUs: [] }));
    for (let round = 0; round <= rounds; round++) {
      for (const [r, { reader, pages }] of inRound(readers, round)) {
        progress(`${page}: round ${round} of ${rounds}, ${reader.name}`);
        if (round === 0) {
          await this.#check(reader, pages);
          if (!quick) await warmUp(reader, pages);
        } else {
          await measureRound(reader, pages, figures[r] as Figures, quick ? 0 : MEASURED_MIN_MS);
        }
      }
    }
    return readers.map(({ reader }, r) => ({
      page,
      reader: reader.name,
      ...rowOf(figures[r] as Figures, figures.at(-1) as Figures),
    }));
  }

  async close(): Promise<void> {
    if (typeof this.#redis !== 'string') await this.#redis.close();
    await this.#pair.close();
    this.#destination.free();
  }

  /** The readers. The last one is the reference for the others. */
  async #readers(pageBytes: number, published: number) {
    const keys = benchKeys(pageBytes, published);
    const bytesOf = (page: number) => this.#destination.bytes(page * pageBytes, pageBytes);
    const readers: { readonly reader: SmallReader; readonly pages: readonly number[] }[] = [];
    for (const [i, store] of this.#pair.readers.entries()) {
      const name = Object.keys(CONFIGS)[i] as string;
      await store.registerMemPoolHost(destinationPool(this.#destination, pageBytes));
      const { directory, nodeId } = store.runtime;
      const [ring] = directory.rings();
      const owners = ring?.getNodesBatch([...store.keyEncoder.encodeKeys(keys)], 1) ?? [];
      const pages = keys.flatMap((_, page) => (ring?.nodes[owners[page] as number] === nodeId ? [] : [page]));
      const get = async (some: readonly number[]): Promise<void> => {
        const results = await store.batchGetV1(
          some.map((page) => keys[page] as string),
          [...some],
        );
        if (results.includes(false)) throw new Error(`${name}: a page of ${formatSize(pageBytes)} did not come`);
      };
      const isRight = (page: number) => isStamped(bytesOf(page), page);
      readers.push({ reader: { name, isRight, one: (page) => get([page]), batch: get }, pages });
    }
    const redis = this.#redis;
    if (typeof redis !== 'string') {
      const values = new Map<number, Buffer>();
      const reader: SmallReader = {
        name: 'ioredis',
        isRight: (page) => isStamped(values.get(page) ?? new Uint8Array(8), page),
        one: async (page) => void values.set(page, await redis.one(page)),
        batch: async (pages) => {
          const read = await redis.read(pages, pages.length);
          for (const [i, value] of read.entries()) values.set(pages[i] as number, value);
        },
      };
      readers.push({ reader, pages: readers[0]?.pages ?? [] });
    }
    return readers;
  }

  async #check(reader: SmallReader, pages: readonly number[]): Promise<void> {
    const read: readonly ((pages: readonly number[]) => Promise<unknown>)[] = [
      (some) => inFlight(reader, some),
      (some) => inBatches(reader, some),
    ];
    for (const readAll of read) {
      this.#destination.bytes().fill(0);
      await readAll(pages);
      const wrong = pages.find((page) => !reader.isRight(page));
      if (wrong !== undefined) throw new Error(`${reader.name}: wrong bytes of page ${wrong}`);
    }
  }

  async #fillRedis(pageBytes: number, pages: number): Promise<void> {
    if (typeof this.#redis === 'string') return;
    const bytes = new Uint8Array(pageBytes);
    await this.#redis.fill(pages, pageBytes, (page) => {
      stampPage(bytes, page);
      return bytes;
    });
  }
}

async function warmUp(reader: SmallReader, pages: readonly number[]): Promise<void> {
  const endMs = performance.now() + WARM_UP_MS;
  while (performance.now() < endMs) {
    await inFlight(reader, pages);
    await inBatches(reader, pages);
    for (const page of pages.slice(0, IN_FLIGHT_COUNT)) await reader.one(page);
  }
}

async function measureRound(
  reader: SmallReader,
  pages: readonly number[],
  figures: Figures,
  minMs: number,
): Promise<void> {
  const alongside = await repeated(pages.length, minMs, () => inFlight(reader, pages));
  figures.inFlightPerS.push(alongside.perS);
  figures.cpuUs.push(alongside.cpuUs);
  figures.batchPerS.push((await repeated(pages.length, minMs, () => inBatches(reader, pages))).perS);
  const times = new Float64Array(Math.min(ALONE_READS_COUNT, pages.length));
  for (let i = 0; i < times.length; i++) {
    const startMs = performance.now();
    await reader.one(pages[i] as number);
    times[i] = (performance.now() - startMs) * 1000;
  }
  times.sort();
  figures.p50Us.push(times[Math.floor(times.length * 0.5)] as number);
  figures.p99Us.push(times[Math.floor(times.length * 0.99)] as number);
}

/** Reads all pages, with IN_FLIGHT_COUNT reads in flight at any time. */
async function inFlight(reader: SmallReader, pages: readonly number[]): Promise<void> {
  let next = 0;
  const readNext = async (): Promise<void> => {
    while (next < pages.length) await reader.one(pages[next++] as number);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT_COUNT }, readNext));
}

async function inBatches(reader: SmallReader, pages: readonly number[]): Promise<void> {
  for (let first = 0; first < pages.length; first += BATCH_PAGES) {
    await reader.batch(pages.slice(first, first + BATCH_PAGES));
  }
}

/** Repeats `work` (`count` pages) for at least `minMs`. Resolves with pages per second and processor time per page. */
async function repeated(
  count: number,
  minMs: number,
  work: () => Promise<void>,
): Promise<{ readonly perS: number; readonly cpuUs: number }> {
  const before = process.cpuUsage();
  const startMs = performance.now();
  let pages = 0;
  do {
    await work();
    pages += count;
  } while (performance.now() - startMs < minMs);
  const elapsedMs = performance.now() - startMs;
  const { user, system } = process.cpuUsage(before);
  return { perS: (pages * 1000) / elapsedMs, cpuUs: (user + system) / pages };
}

function rowOf(figures: Figures, reference: Figures): Readonly<Record<string, number>> {
  const ratio = (values: readonly number[], of: readonly number[]) => {
    return Number(median(values.map((value, round) => value / (of[round] as number))).toFixed(2));
  };
  return {
    in_flight_pages_per_s: Math.round(median(figures.inFlightPerS)),
    in_flight_ratio: ratio(figures.inFlightPerS, reference.inFlightPerS),
    cpu_us: Number(median(figures.cpuUs).toFixed(1)),
    one_p50_us: Math.round(median(figures.p50Us)),
    one_p50_ratio: ratio(figures.p50Us, reference.p50Us),
    one_p99_us: Math.round(median(figures.p99Us)),
    batch_pages_per_s: Math.round(median(figures.batchPerS)),
    batch_ratio: ratio(figures.batchPerS, reference.batchPerS),
  };
}
