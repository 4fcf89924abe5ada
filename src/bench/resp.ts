import { formatSize } from '../base/sizes.js';
import { HostRegion } from '../memory/host-region.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { findFreePort, LOOPBACK } from '../processes/free-port.js';
import { systemRandom } from '../system/system-random.js';
import { startBareServer } from './bare-resp.js';
import { type ExecuteCommand, PeerProcess } from './measuring/peer-process.js';
import { RedisConnection, RedisPeer, redisCommand } from './measuring/redis.js';
import { type BenchOptions, type BenchReport, inRound, median } from './measuring/report.js';
import { benchStorage, isStamped, stampPage } from './measuring/store-pages.js';

const VALUE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10, 2 ** 20] as const;
const FULL_WORK_BYTES = 64 * 2 ** 20;
const QUICK_WORK_BYTES = 2 * 2 ** 20;
const VALUES_MAX_COUNT = 4096;
/** Size of a node's pool relative to the values, because replaced values stay in quarantine for a while. */
const POOL_SLACK = 16;
/** Limits of one pipeline: number of commands, and total bytes of their values. */
const PIPELINE_MAX_COUNT = 32;
const PIPELINE_MAX_BYTES = 4 * 2 ** 20;
const REFERENCE = 'redis-server';
const BATCH = 'batchGet, remote';
/** Tag of the namespace of Redis clients. */
const REDIS_TAG = 'redis';
const OK = Buffer.from('+OK\r\n');

/** How values are set or read. */
interface Place {
  readonly name: string;
  /** Whether values are also set in this way. */
  readonly isWritable: boolean;
  /** Carries out the work; resolves with the milliseconds that it took. Rejects if an answer is wrong. */
  carryOut(work: Work): Promise<number>;
  close(): void;
}

/** The commands of one measurement and their expected answers, one element per pipeline. */
interface Work {
  readonly call: 'get' | 'set';
  readonly depth: 'single' | 'pipelined';
  readonly valueBytes: number;
  readonly valuesCount: number;
  /** Commands of one pipeline. */
  readonly atATime: number;
  readonly pipelines: readonly { readonly commands: Buffer; readonly answers: Buffer }[];
}

type Row = BenchReport['rows'][number];

/**
 * Sets and reads values over the Redis protocol on redis-server, on a bare server in Node.js, on a node that has them,
 * and on another node, which also reads them into its own memory. Each server is a process of its own. Every answer is compared with the expected bytes; the measured time includes the
 * comparison, which costs the same for all.
 */
export async function respBench(options: BenchOptions): Promise<BenchReport> {
  const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
  options.progress('starting two nodes');
  const discoveryAddr = `${LOOPBACK}:${await findFreePort(systemRandom)}`;
  const [local, remote, bare] = [0, 1, 2].map(() => new PeerProcess<RespPeerCommand, RespPeerAnswer>('resp'));
  const peers = [local, remote, bare] as const;
  const redis = await RedisPeer.start();
  const places: Place[] = [];
  try {
    const add = async (name: string, port: number, isWritable = true): Promise<void> => {
      places.push(await redisPlace(name, port, isWritable));
    };
    const start = { kind: 'node', discoveryAddr, poolBytes: workBytes * POOL_SLACK } as const;
    await add('meshcache, local', await portOf(local, start));
    await add('meshcache, remote', await portOf(remote, start), false);
    places.push(batchPlace(remote as RespPeer));
    await add('bare Node server', await portOf(bare, { kind: 'bare' }));
    if (typeof redis !== 'string') await add(REFERENCE, redis.port);
    const rows: Row[] = [];
    for (const valueBytes of VALUE_SIZES_BYTES)
      rows.push(...(await measure(valueBytes, { options, places, workBytes })));
    return {
      title: 'resp: values by the Redis protocol, over loopback, one connection',
      rows,
      notes: [
        `pipelined: up to ${PIPELINE_MAX_COUNT} commands and ${formatSize(PIPELINE_MAX_BYTES)} under way; single: one after the other.`,
        `Medians of ${options.rounds} interleaved rounds; ratios to ${REFERENCE} in the same round. Every byte of every answer is compared.`,
        'local: the node that is asked has the value; remote: another node has it. Values are set at the first node, each round the same ones.',
        `${BATCH}: the other node reads as many values at a time into its own memory, and sends them to nobody.`,
        'bare Node server: keeps values in a Map, and checks nothing.',
        ...(typeof redis === 'string' ? [`Without redis: ${redis}.`] : []),
      ],
    };
  } finally {
    for (const place of places) place.close();
    for (const peer of peers) peer?.end();
    if (typeof redis !== 'string') await redis.close();
  }
}

async function measure(
  valueBytes: number,
  { options, places, workBytes }: { options: BenchOptions; places: readonly Place[]; workBytes: number },
): Promise<Row[]> {
  const rows: Row[] = [];
  const valuesCount = Math.min(VALUES_MAX_COUNT, workBytes / valueBytes);
  const value = formatSize(valueBytes);
  for (const call of ['set', 'get'] as const) {
    for (const depth of ['single', 'pipelined'] as const) {
      const work = workOf(call, depth, { valueBytes, valuesCount });
      const contenders = places.filter(({ isWritable }) => isWritable || call === 'get');
      const perS = contenders.map((): number[] => []);
      // The first round is not counted.
      for (let round = 0; round <= options.rounds; round++) {
        for (const [i, place] of inRound(contenders, round)) {
          options.progress(`${call} ${value}, ${depth}: round ${round} of ${options.rounds}, ${place.name}`);
          const rate = (valuesCount * 1000) / (await place.carryOut(work));
          if (round > 0) perS[i]?.push(rate);
        }
      }
      const of = perS[contenders.findIndex(({ name }) => name === REFERENCE)] ?? (perS[0] as number[]);
      contenders.forEach(({ name }, i) => {
        const own = perS[i] as number[];
        rows.push({
          value,
          call,
          depth,
          contender: name,
          values_per_s: Math.round(median(own)),
          gb_per_s: Number(((median(own) * valueBytes) / 1e9).toFixed(2)),
          ratio: Number(median(own.map((rate, round) => rate / (of[round] as number))).toPrecision(3)),
        });
      });
    }
  }
  return rows;
}

/** A server that speaks the Redis protocol. All answers are compared. */
async function redisPlace(name: string, port: number, isWritable: boolean): Promise<Place> {
  const connection = await RedisConnection.open(LOOPBACK, port, PIPELINE_MAX_BYTES + 2 ** 20);
  return {
    name,
    isWritable,
    async carryOut({ call, pipelines }) {
      const startMs = performance.now();
      for (const [i, { commands, answers }] of pipelines.entries()) {
        const got = await connection.exchange(commands, answers.length);
        if (answers.equals(got)) continue;
        const shown = Buffer.from(got).toString('latin1', 0, 80);
        throw new Error(`${name}: wrong bytes in answer ${i} to ${call}: ${shown}`);
      }
      return performance.now() - startMs;
    },
    close: () => connection.close(),
  };
}

/** Reads of the peer into its own memory. */
function batchPlace(peer: RespPeer): Place {
  return {
    name: BATCH,
    isWritable: false,
    async carryOut({ valueBytes, valuesCount, atATime }) {
      return (await peer.call({ kind: 'read', valueBytes, valuesCount, atATime })).ms ?? 0;
    },
    close: () => {},
  };
}

async function portOf(peer: RespPeer | undefined, command: RespPeerCommand): Promise<number> {
  return (await (peer as RespPeer).call(command)).port ?? 0;
}

function workOf(
  call: Work['call'],
  depth: Work['depth'],
  { valueBytes, valuesCount }: { readonly valueBytes: number; readonly valuesCount: number },
): Work {
  const atATime = depth === 'single' ? 1 : Math.min(PIPELINE_MAX_COUNT, PIPELINE_MAX_BYTES / valueBytes);
  const pipelines: { commands: Buffer; answers: Buffer }[] = [];
  for (let first = 0; first < valuesCount; first += atATime) {
    const commands: Buffer[] = [];
    const answers: Buffer[] = [];
    for (let i = first; i < Math.min(valuesCount, first + atATime); i++) {
      const value = Buffer.alloc(valueBytes);
      stampPage(value, i);
      const key = keyOf(valueBytes, i);
      commands.push(call === 'set' ? redisCommand('SET', key, value) : redisCommand('GET', key));
      if (call === 'set') answers.push(OK);
      else answers.push(Buffer.from(`$${valueBytes}\r\n`), value, Buffer.from('\r\n'));
    }
    pipelines.push({ commands: Buffer.concat(commands), answers: Buffer.concat(answers) });
  }
  return { call, depth, valueBytes, valuesCount, atATime, pipelines };
}

function keyOf(valueBytes: number, index: number): string {
  return `${valueBytes}-${index}`;
}

type RespPeer = PeerProcess<RespPeerCommand, RespPeerAnswer>;

/** Commands to a peer: to start a node or a bare server, and to read values through the node. */
type RespPeerCommand =
  | { readonly kind: 'node'; readonly discoveryAddr: string; readonly poolBytes: number }
  | { readonly kind: 'bare' }
  | { readonly kind: 'read'; readonly valueBytes: number; readonly valuesCount: number; readonly atATime: number };

interface RespPeerAnswer {
  /** Port for Redis clients. */
  readonly port?: number;
  /** Time of all reads, in milliseconds. */
  readonly ms?: number;
  readonly error?: string;
}

/** The peer process: a node with a port for Redis clients, or a bare server. */
export function respPeer(): ExecuteCommand<RespPeerCommand, RespPeerAnswer> {
  let store: MeshCacheStore | undefined;
  return async (command) => {
    if (command.kind === 'bare') return { port: await startBareServer() };
    if (command.kind === 'read') return { ms: await readValues(store as MeshCacheStore, command) };
    store = await MeshCacheStore.create(benchStorage(command.discoveryAddr, command.poolBytes, { resp_port: 0 }));
    return { port: Number(store.respEndpoint.split(':').at(-1)) };
  };
}

/** Reads all values in batches; resolves with the milliseconds. Rejects if a value is missing or wrong. */
async function readValues(
  store: MeshCacheStore,
  { valueBytes, valuesCount, atATime }: { valueBytes: number; valuesCount: number; atATime: number },
): Promise<number> {
  const pages = store.namespace({ tag: REDIS_TAG });
  using region = HostRegion.allocate(valueBytes * atATime);
  await region.prefault();
  let ms = 0;
  for (let first = 0; first < valuesCount; first += atATime) {
    const slots = Array.from({ length: Math.min(atATime, valuesCount - first) }, (_, i) => i);
    const keys = slots.map((slot) => keyOf(valueBytes, first + slot));
    const ptrs = slots.map((slot) => region.addr + BigInt(slot * valueBytes));
    const startMs = performance.now();
    const isRead = await pages.batchGet(
      keys,
      ptrs,
      slots.map(() => valueBytes),
    );
    ms += performance.now() - startMs;
    const isRight = (slot: number): boolean =>
      isRead[slot] === true && isStamped(region.bytes(slot * valueBytes, valueBytes), first + slot);
    if (!slots.every(isRight)) throw new Error(`${BATCH}: a value is missing or wrong`);
  }
  return ms;
}
