import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type RandomSource, seededRandom } from '../base/random.js';
import { formatSize } from '../base/sizes.js';
import { crc32 } from '../memory/checksum.js';
import { HostRegion } from '../memory/host-region.js';
import { TcpTransport } from '../transport/tcp/tcp-transport.js';
import type { ReadOp } from '../transport/transport.js';
import { type PlainBatch, PlainReader } from './plain-pair.js';
import { RedisPeer } from './redis.js';
import type { BenchOptions, BenchReport } from './report.js';
import { isStamped, stampPage } from './store-pages.js';
import type { TcpPeerAnswer, TcpPeerCommand } from './tcp-peer.js';

const BATCH_PAGES = 128;
const PAGE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const FULL_WORK_BYTES = 2 ** 30;
const QUICK_WORK_BYTES = 16 * 2 ** 20;
const REDIS_AT_A_TIME = [4, 16, 32, 128] as const;

/** Where a batch's pages go: one after the other, or each somewhere else. */
type Destinations = 'contiguous' | 'scattered';

/** One way to bring every page of the other process's pool here, batch after batch. */
interface Contender {
  readonly name: string;
  /** One pass over all pages. */
  read(): Promise<void>;
  /** Whether the last pass has brought the right bytes. */
  isRight(): boolean;
}

/**
 * `batchRead` of pages in another process's pool beside two plain sockets that only copy, in one
 * interleaved run, and beside redis where it is installed. Pages are asked for in random order.
 */
export async function tcpBench(options: BenchOptions): Promise<BenchReport> {
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
  readonly #peer: ServingProcess;
  readonly #memory: Required<Omit<TcpPeerAnswer, 'error'>>;
  readonly #transport: TcpTransport;
  readonly #plain: PlainReader;
  readonly #redis: RedisPeer | string;
  readonly #target: HostRegion;
  readonly #random: RandomSource = seededRandom(1);

  static async start(options: BenchOptions): Promise<TcpBench> {
    options.progress('starting the serving processes');
    const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
    const peer = new ServingProcess();
    const memory = (await peer.call({ kind: 'start', poolBytes: workBytes })) as Required<TcpPeerAnswer>;
    const target = HostRegion.allocate(workBytes);
    target.prefault();
    const parts = {
      peer,
      memory,
      target,
      transport: await TcpTransport.create({ host: '127.0.0.1' }),
      plain: await PlainReader.connect(memory.plainPort),
      redis: await RedisPeer.start(),
    };
    return new TcpBench(options, parts);
  }

  private constructor(
    options: BenchOptions,
    parts: {
      readonly peer: ServingProcess;
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
      'ratio: to the plain sockets with the same destinations, which verify nothing and serve from their main thread.',
    ];
    if (typeof this.#redis === 'string') notes.push(`Without redis: ${this.#redis}.`);
    else notes.push('ioredis: getBuffer in pipelines of the best size found; its values stay where it puts them.');
    return notes;
  }

  /** Makes all serving sides hold pages of this size. */
  async prepare(pageBytes: number): Promise<void> {
    this.#options.progress(`pages of ${formatSize(pageBytes)}: filling the pools`);
    await this.#peer.call({ kind: 'stamp', pageBytes });
    if (typeof this.#redis === 'string') return;
    const page = new Uint8Array(pageBytes);
    await this.#redis.fill(this.#pages(pageBytes), pageBytes, (number) => stamped(page, number));
  }

  /** Rows of one page size: every contender in turn, round after round, the first round not counted. */
  async measure(pageBytes: number, destinations: Destinations): Promise<BenchReport['rows'][number][]> {
    const contenders = await this.#contenders(pageBytes, destinations);
    const speeds = contenders.map((): number[] => []);
    const totalBytes = this.#pages(pageBytes) * pageBytes;
    for (let round = 0; round <= this.#options.rounds; round++) {
      this.#options.progress(`${formatSize(pageBytes)}, ${destinations}: round ${round} of ${this.#options.rounds}`);
      for (const [c, contender] of contenders.entries()) {
        if (round === 0) this.#target.bytes().fill(0);
        const startedMs = performance.now();
        await contender.read();
        if (round > 0) speeds[c]?.push(totalBytes / (performance.now() - startedMs) / 1e6);
        else if (!contender.isRight()) throw new Error(`${contender.name}: wrong bytes`);
      }
    }
    const plain = median(speeds[0] as number[]);
    return contenders.map(({ name }, c) => {
      const all = speeds[c] as number[];
      return {
        page: formatSize(pageBytes),
        destinations,
        contender: name,
        gb_per_s: median(all),
        min_gb_per_s: Math.min(...all),
        max_gb_per_s: Math.max(...all),
        ratio: median(all) / plain,
      };
    });
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

  /** The first one is what the others are compared with. */
  async #contenders(pageBytes: number, destinations: Destinations): Promise<Contender[]> {
    const pages = this.#pages(pageBytes);
    const order = shuffled(pages, this.#random);
    const slots = destinations === 'scattered' ? shuffled(pages, this.#random) : order.map((_, i) => i);
    const sums = checksums(pages, pageBytes);
    const ops = order.map((page, i): ReadOp & { checksum: number } => ({
      remoteEndpoint: this.#memory.endpoint,
      remoteAddr: BigInt(this.#memory.addr) + BigInt(page * pageBytes),
      rkey: this.#memory.rkey,
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
    const isOnce = destinations === 'contiguous';
    if (typeof this.#redis !== 'string' && isOnce) contenders.push(await redisContender(this.#redis, order));
    return contenders;
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

/** Finds the number of values a pipeline that is fastest here. */
async function redisContender(redis: RedisPeer, order: readonly number[]): Promise<Contender> {
  const batches = batchesOf(order);
  let isRight = true;
  const readAll = async (atATime: number): Promise<void> => {
    isRight = true;
    for (const pages of batches) {
      const values = await redis.read(pages, atATime);
      const last = values.length - 1;
      isRight &&= isStamped((values[last] as Buffer).subarray(0, 8), pages[last] as number);
    }
  };
  let best = { atATime: 0, ms: Number.POSITIVE_INFINITY };
  for (const atATime of REDIS_AT_A_TIME) {
    const startedMs = performance.now();
    await readAll(atATime);
    const ms = performance.now() - startedMs;
    if (ms < best.ms) best = { atATime, ms };
  }
  const { atATime } = best;
  return { name: `ioredis, ${atATime} a pipeline`, isRight: () => isRight, read: () => readAll(atATime) };
}

/** The other process. */
class ServingProcess {
  readonly #child: ChildProcess;

  constructor() {
    this.#child = fork(fileURLToPath(new URL('./tcp-peer.js', import.meta.url)));
  }

  call(command: TcpPeerCommand): Promise<TcpPeerAnswer> {
    return new Promise((resolve, reject) => {
      const onExit = (status: number | null): void => reject(new Error(`the serving process ended (status ${status})`));
      this.#child.once('exit', onExit);
      this.#child.once('message', (answer: TcpPeerAnswer) => {
        this.#child.off('exit', onExit);
        if (answer.error === undefined) resolve(answer);
        else reject(new Error(`the serving process failed: ${answer.error}`));
      });
      this.#child.send(command);
    });
  }

  end(): void {
    if (this.#child.connected) this.#child.disconnect();
  }
}

function stamped(bytes: Uint8Array, page: number): Uint8Array {
  stampPage(bytes, page);
  return bytes;
}

function checksums(pages: number, pageBytes: number): Uint32Array {
  const bytes = new Uint8Array(pageBytes);
  return Uint32Array.from({ length: pages }, (_, page) => crc32(stamped(bytes, page)));
}

function batchesOf<T>(items: readonly T[]): T[][] {
  const batches: T[][] = [];
  for (let first = 0; first < items.length; first += BATCH_PAGES) batches.push(items.slice(first, first + BATCH_PAGES));
  return batches;
}

/** The numbers from 0 to `count` - 1 in random order. */
function shuffled(count: number, random: RandomSource): number[] {
  const numbers = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = random.u32() % (i + 1);
    [numbers[i], numbers[j]] = [numbers[j] as number, numbers[i] as number];
  }
  return numbers;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] as number;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] as number) + upper) / 2;
}
