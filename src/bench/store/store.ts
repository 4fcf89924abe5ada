import { formatSize } from '../../base/sizes.js';
import { HostRegion } from '../../memory/host-region.js';
import type { MeshCacheStore } from '../../node/meshcache-store.js';
import type { ReadOp } from '../../transport/contract/transport.js';
import { PlainReader } from '../measuring/plain-pair.js';
import { fastestPipeline, RedisPeer } from '../measuring/redis.js';
import { type BenchOptions, type BenchReport, type Contender, race } from '../measuring/report.js';
import { benchKeys, destinationPool, isStamped, stampPage } from '../measuring/store-pages.js';
import { StorePair } from './store-pair.js';

const BATCH_PAGES = 128;
const PAGE_SIZES_BYTES = [64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const FULL_WORK_BYTES = 2 ** 30;
const QUICK_WORK_BYTES = 16 * 2 ** 20;
/**
 * Size of the peer's pool relative to the pages. It has room for rounding and for the previous pages in quarantine.
 */
const POOL_SLACK = 1.25;
/**
 * Settings of the readers. Each has a cluster of its own, so that neither disturbs the other. Without quarantine, a
 * reader that does not verify never gives up, and cleared pages make room at once. No page is freed while it is read.
 */
const CONFIGS = [{ verify_reads: true }, { verify_reads: false, reuse_quarantine_ms: 0 }] as const;

/**
 * Compares `batchGetV1` of pages in another process's pool, with and without verification, with `batchRead` of the same
 * addresses without directory and verification. The difference is the cost of the layers above the transport. Two plain
 * sockets that only copy and, if installed, redis serve the same pages.
 */
export async function storeBench(options: BenchOptions): Promise<BenchReport> {
  const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
  options.progress('starting two processes');
  const bench = await StoreBench.start(workBytes);
  try {
    const rows: BenchReport['rows'][number][] = [];
    for (const pageBytes of PAGE_SIZES_BYTES) rows.push(...(await bench.measure(pageBytes, options)));
    return {
      title: 'store: pages from the pool of another process, over loopback',
      rows,
      notes: [
        `Batches of ${BATCH_PAGES} pages; pool and destination of ${formatSize(workBytes)}, touched before; medians of ${options.rounds} interleaved rounds.`,
        'Half of the directory lookups cross to the other process.',
        'ratio: to batchRead of the same pages without directory and verification.',
        ...bench.notes(),
      ],
    };
  } finally {
    await bench.close();
  }
}

class StoreBench {
  readonly #pair: StorePair;
  readonly #verifying: MeshCacheStore;
  readonly #trusting: MeshCacheStore;
  readonly #destination: HostRegion;
  readonly #plain: PlainReader;
  readonly #redis: RedisPeer | string;

  private constructor(parts: {
    pair: StorePair;
    destination: HostRegion;
    plain: PlainReader;
    redis: RedisPeer | string;
  }) {
    this.#pair = parts.pair;
    [this.#verifying, this.#trusting] = parts.pair.readers as [MeshCacheStore, MeshCacheStore];
    this.#destination = parts.destination;
    this.#plain = parts.plain;
    this.#redis = parts.redis;
  }

  static async start(workBytes: number): Promise<StoreBench> {
    const pair = await StorePair.start(CONFIGS, { poolBytes: Math.ceil(workBytes * POOL_SLACK), workBytes });
    const destination = HostRegion.allocate(workBytes);
    await destination.prefault();
    const plain = await PlainReader.connect(pair.plainPort);
    return new StoreBench({ pair, destination, plain, redis: await RedisPeer.start() });
  }

  notes(): string[] {
    if (typeof this.#redis === 'string') return [`Without redis: ${this.#redis}.`];
    return ['ioredis: getBuffer in pipelines of the best size found; its values stay where it puts them.'];
  }

  /** Measures one page size: every contender in turn, round after round. The first round is not counted. */
  async measure(pageBytes: number, options: BenchOptions): Promise<BenchReport['rows'][number][]> {
    const pages = Math.floor(this.#destination.length / pageBytes);
    options.progress(`publishing ${pages} pages of ${formatSize(pageBytes)}`);
    await this.#pair.peer.call({ kind: 'publish', pageBytes, pages });
    await this.#fillRedis(pageBytes, pages);
    const keys = benchKeys(pageBytes, pages);
    const contenders = await this.#contenders(keys, pageBytes);
    const { rounds, progress } = options;
    const page = formatSize(pageBytes);
    const rows = await race(contenders, {
      rounds,
      totalBytes: pages * pageBytes,
      clear: () => this.#destination.bytes().fill(0),
      progress: (round, name) => progress(`${page}: round ${round} of ${rounds}, ${name}`),
    });
    return rows.map((row) => ({ page, ...row }));
  }

  async close(): Promise<void> {
    this.#plain.close();
    if (typeof this.#redis !== 'string') await this.#redis.close();
    await this.#pair.close();
    this.#destination.free();
  }

  /** The contenders. The first one is the reference for the others. */
  async #contenders(keys: string[], pageBytes: number): Promise<Contender[]> {
    const batches = batchesOf(keys);
    const readAll = async (read: (batch: Batch) => Promise<boolean[]>): Promise<void> => {
      for (const batch of batches) {
        const results = await read(batch);
        const missed = results.filter((isRead) => !isRead).length;
        if (missed > 0) throw new Error(`${missed} pages of ${formatSize(pageBytes)} did not come`);
      }
    };
    for (const store of [this.#verifying, this.#trusting]) {
      await store.registerMemPoolHost(destinationPool(this.#destination, pageBytes));
    }
    const { transport } = this.#trusting.runtime;
    const ops = await this.#readOps(keys, pageBytes);
    const isRight = (): boolean =>
      keys.every((_, page) => isStamped(this.#destination.bytes(page * pageBytes, pageBytes), page));
    const contenders: Contender[] = [
      {
        name: 'batchRead',
        isRight,
        read: () => readAll(({ first, keys }) => transport.batchRead(ops.slice(first, first + keys.length))),
      },
      {
        name: 'batchGetV1, verified',
        isRight,
        read: () => readAll(({ keys, slots }) => this.#verifying.batchGetV1(keys, slots)),
      },
      {
        name: 'batchGetV1, not verified',
        isRight,
        read: () => readAll(({ keys, slots }) => this.#trusting.batchGetV1(keys, slots)),
      },
      {
        name: 'plain sockets',
        isRight,
        read: () => this.#plain.readAll(this.#plainBatches(batches, pageBytes), pageBytes),
      },
    ];
    if (typeof this.#redis !== 'string') {
      const slots = batches.map((batch) => batch.slots);
      contenders.push(await fastestPipeline(this.#redis, slots, isStamped));
    }
    return contenders;
  }

  #plainBatches(batches: readonly Batch[], pageBytes: number): Parameters<PlainReader['readAll']>[0] {
    return batches.map(({ first, slots }) => ({
      pages: slots,
      destinations: [this.#destination.bytes(first * pageBytes, slots.length * pageBytes)],
    }));
  }

  async #fillRedis(pageBytes: number, pages: number): Promise<void> {
    if (typeof this.#redis === 'string') return;
    const bytes = new Uint8Array(pageBytes);
    await this.#redis.fill(pages, pageBytes, (page) => {
      stampPage(bytes, page);
      return bytes;
    });
  }

  /** Read operations for all pages, looked up once. `batchGetV1` looks its pages up in every batch. */
  async #readOps(keys: readonly string[], pageBytes: number): Promise<ReadOp[]> {
    const locations = await this.#trusting.runtime.directory.get(this.#trusting.keyEncoder.encodeKeys(keys));
    return locations.map((location, page) => {
      const remoteEndpoint = location === null ? undefined : this.#trusting.runtime.dataEndpointOf(location);
      if (location === null || remoteEndpoint === undefined) throw new Error(`page ${page} is not in the directory`);
      const { remoteAddr, rkey, length } = location;
      const localAddr = this.#destination.addr + BigInt(page * pageBytes);
      return { remoteEndpoint, localAddr, remoteAddr, rkey, length };
    });
  }
}

interface Batch {
  readonly first: number;
  readonly keys: string[];
  readonly slots: number[];
}

function batchesOf(keys: readonly string[]): Batch[] {
  const batches: Batch[] = [];
  for (let first = 0; first < keys.length; first += BATCH_PAGES) {
    const part = keys.slice(first, first + BATCH_PAGES);
    batches.push({ first, keys: part, slots: part.map((_, i) => first + i) });
  }
  return batches;
}
