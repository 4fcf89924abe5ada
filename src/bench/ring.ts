import { seededRandom } from '../base/environment/random.js';
import { ConsistentHashRing, KeyBatch } from '../core/index.js';
import { type Benchmark, type BenchOptions, type BenchReport, median } from './measuring/report.js';

const VNODES = 160;
const BATCH_KEYS = 128;
const NODE_COUNTS = [3, 16, 256, 1000] as const;
/** Number of batches. Together they have far more keys than the lookup cache of `hashring` holds (5,000). */
const FULL_BATCHES = 512;
const QUICK_BATCHES = 8;
/** Uncounted rounds, after which the code is compiled and the keys have left the young generation. */
const WARM_UP_ROUNDS = 3;

/** The part of the npm package `hashring` that the benchmark uses. */
interface PeerRing {
  get(key: string): string;
}
type PeerConstructor = new (nodes: string[], algorithm: string, options: object) => PeerRing;

/** Nanoseconds per key, one number per round. */
interface Times {
  readonly strings: number[];
  readonly encoded: number[];
  readonly hashed: number[];
  readonly single: number[];
  readonly peer: number[];
}

type Row = BenchReport['rows'][number];

/**
 * Measures how long it takes to build a ring and to look up keys. If the npm package `hashring` (MD5) is installed, it
 * is measured in the same run.
 */
export const ringBench: Benchmark = async (options) => {
  const Peer = await loadPeer();
  const batches = hexKeyBatches(options.quick ? QUICK_BATCHES : FULL_BATCHES, BATCH_KEYS, 1);
  const rows: Row[] = [];
  for (const nodes of NODE_COUNTS) {
    options.progress(`ring of ${nodes} nodes`);
    rows.push(await measure(nodes, batches, { Peer, options }));
  }
  const notes = [
    `${VNODES} vnodes, 64-character keys, batches of ${BATCH_KEYS}; medians of ${options.rounds} interleaved rounds.`,
    'strings: batches of strings; encoded: from a KeyBatch that has its text; hashed: from one that has been on a ring before; single: one string.',
  ];
  notes.push(
    Peer === undefined
      ? 'The npm package hashring is not installed: no comparison.'
      : 'speedup: against the npm package hashring, which has one kind of lookup and as many points.',
  );
  return { title: 'ring: owner of a key', rows, notes };
};

async function measure(
  nodes: number,
  batches: readonly string[][],
  { Peer, options }: { Peer: PeerConstructor | undefined; options: BenchOptions },
): Promise<Row> {
  const ids = Array.from({ length: nodes }, (_, i) => `10.0.${i >> 8}.${i & 255}:7000`);
  const ring = new ConsistentHashRing(VNODES);
  const keys = batches.flat();
  const times: Times = { strings: [], encoded: [], hashed: [], single: [], peer: [] };
  const builds = { own: [] as number[], peer: [] as number[] };
  for (let round = -WARM_UP_ROUNDS; round < options.rounds; round++) {
    const own = timePerOperationNs(1, () => ring.setNodes(ids));
    const strings = await timeSettledNs(keys.length, (part) => {
      for (let i = 0; i < part * batches.length; i++) ring.getNodesBatch(batches[i] as string[], 1);
    });
    const encoded = await timeEncodedNs(ring, batches);
    const hashedBatches = batches.map((batch) => KeyBatch.of(batch));
    for (const batch of hashedBatches) ring.getNodesBatch(batch, 1);
    const hashed = await timeSettledNs(keys.length, (part) => {
      for (let i = 0; i < part * batches.length; i++) ring.getNodesBatch(hashedBatches[i] as KeyBatch, 1);
    });
    const single = await timeSettledNs(keys.length, (part) => {
      for (let i = 0; i < part * keys.length; i++) ring.getNode(keys[i] as string);
    });
    const peer = Peer === undefined ? undefined : await measurePeer(Peer, ids, keys);
    if (round < 0) continue;
    builds.own.push(own);
    times.strings.push(strings);
    times.encoded.push(encoded);
    times.hashed.push(hashed);
    times.single.push(single);
    if (peer === undefined) continue;
    builds.peer.push(peer.build);
    times.peer.push(peer.lookup);
  }
  ring.free();
  return row(nodes, times, builds);
}

/** Times lookups of batches that have text but no hashes. A batch is hashed only once, so each pass uses fresh ones. */
async function timeEncodedNs(ring: ConsistentHashRing, batches: readonly string[][]): Promise<number> {
  const [warm, timed] = [batches.map(encoded), batches.map(encoded)];
  for (const batch of warm) ring.getNodesBatch(batch, 1);
  await new Promise((resolve) => setImmediate(resolve));
  return timePerOperationNs(batches.length * BATCH_KEYS, () => {
    for (const batch of timed) ring.getNodesBatch(batch, 1);
  });
}

async function measurePeer(
  Peer: PeerConstructor,
  ids: string[],
  keys: readonly string[],
): Promise<{ build: number; lookup: number }> {
  let ring: PeerRing | undefined;
  // `hashring` multiplies these two numbers, so a node gets as many points as on our ring.
  const points = { replicas: 4, 'vnode count': VNODES / 4 };
  const build = timePerOperationNs(1, () => {
    ring = new Peer(ids, 'md5', points);
  });
  const lookup = await timeSettledNs(keys.length, (part) => {
    for (let i = 0; i < part * keys.length; i++) ring?.get(keys[i] as string);
  });
  return { build, lookup };
}

function row(nodes: number, times: Times, builds: { own: number[]; peer: number[] }): Row {
  const [strings, single] = [median(times.strings), median(times.single)];
  const build = median(builds.own);
  const own = {
    nodes,
    strings_ns: round(strings),
    encoded_ns: round(median(times.encoded)),
    hashed_ns: round(median(times.hashed)),
    single_ns: round(single),
    build_ms: round(build / 1e6, 2),
  };
  if (times.peer.length === 0) return own;
  const peer = median(times.peer);
  const peerBuild = median(builds.peer);
  return {
    ...own,
    hashring_ns: round(peer),
    hashring_build_ms: round(peerBuild / 1e6, 2),
    strings_speedup: round(peer / strings),
    single_speedup: round(peer / single),
    build_speedup: round(peerBuild / build),
  };
}

function round(value: number, digits = 1): number {
  return Number(value.toFixed(digits));
}

async function loadPeer(): Promise<PeerConstructor | undefined> {
  // The name is a variable because the package is a development dependency without types, and may be absent.
  const name = 'hashring';
  try {
    return ((await import(name)) as { default: PeerConstructor }).default;
  } catch {
    return undefined;
  }
}

const SETTLING_PART = 1 / 4;

/** Batches of distinct keys of 64 hexadecimal characters. Each key is a flat string, as a program would hold it. */
export function hexKeyBatches(batches: number, batchKeys: number, seed: number): string[][] {
  const random = seededRandom(seed);
  const words = new Uint32Array(8);
  return Array.from({ length: batches }, () =>
    Array.from({ length: batchKeys }, () => {
      for (let i = 0; i < words.length; i++) words[i] = random.u32();
      return Buffer.from(words.buffer).toString('hex');
    }),
  );
}

/** A batch that has its text but no hashes, as when a request has just arrived. */
export function encoded(keys: readonly string[]): KeyBatch {
  const batch = KeyBatch.of(keys);
  void batch.text;
  return batch;
}

/**
 * Nanoseconds per operation over `count` operations; `run` does the given part (0 to 1) of them. Untimed parts and a
 * turn of the event loop come first, so that the previous contender's garbage is not charged to this one.
 */
async function timeSettledNs(count: number, run: (part: number) => void): Promise<number> {
  run(SETTLING_PART);
  await new Promise((resolve) => setImmediate(resolve));
  run(SETTLING_PART);
  return timePerOperationNs(count, () => run(1));
}

/** Nanoseconds per operation over `count` operations. */
export function timePerOperationNs(count: number, run: () => void): number {
  const start = performance.now();
  run();
  return ((performance.now() - start) * 1e6) / count;
}
