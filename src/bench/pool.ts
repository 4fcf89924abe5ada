import { type RandomSource, seededRandom } from '../base/environment/random.js';
import { formatSize } from '../base/sizes.js';
import { type Core, type EvictionPolicy, type Keys, loadCore, PoolAllocator } from '../core/index.js';
import { type Benchmark, type BenchOptions, type BenchReport, median } from './measuring/report.js';
import { encoded, hexKeyBatches, timePerOperationNs } from './ring.js';

const BATCH_KEYS = 128;
const FULL_ENTRIES = [30_000, 1_000_000] as const;
const QUICK_ENTRIES = [1000] as const;
const PAGE_BYTES = 4_497_408;
/** Policies to measure. The first one is the reference for the ratios. */
const POLICIES: readonly EvictionPolicy[] = ['lru', 's3fifo', 'yield'];
const WAYS = ['strings', 'encoded'] as const;
/** Most keys per round; each round creates new ones. */
const ROUND_KEYS = 2 ** 18;
/** How many times the pool's capacity is published before measuring, so that pages and ghosts are full. */
const FILLS = 4;

const SEGMENT_BYTES = 2 ** 30;
const FULL_POOL_BYTES = 8 * 2 ** 30;
const QUICK_POOL_BYTES = 2 ** 30;
/** How many times the pool is overwritten in all; only the second half is measured. */
const TURNOVERS = 8;

type Row = BenchReport['rows'][number];

interface Load {
  readonly name: string;
  /** Mean length of a page in bytes. It determines how many publishes overwrite the pool once. */
  readonly meanBytes: number;
  size(random: RandomSource): number;
}

const LOADS: readonly Load[] = [
  { name: '4,497,408 bytes', meanBytes: PAGE_BYTES, size: () => PAGE_BYTES },
  {
    name: '3.12 MB and 643 KB, as often',
    meanBytes: 1_881_600,
    size: (random) => (random.u32() % 2 === 0 ? 3_120_000 : 643_200),
  },
  {
    name: '3.12 MB and 643 KB, as much',
    meanBytes: 1_066_500,
    size: (random) => (random.u32() % 1000 < 171 ? 3_120_000 : 643_200),
  },
  {
    name: 'random, 64 KiB to 4 MiB',
    meanBytes: 2_129_920,
    size: (random) => 65_536 + (random.u32() % (4_194_304 - 65_536)),
  },
];

/**
 * Measures the pool core without page bytes: how long publishing with eviction and lookups take per key, and how much
 * of the space pages fill.
 */
export const poolBench: Benchmark = async (options) => {
  const rows: Row[] = [];
  for (const entries of options.quick ? QUICK_ENTRIES : FULL_ENTRIES) {
    options.progress(`${entries} entries`);
    rows.push(...(await measureSpeed(entries, options)));
  }
  const poolBytes = options.quick ? QUICK_POOL_BYTES : FULL_POOL_BYTES;
  for (const policy of POLICIES) {
    for (const load of LOADS) {
      options.progress(`${policy}, filling with ${load.name}`);
      rows.push(measureUtilisation(policy, load, poolBytes));
    }
  }
  return {
    title: 'pool: publish (allocate, index, evict) and look up, no bytes copied',
    rows,
    notes: [
      `Speed: new 64-character keys in batches of ${BATCH_KEYS}, as strings or as a KeyBatch that has its text, one page size, every publish evicts; medians of ` +
        `${options.rounds} rounds, the policies in turn in each; ratio: to ${POLICIES[0]} from strings in the same round. Memory: of the ` +
        'core (index, allocator, order, ghosts), without the strings of the keys.',
      `Utilisation: bytes asked for and held / capacity, mean and least, once the pool of ${formatSize(poolBytes)} (segments of ` +
        `${formatSize(SEGMENT_BYTES)}) has been written over ${TURNOVERS / 2} times; plain: publishing only, in_use: one use of ` +
        'a random page before each publish.',
    ],
  };
};

interface Contender {
  readonly policy: EvictionPolicy;
  readonly keys: 'strings' | 'encoded';
  readonly core: Core;
  readonly pool: PoolAllocator;
  readonly startBytes: number;
  readonly publishNs: number[];
  readonly lookupNs: number[];
  /** Keys of the pages that were in the pool after the last round. */
  there: string[];
}

async function measureSpeed(entries: number, { rounds }: BenchOptions): Promise<Row[]> {
  const kinds = POLICIES.flatMap((policy) => WAYS.map((keys) => ({ policy, keys })));
  const contenders = await Promise.all(kinds.map((kind) => newContender(kind, entries)));
  const count = Math.ceil(Math.min(entries, ROUND_KEYS) / BATCH_KEYS);
  const fills = Math.ceil((FILLS * entries) / (count * BATCH_KEYS));
  for (let round = 0; round < fills + rounds; round++) {
    const batches = hexKeyBatches(count, BATCH_KEYS, round + 1);
    for (let i = 0; i < contenders.length; i++) {
      const contender = contenders[(i + round) % contenders.length] as Contender;
      // A turn of the event loop lets the previous contender's garbage be collected, so that it is not charged to this
      // one.
      await new Promise((resolve) => setImmediate(resolve));
      publishAndLookUp(contender, batches, round >= fills);
    }
  }
  const first = contenders[0] as Contender;
  return contenders.map((contender) => {
    const { policy, keys, core, pool, startBytes, publishNs, lookupNs } = contender;
    const bytes = core.memoryBytes - startBytes;
    const { entries: pages } = pool.stats();
    pool.verify();
    pool.free();
    return {
      load: `${entries} entries`,
      policy,
      keys,
      publish_ns: Number(median(publishNs).toFixed(0)),
      publish_ratio: ratio(publishNs, first.publishNs),
      lookup_ns: Number(median(lookupNs).toFixed(0)),
      lookup_ratio: ratio(lookupNs, first.lookupNs),
      bytes_per_page: Number((bytes / pages).toFixed(0)),
    };
  });
}

/** Creates a contender in a WASM core of its own, so that the contender alone accounts for the core's memory. */
async function newContender({ policy, keys }: Pick<Contender, 'policy' | 'keys'>, entries: number): Promise<Contender> {
  const core = await loadCore();
  const startBytes = core.memoryBytes;
  const pool = new PoolAllocator({ capacityBytes: entries * PAGE_BYTES, policy, core });
  return { policy, keys, core, pool, startBytes, publishNs: [], lookupNs: [], there: [] };
}

function publishAndLookUp(contender: Contender, batches: readonly string[][], isCounted: boolean): void {
  const { pool, publishNs, lookupNs } = contender;
  const count = batches.length * BATCH_KEYS;
  const asked = batches.map((keys) => ofKind(contender, keys));
  const publish = timePerOperationNs(count, () => {
    for (const keys of asked) pool.publishBatch(keys, PAGE_BYTES);
  });
  // All pages that are in the pool are looked up, and no others: policies keep different pages, of this round or before.
  const there = [contender.there, ...batches].flatMap((keys) => {
    const isThere = pool.hasBatch(keys);
    return keys.filter((_, i) => isThere[i] === 1);
  });
  contender.there = there;
  const present = Array.from({ length: Math.floor(there.length / BATCH_KEYS) }, (_, i) =>
    ofKind(contender, there.slice(i * BATCH_KEYS, (i + 1) * BATCH_KEYS)),
  );
  const lookup = timePerOperationNs(present.length * BATCH_KEYS, () => {
    for (const keys of present) pool.lookupBatch(keys);
  });
  if (!isCounted) return;
  publishNs.push(publish);
  lookupNs.push(lookup);
}

function ofKind({ keys: kind }: Contender, keys: readonly string[]): Keys {
  return kind === 'strings' ? keys : encoded(keys);
}

/** Median of the ratios of the individual rounds. */
function ratio(times: readonly number[], others: readonly number[]): number {
  return Number(median(times.map((time, i) => time / (others[i] as number))).toFixed(2));
}

function measureUtilisation(policy: EvictionPolicy, load: Load, poolBytes: number): Row {
  const plain = churn(policy, load, { poolBytes, usesBetween: 0 });
  const inUse = churn(policy, load, { poolBytes, usesBetween: 1 });
  return {
    load: load.name,
    policy,
    plain_percent: plain.mean,
    plain_min_percent: plain.least,
    in_use_percent: inUse.mean,
    in_use_min_percent: inUse.least,
  };
}

function churn(
  policy: EvictionPolicy,
  load: Load,
  { poolBytes, usesBetween }: { poolBytes: number; usesBetween: number },
): { mean: number; least: number } {
  const random = seededRandom(1);
  const pool = new PoolAllocator({ capacityBytes: poolBytes, segmentBytes: SEGMENT_BYTES, policy });
  const turnover = Math.ceil(poolBytes / load.meanBytes);
  const sampleEvery = Math.ceil(turnover / 100);
  let sum = 0;
  let samples = 0;
  let least = 1;
  for (let i = 0; i < TURNOVERS * turnover; i++) {
    for (let use = 0; use < usesBetween; use++) pool.touchBatch([`page ${i - 1 - (random.u32() % turnover)}`]);
    pool.publish(`page ${i}`, load.size(random));
    if (i < (TURNOVERS / 2) * turnover || i % sampleEvery !== 0) continue;
    const held = pool.usedBytes / poolBytes;
    sum += held;
    samples++;
    least = Math.min(least, held);
  }
  pool.verify();
  pool.free();
  return { mean: percent(sum / samples), least: percent(least) };
}

function percent(value: number): number {
  return Number((100 * value).toFixed(2));
}
