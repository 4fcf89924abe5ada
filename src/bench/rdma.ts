import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { formatSize } from '../base/sizes.js';
import { HostRegion } from '../memory/host-region.js';
import { TransferEngine } from '../native/transfer-engine.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { endAtExit } from '../processes/at-exit.js';
import { findFreePort } from '../processes/free-port.js';
import { findProgram } from '../processes/programs.js';
import { systemRandom } from '../system/system-random.js';
import { type ExecuteCommand, PeerProcess } from './measuring/peer-process.js';
import { type BenchOptions, type BenchReport, inRound, median } from './measuring/report.js';
import { SoftirqThreads } from './measuring/softirq-threads.js';
import {
  awaitMembers,
  benchKeys,
  benchStorage,
  destinationPool,
  isStamped,
  publishPages,
  stampPage,
} from './measuring/store-pages.js';

const run = promisify(execFile);

const ATTEMPTS = 20;

const RETRY_DELAY_MS = 100;

interface IbReadBwOptions {
  readonly device: string;
  /** Address of the device; both sides run on this host. */
  readonly host: string;
  /** TCP port on which the two sides connect. */
  readonly port: number;
  readonly messageBytes: number;
  /** Messages to read on each queue pair. */
  readonly iterations: number;
  readonly queuePairs: number;
  /** Reads in flight on each queue pair. */
  readonly depth: number;
  /** Whether to sleep on completion events instead of polling all the time. */
  readonly sleeps: boolean;
}

/** Measurements of the reading process from its start to its end. */
interface IbReadBwTimes {
  /** Seconds that the process ran. */
  readonly elapsedS: number;
  /** User and system time in seconds. */
  readonly cpuS: number;
}

interface IbReadBwResult extends IbReadBwTimes {
  /** Seconds of the kernel's threads meanwhile. */
  readonly kernelS: number;
}

const PAGE_SIZES_BYTES = [64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const BATCH_MAX_PAGES = 128;
/** Batches in flight. */
const LANES_COUNT = 2;
const FULL_WORK_BYTES = 128 * 2 ** 20;
const QUICK_WORK_BYTES = 8 * 2 ** 20;
/** Milliseconds that each contender reads in each round. */
const FULL_ROUND_MS = 4000;
const QUICK_ROUND_MS = 100;
/** Messages on each queue pair in a set-up run; `ib_read_bw` accepts no fewer. */
const SET_UP_ITERATIONS = 5;
/** Bytes that the first, uncounted round of `ib_read_bw` reads. */
const FIRST_BYTES = 64 * 2 ** 20;
const POOL_SLACK = 1.25;
const READER_POOL_BYTES = 2 ** 20;
const GIB = 2 ** 30;

/** Result of one contender in one round. */
interface Run {
  readonly bytesPerS: number;
  /** Processor seconds of the reading process per GiB, user and system time together. */
  readonly cpuSPerGib: number;
  /** Processor seconds of the kernel's threads per GiB meanwhile; see {@link SoftirqThreads}. */
  readonly kernelSPerGib: number;
}

interface Contender {
  readonly name: string;
  run(): Promise<Run>;
}

type RdmaPeer = PeerProcess<RdmaPeerCommand, RdmaPeerAnswer>;

/**
 * Reads another process's memory over one RDMA device with perftest's `ib_read_bw`, with `TransferEngine.batchRead`,
 * and with `batchGetV1` including directory and verification. The contenders are interleaved and use the same message
 * size, queue pairs and reads in flight.
 */
export async function rdmaBench(options: BenchOptions): Promise<BenchReport> {
  options.progress('starting the serving process');
  const bench = await RdmaBench.start(options);
  try {
    const rows: BenchReport['rows'][number][] = [];
    for (const pageBytes of PAGE_SIZES_BYTES) rows.push(...(await bench.measure(pageBytes)));
    return { title: 'rdma: pages from the memory of another process of this host', rows, notes: bench.notes() };
  } finally {
    await bench.close();
  }
}

class RdmaBench {
  readonly #options: BenchOptions;
  readonly #peer: RdmaPeer;
  readonly #memory: Required<Omit<RdmaPeerAnswer, 'error'>>;
  readonly #engine: TransferEngine;
  readonly #store: MeshCacheStore;
  readonly #target: HostRegion;
  readonly #perftest: string | undefined;
  readonly #softirqs = new SoftirqThreads();

  static async start(options: BenchOptions): Promise<RdmaBench> {
    const engine = new TransferEngine({ deviceName: options.device });
    const host = hostOf(engine);
    const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
    const poolBytes = Math.ceil(workBytes * POOL_SLACK);
    const discoveryAddr = `${host}:${await findFreePort(systemRandom)}`;
    const peer: RdmaPeer = new PeerProcess('rdma');
    try {
      const memory = await peer.call({ kind: 'start', host, workBytes, poolBytes, discoveryAddr });
      const store = await MeshCacheStore.create(
        benchStorage(discoveryAddr, READER_POOL_BYTES, {
          protocol: 'rdma',
          local_hostname: host,
        }),
      );
      await awaitMembers(store, 2);
      const target = HostRegion.allocate(workBytes);
      await target.prefault();
      engine.registerMr(target.addr, target.length);
      const parts = { peer, memory: memory as Required<RdmaPeerAnswer>, engine, store, target };
      return new RdmaBench(options, { ...parts, perftest: await findProgram('ib_read_bw') });
    } catch (error) {
      peer.end();
      await engine.close();
      throw error;
    }
  }

  private constructor(
    options: BenchOptions,
    parts: {
      readonly peer: RdmaPeer;
      readonly memory: Required<RdmaPeerAnswer>;
      readonly engine: TransferEngine;
      readonly store: MeshCacheStore;
      readonly target: HostRegion;
      readonly perftest: string | undefined;
    },
  ) {
    this.#options = options;
    this.#peer = parts.peer;
    this.#memory = parts.memory;
    this.#engine = parts.engine;
    this.#store = parts.store;
    this.#target = parts.target;
    this.#perftest = parts.perftest;
  }

  notes(): string[] {
    const { deviceName, queuePairsPerPeer, queueDepth } = this.#engine;
    const { protocol } = this.#store.runtime.transport;
    return [
      `Device ${deviceName}, ${queuePairsPerPeer} queue pairs with up to ${queueDepth} reads in flight each, for every contender; medians of ${this.#options.rounds} interleaved rounds.`,
      `batchGetV1 over ${protocol}: ${LANES_COUNT} batches of at most ${BATCH_MAX_PAGES} pages at a time; half of the directory lookups cross to the other process.`,
      'ratio: to ib_read_bw, which polls for completions all the time; with -e it sleeps until there are some.',
      'cpu_s_per_gib: user and system time of the reading process; cpu_ratio: to that of ib_read_bw in the same round.',
      'kernel_s_per_gib: time of ksoftirqd meanwhile, which does a varying part of the work of a software device; total_ratio: of both together, to those of ib_read_bw in the same round.',
      ...(this.#softirqs.count === 0 ? ['No ksoftirqd is visible here: total_ratio is cpu_ratio.'] : []),
      ...(this.#perftest === undefined
        ? ['Without ib_read_bw, which is not installed: ratios are to TransferEngine.']
        : []),
    ];
  }

  async measure(pageBytes: number): Promise<BenchReport['rows'][number][]> {
    const { rounds, progress } = this.#options;
    const page = formatSize(pageBytes);
    progress(`publishing pages of ${page}`);
    await this.#peer.call({ kind: 'publish', pageBytes });
    const contenders = await this.#contenders(pageBytes);
    const runs = contenders.map((): Run[] => []);
    for (let round = 0; round <= rounds; round++) {
      for (const [c, contender] of inRound(contenders, round)) {
        progress(`${page}: round ${round} of ${rounds}, ${contender.name}`);
        const run = await contender.run();
        if (round > 0) runs[c]?.push(run);
      }
    }
    const references = runs[0] as Run[];
    const reference = median(references.map((run) => run.bytesPerS));
    return contenders.map(({ name }, c) => {
      const own = runs[c] as Run[];
      const speeds = own.map((run) => run.bytesPerS / 1e6);
      const medianRatio = (pick: (run: Run) => number): number =>
        round3(median(own.map((run, r) => pick(run) / pick(references[r] as Run))));
      return {
        page,
        contender: name,
        mb_per_s: round3(median(speeds)),
        min_mb_per_s: round3(Math.min(...speeds)),
        max_mb_per_s: round3(Math.max(...speeds)),
        ratio: round3((median(speeds) * 1e6) / reference),
        cpu_s_per_gib: round3(median(own.map((run) => run.cpuSPerGib))),
        cpu_ratio: medianRatio((run) => run.cpuSPerGib),
        kernel_s_per_gib: round3(median(own.map((run) => run.kernelSPerGib))),
        total_ratio: medianRatio((run) => run.cpuSPerGib + run.kernelSPerGib),
      };
    });
  }

  async close(): Promise<void> {
    await this.#store.close();
    await this.#engine.close();
    this.#target.free();
    this.#peer.end();
  }

  async #contenders(pageBytes: number): Promise<Contender[]> {
    const pages = Math.floor(this.#target.length / pageBytes);
    const batches = slicesOf(pages);
    const keys = benchKeys(pageBytes, pages);
    const { endpoint: remoteNode, addr, rkey } = this.#memory;
    const requests = Array.from({ length: pages }, (_, page) => ({
      remoteNode,
      localAddr: this.#target.addr + BigInt(page * pageBytes),
      remoteAddr: BigInt(addr) + BigInt(page * pageBytes),
      rkey,
      length: pageBytes,
    }));
    await this.#store.registerMemPoolHost(destinationPool(this.#target, pageBytes));
    const ours: Contender[] = [
      {
        name: 'TransferEngine.batchRead',
        run: () => this.#timed(pageBytes, batches, (from, to) => this.#engine.batchRead(requests.slice(from, to))),
      },
      {
        name: 'batchGetV1, verified',
        run: () =>
          this.#timed(pageBytes, batches, (from, to) => {
            const slots = Array.from({ length: to - from }, (_, i) => from + i);
            return this.#store.batchGetV1(keys.slice(from, to), slots);
          }),
      },
    ];
    if (this.#perftest === undefined) return ours;
    return [this.#ibReadBw(pageBytes, false), this.#ibReadBw(pageBytes, true), ...ours];
  }

  /**
   * Repeats passes over all pages until the round's time is over, with two batches in flight, because `ib_read_bw` does
   * not pause between reads either. The bytes of the last pass are checked.
   */
  async #timed(
    pageBytes: number,
    batches: readonly (readonly [from: number, to: number])[],
    read: (from: number, to: number) => Promise<boolean[]>,
  ): Promise<Run> {
    this.#target.bytes().fill(0);
    const roundMs = this.#options.quick ? QUICK_ROUND_MS : FULL_ROUND_MS;
    const kernelBeforeS = this.#softirqs.cpuS();
    const cpuBefore = process.cpuUsage();
    const startMs = performance.now();
    let bytes = 0;
    const readEvery = async (lane: number): Promise<void> => {
      do {
        for (let i = lane; i < batches.length; i += LANES_COUNT) {
          const [from, to] = batches[i] as readonly [number, number];
          const results = await read(from, to);
          const missed = results.filter((isRead) => !isRead).length;
          if (missed > 0) throw new Error(`${missed} pages of ${formatSize(pageBytes)} did not come`);
          bytes += (to - from) * pageBytes;
        }
      } while (performance.now() - startMs < roundMs);
    };
    await Promise.all(Array.from({ length: LANES_COUNT }, (_, lane) => readEvery(lane)));
    const elapsedS = (performance.now() - startMs) / 1000;
    const { user, system } = process.cpuUsage(cpuBefore);
    const kernelS = this.#softirqs.cpuS() - kernelBeforeS;
    for (let page = 0; (page + 1) * pageBytes <= this.#target.length; page++) {
      if (!isStamped(this.#target.bytes(page * pageBytes, pageBytes), page))
        throw new Error(`page ${page}: wrong bytes`);
    }
    const gib = bytes / GIB;
    return { bytesPerS: bytes / elapsedS, cpuSPerGib: (user + system) / 1e6 / gib, kernelSPerGib: kernelS / gib };
  }

  /**
   * A contender that runs `ib_read_bw`. Short runs measure the time of start and set-up, which is subtracted.
   */
  #ibReadBw(messageBytes: number, sleeps: boolean): Contender {
    const { deviceName: device, queuePairsPerPeer: queuePairs, queueDepth: depth } = this.#engine;
    const host = hostOf(this.#engine);
    const roundS = (this.#options.quick ? QUICK_ROUND_MS : FULL_ROUND_MS) / 1000;
    const runFor = async (iterations: number): Promise<IbReadBwResult> => {
      const port = await findFreePort(systemRandom);
      const options = { device, host, port, messageBytes, iterations, queuePairs, depth, sleeps };
      const kernelBeforeS = this.#softirqs.cpuS();
      const times = await runIbReadBw(this.#perftest as string, options);
      return { ...times, kernelS: this.#softirqs.cpuS() - kernelBeforeS };
    };
    const bytesOf = (iterations: number): number => iterations * queuePairs * messageBytes;
    let iterations = Math.ceil(FIRST_BYTES / messageBytes / queuePairs);
    const setUps: IbReadBwResult[] = [];
    return {
      name: sleeps ? 'ib_read_bw -e' : 'ib_read_bw',
      run: async () => {
        setUps.push(await runFor(SET_UP_ITERATIONS));
        const whole = await runFor(iterations + SET_UP_ITERATIONS);
        const bytes = bytesOf(iterations);
        const setUpS = median(setUps.map(({ elapsedS }) => elapsedS));
        const setUpCpuS = median(setUps.map(({ cpuS }) => cpuS));
        const setUpKernelS = median(setUps.map(({ kernelS }) => kernelS));
        // The next run's length is derived from the total time, so that one slow set-up does not lengthen the next run.
        iterations = Math.ceil(((bytes / whole.elapsedS) * (roundS + setUpS)) / messageBytes / queuePairs);
        return {
          bytesPerS: bytes / Math.max(0.001, whole.elapsedS - setUpS),
          cpuSPerGib: Math.max(0, whole.cpuS - setUpCpuS) / (bytes / GIB),
          kernelSPerGib: Math.max(0, whole.kernelS - setUpKernelS) / (bytes / GIB),
        };
      },
    };
  }
}

/** Slices of the pages, at least one for each lane unless there are fewer pages. */
function slicesOf(pages: number): (readonly [from: number, to: number])[] {
  const slices: (readonly [number, number])[] = [];
  const batchPages = Math.min(BATCH_MAX_PAGES, Math.ceil(pages / LANES_COUNT));
  for (let from = 0; from < pages; from += batchPages) slices.push([from, Math.min(from + batchPages, pages)]);
  return slices;
}

function hostOf(engine: TransferEngine): string {
  const endpoint = engine.localEndpoint();
  return endpoint.slice(0, endpoint.lastIndexOf(':'));
}

function round3(value: number): number {
  return Number(value.toPrecision(4));
}

/**
 * Runs perftest's `ib_read_bw` once against a server of its own. Times are taken from outside, because the program's
 * own figures depend on an estimate of the processor frequency, which is wrong in virtual machines.
 */
async function runIbReadBw(program: string, options: IbReadBwOptions): Promise<IbReadBwTimes> {
  const flags = flagsOf(options);
  const server = spawn(program, flags, { stdio: 'ignore' });
  endAtExit(server);
  try {
    const { stdout, stderr } = await readWhenListening(program, [...flags, options.host], server);
    return timesOf(stdout, stderr);
  } finally {
    if (server.exitCode === null && server.signalCode === null) {
      server.kill('SIGKILL');
      await once(server, 'exit');
    }
  }
}

function flagsOf(options: IbReadBwOptions): string[] {
  const { device, port, messageBytes, iterations, queuePairs, depth, sleeps } = options;
  const numbers = { p: port, s: messageBytes, q: queuePairs, t: depth, n: iterations };
  const pairs = Object.entries(numbers).flatMap(([flag, value]) => [`-${flag}`, String(value)]);
  return ['-d', device, '-R', '-F', ...pairs, ...(sleeps ? ['-e'] : [])];
}

/** Starts the reader repeatedly until the server listens. A reader that comes too early exits at once with an error. */
async function readWhenListening(
  program: string,
  args: readonly string[],
  server: ChildProcess,
): Promise<{ stdout: string; stderr: string }> {
  for (let attempt = 1; ; attempt++) {
    await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY_MS));
    if (server.exitCode !== null) throw new Error(`the server of ib_read_bw ended with status ${server.exitCode}`);
    try {
      // The shell's `time` measures only the program that it runs.
      return await run('bash', ['-c', 'TIMEFORMAT="took %R %U %S"; time "$0" "$@"', program, ...args]);
    } catch (error) {
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

function timesOf(stdout: string, stderr: string): IbReadBwTimes {
  const [, elapsed, user, system] = /^took ([\d.]+) ([\d.]+) ([\d.]+)$/m.exec(stderr) ?? [];
  if (elapsed === undefined || !stdout.includes('BW average')) {
    throw new Error(`ib_read_bw said what this program does not understand:\n${stdout}${stderr}`);
  }
  return { elapsedS: Number(elapsed), cpuS: Number(user) + Number(system) };
}

type RdmaPeerCommand =
  | {
      readonly kind: 'start';
      readonly host: string;
      readonly workBytes: number;
      readonly poolBytes: number;
      readonly discoveryAddr: string;
    }
  /** Fills the region and the pool with pages of this size. */
  | { readonly kind: 'publish'; readonly pageBytes: number };

interface RdmaPeerAnswer {
  readonly error?: string;
  readonly endpoint?: string;
  /** Address of the region as decimal text. */
  readonly addr?: string;
  readonly rkey?: number;
}

/**
 * The serving process of the RDMA benchmark: one region that an engine serves, and a node whose pool holds the same
 * pages.
 */
export function rdmaPeer(): ExecuteCommand<RdmaPeerCommand, RdmaPeerAnswer> {
  let region: HostRegion | undefined;
  let store: MeshCacheStore | undefined;
  return async (command) => {
    if (command.kind === 'start') {
      const { host, workBytes, poolBytes, discoveryAddr } = command;
      region = HostRegion.allocate(workBytes);
      await region.prefault();
      const engine = new TransferEngine({ bindHost: host });
      const { addr, rkey } = engine.registerMr(region.addr, region.length);
      store = await MeshCacheStore.create(
        benchStorage(discoveryAddr, poolBytes, { protocol: 'rdma', local_hostname: host }),
      );
      return { endpoint: engine.localEndpoint(), addr: addr.toString(), rkey };
    }
    if (region === undefined || store === undefined) throw new Error('publish before start');
    const { pageBytes } = command;
    const pages = Math.floor(region.length / pageBytes);
    for (let page = 0; page < pages; page++) stampPage(region.bytes(page * pageBytes, pageBytes), page);
    await store.clear();
    await publishPages(store, benchKeys(pageBytes, pages), pageBytes);
    return {};
  };
}
