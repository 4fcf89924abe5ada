import { availableParallelism } from 'node:os';
import { crc32 as zlibCrc32 } from 'node:zlib';
import { MEMORY_HUGE_PAGES, type NativeAddon } from '../native/addon/contract.js';
import { loadNative } from '../native/addon/loader.js';
import { rdmaSupport, TransferEngine } from '../native/index.js';
import { type Benchmark, type BenchOptions, type BenchReport, inRound, median } from './measuring/report.js';

const MIB = 1024 * 1024;
const PAGE_BYTES = MIB;
const OS_PAGE_BYTES = 4096;
/** Total bytes of the pages, far more than processor caches hold. */
const FULL_BYTES = 512 * MIB;
const QUICK_BYTES = 8 * MIB;

type Row = BenchReport['rows'][number];

/** One way to do a piece of work. The first contender of a group is the reference for the others. */
interface Contender {
  readonly group: string;
  readonly how: string;
  /** Does the work once over all bytes, timed until it resolves. Returns a clean-up function that is not timed. */
  run(): Promise<() => void | Promise<void>> | (() => void | Promise<void>);
}

interface Sample {
  readonly wallNs: number;
  readonly userUs: number;
  readonly systemUs: number;
}

/**
 * Compares checksums, copies and fresh memory of the addon with plain Node, for 1 MiB pages that are out of cache.
 * `kernel_percent` is the operating system's share of the CPU time.
 */
export const memoryBench: Benchmark = async (options) => {
  const bytes = options.quick ? QUICK_BYTES : FULL_BYTES;
  const { addon, reason } = loadNative();
  const notes = [
    `${bytes / MIB} MiB in pages of 1 MiB, out of cache unless quick; medians of ${options.rounds} interleaved rounds.`,
    'speedup: against the first row of the same work.',
    addon === null ? `No addon: ${reason}.` : `Checksums by ${addon.checksumPath}.`,
  ];
  const plain = plainPages(bytes);
  const contenders = [...plainContenders(plain, bytes)];
  const closers: (() => void | Promise<void>)[] = [];
  if (addon !== null) {
    const pages = nativePages(addon, bytes);
    closers.push(() => pages.free());
    await addon.memoryPrefault(pages.addr, 2 * bytes, availableParallelism());
    pages.source.set(plain.source);
    contenders.push(...nativeContenders(addon, pages, bytes));
    const registering = registeringContender(addon, bytes);
    notes.push(registering.note);
    contenders.push(...registering.contenders);
    closers.push(registering.close);
  }
  try {
    const samples = await measure(contenders, options);
    return { title: 'memory: checksums, copies, allocation', rows: rowsOf(contenders, samples, bytes), notes };
  } finally {
    for (const close of closers) await close();
  }
};

/** Memory that pages are read from, and memory for their copies. */
interface Pages {
  readonly source: Uint8Array;
  readonly target: Uint8Array;
}

function plainPages(bytes: number): Pages {
  const source = new Uint8Array(new SharedArrayBuffer(bytes));
  const words = new Uint32Array(source.buffer);
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i, 0x9e3779b1);
  return { source, target: new Uint8Array(new SharedArrayBuffer(bytes)).fill(1) };
}

interface NativePages extends Pages {
  /** Address of the source; the target directly follows it. */
  readonly addr: number;
  free(): void;
}

function nativePages(addon: NativeAddon, bytes: number): NativePages {
  const { addr } = addon.memoryAllocate(2 * bytes, 0);
  const [source, target] = addon.memoryViews(addr, bytes).map((buffer) => new Uint8Array(buffer)) as [
    Uint8Array,
    Uint8Array,
  ];
  return { source, target, addr, free: () => addon.memoryFree(addr) };
}

const nothing = (): void => {};

/** Calls `visit` once for each page. */
function eachPage(bytes: number, visit: (at: number) => void): () => void {
  for (let at = 0; at < bytes; at += PAGE_BYTES) visit(at);
  return nothing;
}

function plainContenders({ source, target }: Pages, bytes: number): Contender[] {
  return [
    {
      group: 'checksum',
      how: 'zlib.crc32',
      run: () => eachPage(bytes, (at) => zlibCrc32(source.subarray(at, at + PAGE_BYTES))),
    },
    {
      group: 'copy and checksum',
      how: 'set, zlib.crc32',
      run: () =>
        eachPage(bytes, (at) => {
          const page = target.subarray(at, at + PAGE_BYTES);
          page.set(source.subarray(at, at + PAGE_BYTES));
          zlibCrc32(page);
        }),
    },
    {
      group: 'fresh memory',
      how: 'SharedArrayBuffer, first touch',
      run() {
        const memory = new Uint8Array(new SharedArrayBuffer(bytes));
        for (let at = 0; at < bytes; at += OS_PAGE_BYTES) memory[at] = 1;
        return nothing;
      },
    },
  ];
}

function nativeContenders(addon: NativeAddon, { source, addr }: NativePages, bytes: number): Contender[] {
  const pageCount = bytes / PAGE_BYTES;
  const pieces = Float64Array.from({ length: pageCount * 3 }, (_, i) => {
    const from = addr + Math.floor(i / 3) * PAGE_BYTES;
    return [from + bytes, from, PAGE_BYTES][i % 3] as number;
  });
  const counts = new Uint32Array(pageCount).fill(1);
  const copying: Contender[] = [
    {
      group: 'checksum',
      how: 'addon',
      run: () => eachPage(bytes, (at) => addon.crc32(source.subarray(at, at + PAGE_BYTES), 0)),
    },
    {
      group: 'copy and checksum',
      how: 'addon',
      run() {
        addon.copyPagesSync(pieces, counts);
        return nothing;
      },
    },
    {
      group: 'copy and checksum',
      how: 'addon, its threads',
      async run() {
        await addon.copyPages(pieces, counts);
        return nothing;
      },
    },
  ];
  const fresh = (how: string, flags: number, threads: number): Contender => ({
    group: 'fresh memory',
    how: `addon, ${how}${threads} thread${threads === 1 ? '' : 's'}`,
    async run() {
      const { addr: start } = addon.memoryAllocate(bytes, flags);
      await addon.memoryPrefault(start, bytes, threads);
      return () => addon.memoryFree(start);
    },
  });
  const all = availableParallelism();
  const threadCounts = [...new Set([1, 2, 4, all])].filter((count) => count <= all);
  const ordinary = threadCounts.map((count) => fresh('', 0, count));
  return [...copying, ...ordinary, ...threadCounts.map((count) => fresh('huge pages, ', MEMORY_HUGE_PAGES, count))];
}

/** A contender that also registers the memory, if there is an RDMA device. */
function registeringContender(addon: NativeAddon, bytes: number) {
  const support = rdmaSupport();
  if (!support.usable) return { contenders: [], note: `Nothing registered: ${support.reason}.`, close: nothing };
  const engine = new TransferEngine();
  const threads = availableParallelism();
  const contender: Contender = {
    group: 'fresh memory',
    how: `addon, ${threads} threads, registered`,
    async run() {
      const { addr } = addon.memoryAllocate(bytes, 0);
      await addon.memoryPrefault(addr, bytes, threads);
      const handle = engine.registerMr(BigInt(addr), bytes);
      return async () => {
        await engine.deregisterMr(handle);
        addon.memoryFree(addr);
      };
    },
  };
  return { contenders: [contender], note: `Registered with ${engine.deviceName}.`, close: () => engine.close() };
}

/** Runs one warm-up round, then the counted ones. Each round runs every contender once. */
async function measure(contenders: readonly Contender[], options: BenchOptions): Promise<readonly Sample[][]> {
  const samples: Sample[][] = contenders.map(() => []);
  for (let round = -1; round < options.rounds; round++) {
    for (const [i, contender] of inRound(contenders, round)) {
      options.progress(`${contender.group}, ${contender.how}`);
      const sample = await once(contender);
      if (round >= 0) samples[i]?.push(sample);
    }
  }
  return samples;
}

async function once(contender: Contender): Promise<Sample> {
  const before = process.resourceUsage();
  const start = process.hrtime.bigint();
  const clear = await contender.run();
  const wallNs = Number(process.hrtime.bigint() - start);
  const after = process.resourceUsage();
  await clear();
  return {
    wallNs,
    userUs: after.userCPUTime - before.userCPUTime,
    systemUs: after.systemCPUTime - before.systemCPUTime,
  };
}

function rowsOf(contenders: readonly Contender[], samples: readonly Sample[][], bytes: number): Row[] {
  const wallNs = samples.map((each) => median(each.map((sample) => sample.wallNs)));
  const groups = [...new Set(contenders.map(({ group }) => group))];
  return groups.flatMap((group) => {
    const reference = wallNs[contenders.findIndex((contender) => contender.group === group)] as number;
    return contenders.flatMap(({ group: own, how }, i) => {
      if (own !== group) return [];
      const time = wallNs[i] as number;
      const [user, system] = (['userUs', 'systemUs'] as const).map((part) =>
        median((samples[i] ?? []).map((s) => s[part])),
      );
      const cpu = (user as number) + (system as number);
      return {
        work: group,
        how,
        gb_per_s: round(bytes / time),
        speedup: round(reference / time),
        kernel_percent: cpu === 0 ? 0 : Math.round((100 * (system as number)) / cpu),
      };
    });
  });
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
