import { type RandomSource, seededRandom, shuffled } from '../../base/environment/random.js';
import { formatSize } from '../../base/sizes.js';
import { HostRegion } from '../../memory/host-region.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { ReadOp } from '../../transport/contract/transport.js';
import { TcpTransport } from '../../transport/tcp/tcp-transport.js';
import { PeerProcess } from '../measuring/peer-process.js';
import { type PlainBatch, PlainReader } from '../measuring/plain-pair.js';
import { fastestPipeline, RedisPeer } from '../measuring/redis.js';
import { type BenchOptions, type BenchReport, type Contender, race } from '../measuring/report.js';
import { isStamped } from '../measuring/store-pages.js';
import {
  BATCH_PAGES,
  batchesOf,
  checksums,
  type ServedPool,
  stamped,
  type TcpPeerAnswer,
  type TcpPeerCommand,
} from './tcp-peer.js';
import { tcpThreadsBench } from './tcp-threads.js';

const PAGE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const FULL_WORK_BYTES = 2 ** 30;
const QUICK_WORK_BYTES = 16 * 2 ** 20;
/** Size of the pages that are also read while the owner's main thread is busy. */
const BUSY_PAGE_BYTES = 2 ** 20;
const BUSY_MS = 1000;

/** Whether the pages of a batch go to adjacent or to scattered memory. */
type Destinations = 'contiguous' | 'scattered';

type TcpPeer = PeerProcess<TcpPeerCommand, TcpPeerAnswer>;

/**
 * With `threads` given, compares numbers of threads. Otherwise compares `batchRead` of pages in another process's pool with two plain sockets that only copy and, if installed, with
 * redis, interleaved in one run. Pages are read in random order.
 */
export async function tcpBench(options: BenchOptions): Promise<BenchReport> {
  if (options.threads !== undefined) return tcpThreadsBench(options, options.threads);
  const bench = await TcpBench.start(options);
  try {
    const rows: BenchReport['rows'][number][] = [];
    for (const pageBytes of PAGE_SIZES_BYTES) {
      await bench.prepare(pageBytes);
      for (const destinations of ['contiguous', 'scattered'] as const) {
        rows.push(...(await bench.measure(pageBytes, destinations)));
      }
    }
    return { title: 'tcp: pages from the memory of another process, over loopback', rows, notes: bench.notes() };
  } finally {
    await bench.close();
  }
}

class TcpBench {
  readonly #options: BenchOptions;
  readonly #peer: TcpPeer;
  readonly #memory: Required<Omit<TcpPeerAnswer, 'error'>>;
  readonly #transport: TcpTransport;
  readonly #plain: PlainReader;
  readonly #redis: RedisPeer | string;
  readonly #target: HostRegion;
  readonly #random: RandomSource = seededRandom(1);

  static async start(options: BenchOptions): Promise<TcpBench> {
    options.progress('starting the serving processes');
    const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
    const peer: TcpPeer = new PeerProcess('tcp');
    const memory = (await peer.call({ kind: 'start', poolBytes: workBytes, threads: [1] })) as Required<TcpPeerAnswer>;
    const target = HostRegion.allocate(workBytes);
    await target.prefault();
    const parts = {
      peer,
      memory,
      target,
      transport: await TcpTransport.create({ host: '127.0.0.1', env: systemEnvironment() }),
      plain: await PlainReader.connect(memory.plainPort),
      redis: await RedisPeer.start(),
    };
    return new TcpBench(options, parts);
  }

  private constructor(
    options: BenchOptions,
    parts: {
      readonly peer: TcpPeer;
      readonly memory: Required<TcpPeerAnswer>;
      readonly transport: TcpTransport;
      readonly plain: PlainReader;
      readonly redis: RedisPeer | string;
      readonly target: HostRegion;
    },
  ) {
    this.#options = options;
    this.#peer = parts.peer;
    this.#memory = parts.memory;
    this.#transport = parts.transport;
    this.#plain = parts.plain;
    this.#redis = parts.redis;
    this.#target = parts.target;
  }

  notes(): string[] {
    const notes = [
      `Batches of ${BATCH_PAGES} pages, one batch at a time; pool and destination of ${formatSize(this.#target.length)}, touched before; medians of ${this.#options.rounds} interleaved rounds.`,
      'owner blocked, owner computing: its main thread sleeps, or takes a whole core, for one second meanwhile.',
      'ratio: to the plain sockets with the same destinations, which verify nothing and serve from their main thread.',
    ];
    if (typeof this.#redis === 'string') notes.push(`Without redis: ${this.#redis}.`);
    else notes.push('ioredis: getBuffer in pipelines of the best size found; its values stay where it puts them.');
    return notes;
  }

  /** Fills all servers with pages of this size. */
  async prepare(pageBytes: number): Promise<void> {
    this.#options.progress(`pages of ${formatSize(pageBytes)}: filling the pools`);
    await this.#peer.call({ kind: 'stamp', pageBytes });
    if (typeof this.#redis === 'string') return;
    const page = new Uint8Array(pageBytes);
    await this.#redis.fill(this.#pages(pageBytes), pageBytes, (number) => stamped(page, number));
  }

  /** Measures one page size and one kind of destination; resolves with one row per contender. */
  async measure(pageBytes: number, destinations: Destinations): Promise<BenchReport['rows'][number][]> {
    const { rounds, progress } = this.#options;
    const page = formatSize(pageBytes);
    const rows = await race(await this.#contenders(pageBytes, destinations), {
      rounds,
      totalBytes: this.#pages(pageBytes) * pageBytes,
      clear: () => this.#target.bytes().fill(0),
      progress: (round, name) => progress(`${page}, ${destinations}: round ${round} of ${rounds}, ${name}`),
    });
    return rows.map((row) => ({ page, destinations, ...row }));
  }

  async close(): Promise<void> {
    this.#plain.close();
    await this.#transport.close();
    if (typeof this.#redis !== 'string') await this.#redis.close();
    this.#target.free();
    this.#peer.end();
  }

  #pages(pageBytes: number): number {
    return Math.floor(this.#target.length / pageBytes);
  }

  /** The contenders. The first one is the reference for the others. */
  async #contenders(pageBytes: number, destinations: Destinations): Promise<Contender[]> {
    const pages = this.#pages(pageBytes);
    const [{ endpoint, rkey }] = this.#memory.served as readonly [ServedPool];
    const numbers = Array.from({ length: pages }, (_, i) => i);
    const order = shuffled(numbers, this.#random);
    const slots = destinations === 'scattered' ? shuffled(numbers, this.#random) : numbers;
    const sums = checksums(pages, pageBytes);
    const ops = order.map((page, i): ReadOp & { checksum: number } => ({
      remoteEndpoint: endpoint,
      remoteAddr: BigInt(this.#memory.addr) + BigInt(page * pageBytes),
      rkey,
      localAddr: this.#target.addr + BigInt((slots[i] as number) * pageBytes),
      length: pageBytes,
      checksum: sums[page] as number,
    }));
    const isRight = (): boolean =>
      order.every((page, i) => isStamped(this.#target.bytes((slots[i] as number) * pageBytes, pageBytes), page));
    const verified = batchesOf(ops);
    const trusting = batchesOf(ops.map(({ checksum: _, ...op }) => op));
    const plain = this.#plainBatches(order, slots, { pageBytes, destinations });
    const contenders: Contender[] = [
      { name: 'plain sockets', isRight, read: () => this.#plain.readAll(plain, pageBytes) },
      { name: 'batchRead', isRight, read: () => this.#readAll(trusting) },
      { name: 'batchRead, checksums', isRight, read: () => this.#readAll(verified) },
    ];
    if (destinations === 'scattered') return contenders;
    if (pageBytes === BUSY_PAGE_BYTES) {
      for (const how of ['blocked', 'computing'] as const) {
        contenders.push({
          name: `batchRead, owner ${how}`,
          isRight,
          read: () => this.#readWhileBusy(trusting, how),
          settle: () => this.#peer.call({ kind: 'settle' }).then(() => {}),
        });
      }
    }
    if (typeof this.#redis !== 'string') {
      contenders.push(await fastestPipeline(this.#redis, batchesOf(order), isStamped));
    }
    return contenders;
  }

  /** Reads while the owner's main thread is blocked or computing. */
  async #readWhileBusy(batches: readonly (readonly ReadOp[])[], how: 'blocked' | 'computing'): Promise<void> {
    await this.#peer.call({ kind: 'busy', how, ms: BUSY_MS });
    await this.#readAll(batches);
  }

  async #readAll(batches: readonly (readonly ReadOp[])[]): Promise<void> {
    for (const batch of batches) {
      const results = await this.#transport.batchRead(batch);
      if (!results.every(Boolean)) throw new Error('batchRead: a page did not come');
    }
  }

  #plainBatches(
    order: readonly number[],
    slots: readonly number[],
    { pageBytes, destinations }: { readonly pageBytes: number; readonly destinations: Destinations },
  ): PlainBatch[] {
    return batchesOf(order).map((pages, batch) => {
      const first = batch * BATCH_PAGES;
      if (destinations === 'contiguous') {
        return { pages, destinations: [this.#target.bytes(first * pageBytes, pages.length * pageBytes)] };
      }
      const own = slots.slice(first, first + pages.length);
      return { pages, destinations: own.map((slot) => this.#target.bytes(slot * pageBytes, pageBytes)) };
    });
  }
}
