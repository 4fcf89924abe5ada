import { formatSize } from '../base/sizes.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { findFreePort, LOOPBACK } from '../processes/free-port.js';
import { systemRandom } from '../system/system-random.js';
import { type ExecuteCommand, PeerProcess } from './measuring/peer-process.js';
import { RedisConnection, RedisPeer, redisCommand } from './measuring/redis.js';
import { type BenchOptions, type BenchReport, median } from './measuring/report.js';
import { benchStorage, stampPage } from './measuring/store-pages.js';

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
const OK = Buffer.from('+OK\r\n');

/** A server on which values are set or read. */
interface Place {
  readonly name: string;
  readonly connection: RedisConnection;
  /** Whether values are also set on this server. */
  readonly isWritable: boolean;
}

/** The commands of one measurement and their expected answers, one element per pipeline. */
interface Work {
  readonly call: 'get' | 'set';
  readonly depth: 'single' | 'pipelined';
  readonly valuesCount: number;
  readonly pipelines: readonly { readonly commands: Buffer; readonly answers: Buffer }[];
}

type Row = BenchReport['rows'][number];

/**
 * Sets and reads values over the Redis protocol on redis-server, on a node that has them, and on another node. Each
 * server is a process of its own. Every answer is compared with the expected bytes; the measured time includes the
 * comparison, which costs the same for all.
 */
export async function respBench(options: BenchOptions): Promise<BenchReport> {
  const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
  options.progress('starting two nodes');
  const discoveryAddr = `${LOOPBACK}:${await findFreePort(systemRandom)}`;
  const nodes = ['local', 'remote'].map(() => new PeerProcess<RespPeerCommand, RespPeerAnswer>('resp'));
  const redis = await RedisPeer.start();
  const places: Place[] = [];
  try {
    const open = (port: number) => RedisConnection.open(LOOPBACK, port, PIPELINE_MAX_BYTES + 2 ** 20);
    for (const [i, node] of nodes.entries()) {
      const { endpoint = '' } = await node.call({ discoveryAddr, poolBytes: workBytes * POOL_SLACK });
      const connection = await open(Number(endpoint.split(':').at(-1)));
      places.push({ name: i === 0 ? 'meshcache, local' : 'meshcache, remote', connection, isWritable: i === 0 });
    }
    if (typeof redis !== 'string') {
      places.push({ name: REFERENCE, connection: await open(redis.port), isWritable: true });
    }
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
        ...(typeof redis === 'string' ? [`Without redis: ${redis}.`] : []),
      ],
    };
  } finally {
    for (const { connection } of places) connection.close();
    for (const node of nodes) node.end();
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
        for (const [i, place] of contenders.entries()) {
          options.progress(`${call} ${value}, ${depth}: round ${round} of ${options.rounds}, ${place.name}`);
          const rate = await carryOut(work, place);
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

/** Sends the commands and compares all answers. Resolves with values per second; rejects if an answer is wrong. */
async function carryOut({ valuesCount, pipelines, call }: Work, { name, connection }: Place): Promise<number> {
  const startMs = performance.now();
  for (const [i, { commands, answers }] of pipelines.entries()) {
    const got = await connection.exchange(commands, answers.length);
    if (!answers.equals(got))
      throw new Error(`${name}: wrong bytes in answer ${i} to ${call}: ${Buffer.from(got).toString('latin1', 0, 80)}`);
  }
  return (valuesCount * 1000) / (performance.now() - startMs);
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
      const key = `${valueBytes}-${i}`;
      commands.push(call === 'set' ? redisCommand('SET', key, value) : redisCommand('GET', key));
      if (call === 'set') answers.push(OK);
      else answers.push(Buffer.from(`$${valueBytes}\r\n`), value, Buffer.from('\r\n'));
    }
    pipelines.push({ commands: Buffer.concat(commands), answers: Buffer.concat(answers) });
  }
  return { call, depth, valuesCount, pipelines };
}

/** The peer's only command: start a node. */
interface RespPeerCommand {
  readonly discoveryAddr: string;
  readonly poolBytes: number;
}

interface RespPeerAnswer {
  /** `host:port` for Redis clients. */
  readonly endpoint?: string;
  readonly error?: string;
}

/** The peer process: a node with a port for Redis clients. */
export function respPeer(): ExecuteCommand<RespPeerCommand, RespPeerAnswer> {
  return async ({ discoveryAddr, poolBytes }) => {
    const store = await MeshCacheStore.create(benchStorage(discoveryAddr, poolBytes, { resp_port: 0 }));
    return { endpoint: store.respEndpoint };
  };
}
