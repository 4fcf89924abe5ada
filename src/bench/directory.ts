import { type RandomSource, seededRandom } from '../base/environment/random.js';
import { ConsistentHashRing } from '../core/ring/hash-ring.js';
import { DirectoryClient } from '../directory/client.js';
import { DirectoryServer } from '../directory/server.js';
import { DirectoryShard } from '../directory/shard/shard.js';
import { RpcServer } from '../rpc/server.js';
import { systemEnvironment } from '../system/system-environment.js';
import { DataLocation } from '../types.js';
import { type ExecuteCommand, PeerProcess } from './measuring/peer-process.js';
import { type Benchmark, type BenchOptions, median } from './measuring/report.js';

type DirectoryPeer = PeerProcess<DirectoryPeerCommand, DirectoryPeerAnswer>;

const FULL_KEY_COUNT = 1_000_000;
const QUICK_KEY_COUNT = 20_000;
const FULL_BATCH_COUNT = 4_000;
const QUICK_BATCH_COUNT = 100;
const BATCH_KEYS = 128;
const PUT_BATCH_KEYS = 1024;
/** Prefix of a namespaced key: 32 hexadecimal characters and a slash. A content hash of 64 characters follows it. */
const PREFIX = `${'5a0c93e1'.repeat(4)}/`;
const NODE_ID = 'peer';
const SEED = 7;

/**
 * Measures lookups in another process's shard over loopback. All batches share one connection, and every location that
 * comes back is compared with what was put.
 */
export const directoryBench: Benchmark = async (options) => {
  const keyCount = options.quick ? QUICK_KEY_COUNT : FULL_KEY_COUNT;
  const batchCount = options.quick ? QUICK_BATCH_COUNT : FULL_BATCH_COUNT;
  options.progress('starting the serving process');
  const peer: DirectoryPeer = new PeerProcess('directory', ['--expose-gc']);
  const { port } = await peer.call({ kind: 'start' });
  const ring = new ConsistentHashRing(160);
  ring.setNodes([NODE_ID]);
  const client = new DirectoryClient(ring, () => ({ host: '127.0.0.1', port }), 1, {
    timeoutMs: 10_000,
    env: systemEnvironment(),
  });
  try {
    const put = await putAll(client, peer, keyCount, options);
    const rounds: { one: GetRound; four: GetRound }[] = [];
    for (let round = 0; round <= options.rounds; round++) {
      options.progress(`looking keys up, round ${round} of ${options.rounds}`);
      const one = await getRound(client, peer, { keyCount, batchCount, atOnce: 1, seed: SEED + round });
      const four = await getRound(client, peer, { keyCount, batchCount, atOnce: 4, seed: SEED + 1000 + round });
      // The first round only warms up.
      if (round > 0) rounds.push({ one, four });
    }
    const row = (atOnce: 1 | 4, pick: (of: (typeof rounds)[number]) => GetRound) => ({
      operation: `get, ${atOnce} in flight`,
      keys_per_s: Math.round(median(rounds.map((of) => pick(of).keysPerS))),
      p50_ms: Number(median(rounds.map((of) => pick(of).p50Ms)).toFixed(3)),
      p99_ms: Number(median(rounds.map((of) => pick(of).p99Ms)).toFixed(3)),
      client_cpu: Number(median(rounds.map((of) => pick(of).clientCpu)).toFixed(2)),
      server_cpu: Number(median(rounds.map((of) => pick(of).serverCpu)).toFixed(2)),
      wrong: rounds.reduce((sum, of) => sum + pick(of).wrong, 0),
    });
    return {
      title: `directory: ${keyCount} keys of ${PREFIX.length + 64} characters in the shard of another process`,
      rows: [put, row(1, ({ one }) => one), row(4, ({ four }) => four)],
      notes: [
        `get: batches of ${BATCH_KEYS} random keys over one connection; ${batchCount} batches a round, medians of ${options.rounds} rounds.`,
        `put: batches of ${PUT_BATCH_KEYS} new keys, four in flight; one pass, making the keys included.`,
        'cpu: cores in use on each side, all threads; wrong: locations that were not what was put.',
        `shard memory: ${put.bytes_per_key} bytes a key (heap and array buffers after a collection, one location each).`,
      ],
    };
  } finally {
    await client.close();
    peer.end();
  }
};

interface GetRound {
  readonly keysPerS: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly clientCpu: number;
  readonly serverCpu: number;
  readonly wrong: number;
}

async function putAll(client: DirectoryClient, peer: DirectoryPeer, keyCount: number, options: BenchOptions) {
  const before = await peer.call({ kind: 'usage' });
  const clientBefore = process.cpuUsage();
  const startMs = performance.now();
  let next = 0;
  let refused = 0;
  const worker = async (): Promise<void> => {
    while (next < keyCount) {
      const first = next;
      next = Math.min(keyCount, first + PUT_BATCH_KEYS);
      const entries = new Map<string, DataLocation>();
      for (let i = first; i < next; i++) entries.set(keyOf(i), locationOf(i));
      options.progress(`putting keys: ${first} of ${keyCount}`);
      refused += (await client.put(entries)).filter((taken) => !taken).length;
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  const seconds = (performance.now() - startMs) / 1000;
  const clientCpuMs = cpuMsSince(clientBefore);
  const after = await peer.call({ kind: 'usage' });
  if (refused > 0 || after.keys !== keyCount) throw new Error(`${refused} of ${keyCount} keys were refused`);
  return {
    operation: 'put, 4 in flight',
    keys_per_s: Math.round(keyCount / seconds),
    p50_ms: '',
    p99_ms: '',
    client_cpu: Number((clientCpuMs / 1000 / seconds).toFixed(2)),
    server_cpu: Number(((after.cpuMs - before.cpuMs) / 1000 / seconds).toFixed(2)),
    wrong: 0,
    bytes_per_key: Math.round((after.memoryBytes - before.memoryBytes) / keyCount),
  };
}

async function getRound(
  client: DirectoryClient,
  peer: DirectoryPeer,
  work: { keyCount: number; batchCount: number; atOnce: number; seed: number },
): Promise<GetRound> {
  const random = seededRandom(work.seed);
  const batches = Array.from({ length: work.batchCount }, () => randomBatch(random, work.keyCount));
  const latenciesMs: number[] = [];
  let wrong = 0;
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < batches.length) {
      const { indices, keys } = batches[next++] as (typeof batches)[number];
      const startMs = performance.now();
      const found = await client.get(keys);
      latenciesMs.push(performance.now() - startMs);
      for (let j = 0; j < found.length; j++) if (!isRight(found[j] ?? null, indices[j] as number)) wrong++;
    }
  };
  const before = await peer.call({ kind: 'usage' });
  const clientBefore = process.cpuUsage();
  const startMs = performance.now();
  await Promise.all(Array.from({ length: work.atOnce }, worker));
  const seconds = (performance.now() - startMs) / 1000;
  const clientCpuMs = cpuMsSince(clientBefore);
  // The peer collects garbage before it answers; that processor time counts towards this round.
  const after = await peer.call({ kind: 'usage' });
  latenciesMs.sort((a, b) => a - b);
  return {
    keysPerS: (work.batchCount * BATCH_KEYS) / seconds,
    p50Ms: latenciesMs[Math.floor(latenciesMs.length * 0.5)] as number,
    p99Ms: latenciesMs[Math.floor(latenciesMs.length * 0.99)] as number,
    clientCpu: clientCpuMs / 1000 / seconds,
    serverCpu: (after.cpuMs - before.cpuMs) / 1000 / seconds,
    wrong,
  };
}

function randomBatch(random: RandomSource, keyCount: number): { indices: number[]; keys: string[] } {
  const indices = Array.from({ length: BATCH_KEYS }, () => random.u32() % keyCount);
  return { indices, keys: indices.map(keyOf) };
}

/** A key that looks like a content hash and is derived from the index. */
function keyOf(index: number): string {
  let hash = PREFIX;
  let word = index + 1;
  for (let i = 0; i < 8; i++) {
    word = Math.imul(word ^ (word >>> 15), 0x2c1b3c6d) + 0x9e3779b9 + i;
    word = Math.imul(word ^ (word >>> 13), 0x297a2d39);
    hash += ((word ^ (word >>> 16)) >>> 0).toString(16).padStart(8, '0');
  }
  return hash;
}

function locationOf(index: number): DataLocation {
  return new DataLocation({
    nodeId: 'owner',
    rdmaEndpoint: '127.0.0.1:7000',
    remoteAddr: (1n << 40n) + BigInt(index) * 4096n,
    rkey: 0x1234567,
    length: 1 << 20,
    checksum: index,
    incarnation: 1,
  });
}

function isRight(location: DataLocation | null, index: number): boolean {
  return location?.checksum === index && location.remoteAddr === (1n << 40n) + BigInt(index) * 4096n;
}

function cpuMsSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** `start` starts the server. The answer to either command has the resources that the process uses. */
interface DirectoryPeerCommand {
  readonly kind: 'start' | 'usage';
}

interface DirectoryPeerAnswer {
  readonly error?: string;
  readonly port: number;
  readonly keys: number;
  /** Bytes of the JavaScript heap in use and of array buffers, after a garbage collection. */
  readonly memoryBytes: number;
  /** Milliseconds of processor time of all threads since the process started. */
  readonly cpuMs: number;
}

/** The serving process of the directory benchmark: one shard behind the control protocol. */
export function directoryPeer(): ExecuteCommand<DirectoryPeerCommand, DirectoryPeerAnswer> {
  const shard = new DirectoryShard();
  const rpc = new RpcServer({ host: '127.0.0.1', env: systemEnvironment() });
  let port = 0;
  new DirectoryServer({ shard }).attach(rpc);
  return async ({ kind }) => {
    if (kind === 'start') port = await rpc.start();
    // There are two collections, because the first one may only promote what the second one frees.
    globalThis.gc?.();
    globalThis.gc?.();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    const { user, system } = process.cpuUsage();
    return { port, keys: shard.stats().keys, memoryBytes: heapUsed + arrayBuffers, cpuMs: (user + system) / 1000 };
  };
}
