import { formatSize } from '../base/sizes.js';
import { HostRegion } from '../memory/host-region.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { findFreePort, LOOPBACK } from '../processes/free-port.js';
import { systemRandom } from '../system/system-random.js';
import { type ExecuteCommand, PeerProcess } from './measuring/peer-process.js';
import { type BenchOptions, type BenchReport, median, round3 } from './measuring/report.js';
import {
  awaitMembers,
  benchKeys,
  benchStorage,
  destinationPool,
  type PeerAnswer,
  type PeerCommand,
} from './measuring/store-pages.js';

const PAGE_BYTES = 2 ** 20;
const BATCH_PAGES = 128;
const READER_POOL_BYTES = 2 ** 20;
/** Size of the owner's pool relative to its pages. */
const POOL_SLACK = 1.25;
const SCRAPE_INTERVAL_MS = 1_000;
const FULL = { workBytes: 2 ** 29, periodMs: 3_000, renders: 200 } as const;
const QUICK = { workBytes: 2 ** 24, periodMs: 300, renders: 10 } as const;

/**
 * Measures what a scrape every second costs a node that reads another process's pages as fast as it can, on the thread
 * that answers the scrape.
 */
export async function metricsBench(options: BenchOptions): Promise<BenchReport> {
  const { workBytes, periodMs, renders } = options.quick ? QUICK : FULL;
  const pages = workBytes / PAGE_BYTES;
  const discoveryAddr = `${LOOPBACK}:${await findFreePort(systemRandom)}`;
  options.progress('starting three processes');
  const peer: PeerProcess<PeerCommand, PeerAnswer> = new PeerProcess('store');
  const scraper: PeerProcess<ScrapeCommand, ScrapeAnswer> = new PeerProcess('metrics');
  const destination = HostRegion.allocate(workBytes);
  let store: MeshCacheStore | undefined;
  try {
    const poolBytes = Math.ceil(workBytes * POOL_SLACK);
    await peer.call({ kind: 'start', clusters: [{ discoveryAddr, config: {} }], poolBytes, workBytes });
    const metrics = { metrics_enabled: true, metrics_port: 0 };
    store = await MeshCacheStore.create(benchStorage(discoveryAddr, READER_POOL_BYTES, metrics));
    await awaitMembers(store, 2);
    await destination.prefault();
    await peer.call({ kind: 'publish', pageBytes: PAGE_BYTES, pages });
    await store.registerMemPoolHost(destinationPool(destination, PAGE_BYTES));
    const reader = new BusyReader(store, benchKeys(PAGE_BYTES, pages));
    const url = `http://${store.metricsEndpoint}/metrics`;
    const scraped = async (): Promise<number> => {
      const scraping = scraper.call({ url, intervalMs: SCRAPE_INTERVAL_MS, forMs: periodMs });
      const speed = await reader.read(periodMs);
      scrape = await scraping;
      return speed;
    };
    let scrape: ScrapeAnswer = { scrapes: 0, bytes: 0 };
    const alone = () => reader.read(periodMs);
    await alone();
    await scraped();
    const speeds = { alone: [] as number[], scraped: [] as number[] };
    for (let round = 1; round <= options.rounds; round++) {
      options.progress(`round ${round} of ${options.rounds}`);
      // The order alternates, because the machine may get slower or faster over time.
      if (round % 2 === 1) speeds.alone.push(await alone());
      speeds.scraped.push(await scraped());
      if (round % 2 === 0) speeds.alone.push(await alone());
    }
    const ratios = speeds.scraped.map((speed, i) => speed / (speeds.alone[i] as number));
    return {
      title: 'metrics: what a scrape a second costs a node under full load',
      rows: [
        { node: 'alone', gb_per_s: round3(median(speeds.alone)), ratio: 1 },
        { node: 'scraped every second', gb_per_s: round3(median(speeds.scraped)), ratio: round3(median(ratios)) },
      ],
      notes: [
        `batchGetV1, verified, ${BATCH_PAGES} pages of ${formatSize(PAGE_BYTES)} a call from another process; ${options.rounds} periods of ${periodMs / 1000} s each, in turn; ratio: median of the ratios of neighbours, which are ${round3(Math.min(...ratios))} to ${round3(Math.max(...ratios))}.`,
        `One scrape is ${scrape.bytes} bytes and takes ${(await renderMs(store, renders)).toFixed(2)} ms of the thread's time.`,
      ],
    };
  } finally {
    await store?.close();
    destination.free();
    peer.end();
    scraper.end();
  }
}

interface Batch {
  readonly keys: string[];
  readonly slots: number[];
}

class BusyReader {
  readonly #store: MeshCacheStore;
  readonly #batches: Batch[] = [];
  #next = 0;

  constructor(store: MeshCacheStore, keys: readonly string[]) {
    this.#store = store;
    for (let first = 0; first < keys.length; first += BATCH_PAGES) {
      const batch = keys.slice(first, first + BATCH_PAGES);
      this.#batches.push({ keys: batch, slots: batch.map((_, i) => first + i) });
    }
  }

  /** Reads for `forMs` milliseconds; resolves with GB per second. Rejects if a page could not be read. */
  async read(forMs: number): Promise<number> {
    const startMs = performance.now();
    let pages = 0;
    while (performance.now() - startMs < forMs) {
      const { keys, slots } = this.#batches[this.#next++ % this.#batches.length] as Batch;
      const results = await this.#store.batchGetV1(keys, slots);
      if (!results.every(Boolean)) throw new Error('a page did not come');
      pages += keys.length;
    }
    return (pages * PAGE_BYTES) / (performance.now() - startMs) / 1e6;
  }
}

/** Milliseconds of processor time that it takes to render the metrics once while this process is idle. */
async function renderMs(store: MeshCacheStore, renders: number): Promise<number> {
  const before = process.cpuUsage();
  for (let i = 0; i < renders; i++) await store.metrics.renderPrometheus();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / renders;
}

interface ScrapeCommand {
  readonly url: string;
  /** Milliseconds from the start of one scrape to the start of the next. */
  readonly intervalMs: number;
  readonly forMs: number;
}

interface ScrapeAnswer {
  readonly error?: string;
  readonly scrapes: number;
  /** Length of the last answer, uncompressed. */
  readonly bytes: number;
}

/** The scraper of the metrics benchmark. It fetches a URL at regular intervals, as Prometheus does. */
export function scrapePeer(): ExecuteCommand<ScrapeCommand, ScrapeAnswer> {
  return async ({ url, intervalMs, forMs }) => {
    const endMs = performance.now() + forMs;
    let scrapes = 0;
    let bytes = 0;
    for (let nextMs = performance.now(); nextMs < endMs; nextMs += intervalMs) {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, nextMs - performance.now())));
      const response = await fetch(url);
      if (!response.ok) throw new Error(`${url}: ${response.status}`);
      bytes = (await response.text()).length;
      scrapes++;
    }
    return { scrapes, bytes };
  };
}
