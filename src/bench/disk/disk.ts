import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { seededRandom, shuffled } from '../../base/environment/random.js';
import { formatSize } from '../../base/sizes.js';
import { DiskStore } from '../../disk/disk-store.js';
import { crc32 } from '../../memory/checksum.js';
import { HostRegion } from '../../memory/host-region.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { type Benchmark, type BenchOptions, type BenchReport, inRound, median } from '../measuring/report.js';
import { benchKeys, isStamped, stampPage } from '../measuring/store-pages.js';
import {
  type DiskContender,
  type DiskWork,
  dropFileCache,
  Fio,
  filePerPage,
  fioContender,
  IN_FLIGHT_COUNT,
  lmdbContender,
  pageOf,
  syncDisks,
} from './disk-contenders.js';
import { awaitRoom, LoopDelay, StoreContender, StoreMemory } from './disk-store-contender.js';

const PAGE_SIZES_BYTES = [64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const PROBE_BYTES = 2 ** 20;
const ORDER_SEED = 4;

const REMOVE_RETRIES = { maxRetries: 10, retryDelay: 20 } as const;

/** Sizes and counts of a full run. */
const FULL = {
  workBytes: 2 ** 30,
  memoryPages: 1_000_000,
  warmUpPages: 50_000,
  overfilledBytes: 256 * 2 ** 20,
} as const;
const QUICK = {
  workBytes: 8 * 2 ** 20,
  memoryPages: 2_000,
  warmUpPages: 500,
  overfilledBytes: 4 * 2 ** 20,
} as const;

type Row = BenchReport['rows'][number];
type Step = 'write' | 'rewrite' | 'read';
const STEPS = ['write', 'rewrite', 'read'] as const;

/**
 * Compares `DiskStore` with fio (same block size, depth, mode and file system), with `lmdb` and with one file per page,
 * interleaved. Also reports memory per page, the space used on disk, and delays of the event loop.
 */
export const diskBench: Benchmark = async (options) => {
  const parent = options.dir ?? tmpdir();
  await mkdir(parent, { recursive: true });
  const folder = await mkdtemp(join(parent, 'meshcache-bench-'));
  // If a signal ends the program, gigabytes must not stay behind. Threads and fio may still create files at that
  // moment, so the removal is retried.
  const removeAtExit = (): void => rmSync(folder, { recursive: true, force: true, ...REMOVE_RETRIES });
  process.once('exit', removeAtExit);
  try {
    const size = options.quick ? QUICK : FULL;
    // Costs are measured first, before anything else has filled this process's memory.
    const costs = await costNotes(folder, size, options);
    const memory = new StoreMemory(size.workBytes);
    try {
      const bench = await DiskBench.prepare(folder, { size, options, memory });
      const rows: Row[] = [];
      for (const pageBytes of PAGE_SIZES_BYTES) rows.push(...(await bench.measure(pageBytes)));
      return {
        title: 'disk: pages written, written again, and read at random',
        rows,
        notes: [...bench.notes(), ...costs],
      };
    } finally {
      memory.free();
    }
  } finally {
    await rm(folder, { recursive: true, force: true, ...REMOVE_RETRIES });
    process.off('exit', removeAtExit);
  }
};

async function costNotes(
  folder: string,
  size: typeof FULL | typeof QUICK,
  { progress }: BenchOptions,
): Promise<string[]> {
  const idle = await idleLoopDelay();
  const inMemory = await inFolder(folder, (path) =>
    memoryPerPage(path, { pages: size.memoryPages, warmUpPages: size.warmUpPages, progress }),
  );
  const space = await inFolder(folder, (path) =>
    spaceWhileOverfilled(path, { diskBytes: size.overfilledBytes, progress }),
  );
  return [
    `Memory: ${inMemory.rssBytesPerPage.toFixed(0)} bytes a page on disk, at ${inMemory.pages} pages of 4 KiB with keys of 97 characters (growth of the resident memory, WASM included).`,
    `Space: at most ${space.maxUsedBytes} bytes on disk of ${space.diskBytes} allowed, in ${space.samples} samples while ${space.writtenBytes} were written.`,
    `Event loop of an idle program here: p99 ${idle.p99Ms.toFixed(1)} ms, longest ${idle.maxMs.toFixed(1)} ms.`,
  ];
}

class DiskBench {
  readonly #folder: string;
  readonly #options: BenchOptions;
  readonly #contenders: readonly DiskContender[];
  readonly #notes: readonly string[];
  readonly #source: Buffer;
  readonly #target: Buffer;
  #isCacheDropped = true;

  static async prepare(
    folder: string,
    given: { readonly size: typeof FULL | typeof QUICK; readonly options: BenchOptions; readonly memory: StoreMemory },
  ): Promise<DiskBench> {
    const { size, options, memory } = given;
    const ioMode = await inFolder(folder, ioModeOf);
    const isDirect = ioMode === 'direct';
    const job = { kind: 'write', fileBytes: PROBE_BYTES, blockBytes: PROBE_BYTES, depth: 1, isDirect } as const;
    const fio = await inFolder(folder, (path) => Fio.find({ ...job, file: join(path, 'probe') }));
    const lmdb = await lmdbContender();
    const contenders: DiskContender[] = [
      ...(typeof fio === 'string' ? [] : [fioContender(fio, isDirect)]),
      ...(['aligned', 'unaligned', 'put'] as const).map((variant) => new StoreContender(variant, memory)),
      ...(typeof lmdb === 'string' ? [] : [lmdb]),
      filePerPage,
    ];
    const notes = [
      `${formatSize(size.workBytes)} of pages below ${options.dir ?? tmpdir()}, ${ioMode} I/O, ${IN_FLIGHT_COUNT} in flight; medians of ${options.rounds} interleaved rounds.`,
      'DiskStore: handed over as the tier does, with the checksum that the pool has taken; read with the checksum taken and compared. put: copied first, and its checksum taken.',
      'lmdb and one file per page go through the file cache and are synced within their time; what they read is copied to memory of the reader.',
      'loop_p99_ms, loop_max_ms: turns of the event loop while DiskStore writes and reads, the 1 ms of the measuring timer included.',
      ...[fio, lmdb].filter((reason) => typeof reason === 'string').map((reason) => `Left out: ${reason}.`),
      ...(typeof fio === 'string' ? ['Ratios are to DiskStore.'] : ['Ratios are to fio.']),
    ];
    return new DiskBench(folder, { options, contenders, notes, workBytes: size.workBytes });
  }

  private constructor(
    folder: string,
    parts: {
      readonly options: BenchOptions;
      readonly contenders: readonly DiskContender[];
      readonly notes: readonly string[];
      readonly workBytes: number;
    },
  ) {
    this.#folder = folder;
    this.#options = parts.options;
    this.#contenders = parts.contenders;
    this.#notes = parts.notes;
    this.#source = Buffer.alloc(parts.workBytes, 1);
    this.#target = Buffer.alloc(parts.workBytes, 1);
  }

  notes(): string[] {
    if (this.#isCacheDropped) return [...this.#notes];
    return [
      ...this.#notes,
      'The file cache was not emptied before reads: lmdb and one file per page read from memory.',
    ];
  }

  async measure(pageBytes: number): Promise<Row[]> {
    const { rounds, progress } = this.#options;
    const work = this.#workOf(pageBytes);
    const times = this.#contenders.map((): Record<Step, number[]> => ({ write: [], rewrite: [], read: [] }));
    for (let round = 0; round <= rounds; round++) {
      for (const [c, contender] of inRound(this.#contenders, round)) {
        progress(`${formatSize(pageBytes)}: round ${round} of ${rounds}, ${contender.name}`);
        if (round === 1 && contender instanceof StoreContender) contender.loopDelay = new LoopDelay();
        const measured = await inFolder(this.#folder, (path) => this.#round(contender, path, work, round === 0));
        if (round > 0) for (const step of STEPS) times[c]?.[step].push(measured[step]);
        if (!this.#options.quick) await syncDisks();
      }
    }
    return this.#rows(work, times);
  }

  async #round(
    contender: DiskContender,
    path: string,
    work: DiskWork,
    isChecked: boolean,
  ): Promise<Readonly<Record<Step, number>>> {
    const run = await contender.begin(path, work);
    try {
      const write = await run.write();
      const rewrite = await run.rewrite();
      await run.forget?.();
      // A quick run keeps the cache: its figures mean nothing, and an empty cache slows the whole machine.
      this.#isCacheDropped = !this.#options.quick && (await dropFileCache()) && this.#isCacheDropped;
      if (isChecked) for (let page = 0; page < work.pages; page++) run.pageAt?.(page).fill(0);
      const read = await run.read();
      if (isChecked) checkPages(contender.name, work, (page) => run.pageAt?.(page));
      return { write, rewrite, read };
    } finally {
      await run.end();
    }
  }

  #workOf(pageBytes: number): DiskWork {
    const [source, target] = [this.#source, this.#target];
    const pages = Math.floor(source.length / pageBytes);
    for (let page = 0; page < pages; page++) stampPage(pageOf(source, page, pageBytes), page);
    return { pageBytes, pages, keys: benchKeys(pageBytes, pages), order: randomOrder(pages), source, target };
  }

  #rows({ pages, pageBytes }: DiskWork, times: readonly Readonly<Record<Step, number[]>>[]): Row[] {
    const speed = (c: number, step: Step): number => (pages * pageBytes) / median(times[c]?.[step] ?? []) / 1e6;
    return this.#contenders.map((contender, c) => ({
      page: formatSize(pageBytes),
      contender: contender.name,
      write_gb_per_s: rounded(speed(c, 'write')),
      rewrite_gb_per_s: rounded(speed(c, 'rewrite')),
      read_gb_per_s: rounded(speed(c, 'read')),
      write_ratio: rounded(speed(c, 'write') / speed(0, 'write')),
      rewrite_ratio: rounded(speed(c, 'rewrite') / speed(0, 'rewrite')),
      read_ratio: rounded(speed(c, 'read') / speed(0, 'read')),
      ...(contender instanceof StoreContender
        ? { loop_p99_ms: rounded(contender.loopDelay.p99Ms), loop_max_ms: rounded(contender.loopDelay.maxMs) }
        : {}),
    }));
  }
}

/** The I/O mode that a store gets on this file system. */
async function ioModeOf(path: string): Promise<'direct' | 'buffered'> {
  const store = await DiskStore.open(path, PROBE_BYTES, { nodeId: 'bench', env: systemEnvironment() });
  const { ioMode } = store.info();
  await store.close();
  return ioMode;
}

/** Runs `work` in a new folder, which is removed afterwards. */
async function inFolder<T>(parent: string, work: (path: string) => Promise<T>): Promise<T> {
  const path = await mkdtemp(join(parent, 'run-'));
  try {
    return await work(path);
  } finally {
    await rm(path, { recursive: true, force: true });
  }
}

function checkPages(name: string, { pages }: DiskWork, pageAt: (page: number) => Uint8Array | undefined): void {
  for (let page = 0; page < pages; page++) {
    const bytes = pageAt(page);
    if (bytes !== undefined && !isStamped(bytes, page)) throw new Error(`${name}: page ${page} has wrong bytes`);
  }
}

/** The numbers below `count` in an order that is the same for every contender and every run. */
function randomOrder(count: number): Uint32Array {
  const numbers = Array.from({ length: count }, (_, i) => i);
  return Uint32Array.from(shuffled(numbers, seededRandom(ORDER_SEED)));
}

function rounded(value: number): number {
  return Number(value.toPrecision(4));
}

const SMALL_PAGE_BYTES = 4096;
/** Disk space for each small page: the page, its part of the index, and room to spare. */
const DISK_BYTES_PER_SMALL_PAGE = 16 * 2 ** 10;
const PUT_SLICE_PAGES = 256;
/** Limit of the write queue. It is small, so that waiting writes do not count as memory that pages need. */
const QUEUE_MAX_BYTES = 2 ** 20;
const BLOCK_BYTES = 512;
const SAMPLE_EVERY_MS = 5;
const FILLED_TIMES = 10;
/** Sizes, used in turn, of the pages that overfill the disk. */
const MIXED_PAGE_BYTES = [4096, 4096, 4096, 64 * 2 ** 10, 4096, 5000, 2 ** 20 - 1, 4096] as const;
const IDLE_MS = 500;

interface MemoryCost {
  readonly pages: number;
  /** Growth of the process's resident memory per page, WASM included. */
  readonly rssBytesPerPage: number;
}

/** Measures the memory that a page on disk needs, by putting many small pages after some for warming up. */
async function memoryPerPage(
  folder: string,
  options: { readonly pages: number; readonly warmUpPages: number; progress(text: string): void },
): Promise<MemoryCost> {
  const { pages, warmUpPages, progress } = options;
  const disk = (pages + warmUpPages) * DISK_BYTES_PER_SMALL_PAGE + 2 ** 20;
  const store = await DiskStore.open(folder, disk, {
    nodeId: 'bench',
    env: systemEnvironment(),
    queueMaxBytes: QUEUE_MAX_BYTES,
  });
  try {
    const collectGarbage = garbageCollector();
    const puts = new SmallPages(store, progress);
    await puts.put(warmUpPages);
    collectGarbage();
    const before = process.memoryUsage.rss();
    await puts.put(pages);
    collectGarbage();
    const rssBytesPerPage = Math.max(0, process.memoryUsage.rss() - before) / pages;
    const [, kept] = store.stats();
    if (kept !== pages + warmUpPages) throw new Error(`the disk store has ${kept} of ${pages + warmUpPages} pages`);
    puts.free();
    return { pages, rssBytesPerPage };
  } finally {
    await store.close();
  }
}

interface SpaceCost {
  readonly diskBytes: number;
  readonly writtenBytes: number;
  /** Most bytes that files and folders used in any sample. */
  readonly maxUsedBytes: number;
  readonly samples: number;
}

/** Measures the space used on disk while ten times the store's size is written, in pages of many sizes. */
async function spaceWhileOverfilled(
  folder: string,
  options: { readonly diskBytes: number; progress(text: string): void },
): Promise<SpaceCost> {
  const { diskBytes, progress } = options;
  const store = await DiskStore.open(folder, diskBytes, { nodeId: 'bench', env: systemEnvironment() });
  const largest = new Uint8Array(Math.max(...MIXED_PAGE_BYTES)).fill(0x5d);
  let [writtenBytes, maxUsedBytes, samples, sampledMs] = [0, 0, 0, 0];
  const sample = async (): Promise<void> => {
    maxUsedBytes = Math.max(maxUsedBytes, await bytesOnDisk(folder));
    samples++;
    sampledMs = performance.now();
  };
  try {
    for (let page = 0; writtenBytes < FILLED_TIMES * diskBytes; page++) {
      const length = MIXED_PAGE_BYTES[page % MIXED_PAGE_BYTES.length] as number;
      await awaitRoom(store, length);
      store.put(keyOf(page), largest.subarray(0, length));
      writtenBytes += length;
      if (performance.now() - sampledMs < SAMPLE_EVERY_MS) continue;
      progress(`${formatSize(writtenBytes)} written to a disk of ${formatSize(diskBytes)}`);
      await sample();
    }
    await store.flush();
    await sample();
    return { diskBytes, writtenBytes, maxUsedBytes, samples };
  } finally {
    await store.close();
  }
}

/** Measures the event loop delay of an idle program, which is the delay that the machine itself adds. */
async function idleLoopDelay(): Promise<LoopDelay> {
  const delay = new LoopDelay();
  await delay.during(() => new Promise<void>((resolve) => setTimeout(resolve, IDLE_MS)));
  return delay;
}

/** Puts small pages under new keys, and does not keep the keys in memory. */
class SmallPages {
  readonly #store: DiskStore;
  readonly #region = HostRegion.allocate(SMALL_PAGE_BYTES);
  readonly #checksum: number;
  readonly #progress: (text: string) => void;
  #next = 0;

  constructor(store: DiskStore, progress: (text: string) => void) {
    this.#store = store;
    this.#checksum = crc32(this.#region.bytes(), 0);
    this.#progress = progress;
  }

  async put(count: number): Promise<void> {
    const page = { views: [this.#region.bytes()], length: SMALL_PAGE_BYTES };
    const end = this.#next + count;
    while (this.#next < end) {
      await awaitRoom(this.#store, SMALL_PAGE_BYTES, QUEUE_MAX_BYTES);
      this.#store.putPage(keyOf(this.#next++), page, this.#checksum, () => {});
      if (this.#next % PUT_SLICE_PAGES !== 0) continue;
      this.#progress(`${this.#next} small pages put`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await this.#store.flush();
  }

  free(): void {
    this.#region.free();
  }
}

/** A key of the length that a store uses: a namespace of 33 characters and a content hash. */
function keyOf(page: number): string {
  return `${'0'.repeat(32)}/${createHash('sha256').update(`small ${page}`).digest('hex')}`;
}

/** Bytes that a folder and everything in it use on disk, as `du` reports them. */
async function bytesOnDisk(folder: string): Promise<number> {
  const names = ['.', ...(await readdir(folder, { recursive: true }))];
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(folder, name)).then(
        ({ blocks }) => blocks * BLOCK_BYTES,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

function garbageCollector(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
}
