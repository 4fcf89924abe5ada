import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { TemporaryFolder } from '../../processes/at-exit.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { systemRandom } from '../../system/system-random.js';
import { type ExecuteCommand, PeerProcess } from '../measuring/peer-process.js';
import { type BenchOptions, type BenchReport, median, round3 } from '../measuring/report.js';
import { plainStorage } from '../measuring/store-pages.js';
import { type CallTimes, GOOD_CLIENTS, measureCalls } from './good-clients.js';
import { HOSTILE_KINDS } from './hostile-kinds.js';
import { passed, type Target } from './raw-client.js';

const POOL_BYTES = 2 ** 30;
const QUICK_POOL_BYTES = 64 * 2 ** 20;
const WINDOW_MS = 2_000;
const QUICK_WINDOW_MS = 60;
/** Time for a hostile client to get going, and for the node to recover after it. */
const SETTLE_MS = 500;
const QUICK_SETTLE_MS = 20;
/** The control, which only uses the processor, as any busy neighbour does. */
const CONTROL = 'spin';
const QUICK_KINDS = ['spin', 'many-pieces', 'redis-pings'];

type Peer = PeerProcess<IsolationCommand, IsolationAnswer>;

/** Measurements of one time window: the calls of each client, and the node's figures. */
interface Window {
  readonly times: readonly CallTimes[];
  readonly figures: NonNullable<IsolationAnswer['figures']>;
}

/**
 * For each kind of hostile client, measures the calls of three well-behaved clients of a node, alternately alone and
 * beside the hostile one. The node and each client are separate processes.
 */
export async function isolationBench(options: BenchOptions): Promise<BenchReport> {
  const kinds = kindsOf(options);
  options.progress('starting a node and three clients');
  const bench = await IsolationBench.start(options.quick);
  try {
    const rows: BenchReport['rows'][number][] = [];
    let failures = 0;
    for (const kind of kinds) {
      const windows = await bench.measure(kind, options);
      rows.push(...rowsOf(kind, windows));
      failures += [...windows.alone, ...windows.beside]
        .flatMap(({ times }) => times)
        .reduce((n, t) => n + t.failures, 0);
    }
    return {
      title: 'isolation: three well-behaved clients beside a hostile one',
      rows,
      notes: [
        `Medians of ${options.rounds} rounds, in each of which the clients are measured alone and beside the hostile client; worst: of all rounds. ratio: the median over the rounds of p99 beside to p99 alone.`,
        `${CONTROL} is the control, a process that computes and leaves the node alone: what a kind costs beyond it is the node's doing.`,
        'node_late_ms: the longest time in which the main loop of the node took no other event; node_busy_ms: the same as far as it computed, the rest is waiting for a processor; node_mib: its own memory, without the pool and what it shares with clients, at most.',
        ...kinds.map((kind) => `${kind}: ${HOSTILE_KINDS[kind]?.what}.`),
      ],
      ...(failures === 0 ? {} : { failure: `${failures} calls of well-behaved clients have failed` }),
    };
  } finally {
    await bench.close();
  }
}

function kindsOf({ hostile, quick }: BenchOptions): string[] {
  const asked = hostile ?? (quick ? QUICK_KINDS : Object.keys(HOSTILE_KINDS));
  const unknown = asked.filter((kind) => !(kind in HOSTILE_KINDS));
  if (unknown.length === 0) return [...asked];
  throw new Error(`no hostile client of kind ${unknown.join(', ')}; known: ${Object.keys(HOSTILE_KINDS).join(', ')}`);
}

class IsolationBench {
  readonly #folder: TemporaryFolder;
  readonly #node: Peer;
  readonly #clients: readonly Peer[];
  readonly #target: Target;
  readonly #isQuick: boolean;

  private constructor(parts: {
    folder: TemporaryFolder;
    node: Peer;
    clients: readonly Peer[];
    target: Target;
    isQuick: boolean;
  }) {
    this.#folder = parts.folder;
    this.#node = parts.node;
    this.#clients = parts.clients;
    this.#target = parts.target;
    this.#isQuick = parts.isQuick;
  }

  static async start(isQuick: boolean): Promise<IsolationBench> {
    const folder = new TemporaryFolder('meshcache-bench-');
    const node: Peer = new PeerProcess('isolation');
    const clients: Peer[] = [];
    try {
      const { target } = await node.call({
        kind: 'node',
        discoveryAddr: `${LOOPBACK}:${await findFreePort(systemRandom)}`,
        poolBytes: isQuick ? QUICK_POOL_BYTES : POOL_BYTES,
        clientSocket: join(folder.path, 'node.sock'),
      });
      for (const name of Object.keys(GOOD_CLIENTS)) {
        const client: Peer = new PeerProcess('isolation');
        clients.push(client);
        await client.call({ kind: 'client', name, target: target as Target });
      }
      return new IsolationBench({ folder, node, clients, target: target as Target, isQuick });
    } catch (error) {
      for (const peer of [...clients, node]) peer.end();
      folder.remove();
      throw error;
    }
  }

  async close(): Promise<void> {
    for (const peer of [...this.#clients, this.#node]) peer.end();
    this.#folder.remove();
  }

  /** Measures the clients alternately alone and beside a hostile client. */
  async measure(kind: string, { rounds, progress }: BenchOptions): Promise<{ alone: Window[]; beside: Window[] }> {
    const windows: { alone: Window[]; beside: Window[] } = { alone: [], beside: [] };
    for (let round = 1; round <= rounds; round++) {
      progress(`${kind}: round ${round} of ${rounds}`);
      windows.alone.push(await this.#window());
      const hostile: Peer = new PeerProcess('isolation');
      try {
        await hostile.call({ kind: 'hostile', name: kind, target: this.#target });
        await passed(this.#isQuick ? QUICK_SETTLE_MS : SETTLE_MS);
        windows.beside.push(await this.#window());
      } finally {
        await hostile.kill();
      }
      await passed(this.#isQuick ? QUICK_SETTLE_MS : SETTLE_MS);
    }
    return windows;
  }

  async #window(): Promise<Window> {
    await this.#node.call({ kind: 'figures' });
    const forMs = this.#isQuick ? QUICK_WINDOW_MS : WINDOW_MS;
    const answers = await Promise.all(this.#clients.map((client) => client.call({ kind: 'measure', forMs })));
    const { figures } = await this.#node.call({ kind: 'figures' });
    return { times: answers.map(({ times }) => times as CallTimes), figures: figures as Window['figures'] };
  }
}

function rowsOf(
  kind: string,
  { alone, beside }: { readonly alone: readonly Window[]; readonly beside: readonly Window[] },
): BenchReport['rows'][number][] {
  return Object.keys(GOOD_CLIENTS).map((client, i) => {
    const timesOf = (windows: readonly Window[]): CallTimes[] => windows.map(({ times }) => times[i] as CallTimes);
    const [own, theirs] = [timesOf(alone), timesOf(beside)];
    return {
      hostile: kind,
      client,
      p50_ms: round3(median(theirs.map(({ p50Ms }) => p50Ms))),
      p99_alone_ms: round3(median(own.map(({ p99Ms }) => p99Ms))),
      p99_ms: round3(median(theirs.map(({ p99Ms }) => p99Ms))),
      ratio: round3(median(theirs.map(({ p99Ms }, round) => p99Ms / (own[round] as CallTimes).p99Ms))),
      worst_alone_ms: round3(Math.max(...own.map(({ worstMs }) => worstMs))),
      worst_ms: round3(Math.max(...theirs.map(({ worstMs }) => worstMs))),
      failures: theirs.reduce((sum, { failures }) => sum + failures, 0),
      node_late_ms: round3(Math.max(...beside.map(({ figures }) => figures.worstMs))),
      node_busy_ms: round3(Math.max(...beside.map(({ figures }) => figures.worstBusyMs))),
      node_mib: Math.round(Math.max(...beside.map(({ figures }) => figures.residentBytes)) / 2 ** 20),
    };
  });
}

const LOOK_MS = 5;

/** How long the event loop of a process was blocked since the previous reading. */
interface LoopFigures {
  /** Longest time in which the loop handled no event. */
  readonly worstMs: number;
  /** Longest such time, counting only the thread's processor time. The rest was waiting for a processor. */
  readonly worstBusyMs: number;
}

/** Commands to a process, which is the node, a well-behaved client or a hostile one. */
type IsolationCommand =
  | { readonly kind: 'node'; readonly discoveryAddr: string; readonly poolBytes: number; readonly clientSocket: string }
  | { readonly kind: 'figures' }
  | { readonly kind: 'client'; readonly name: string; readonly target: Target }
  | { readonly kind: 'measure'; readonly forMs: number }
  | { readonly kind: 'hostile'; readonly name: string; readonly target: Target };

interface IsolationAnswer {
  readonly error?: string;
  readonly target?: Target;
  readonly figures?: LoopFigures & { readonly residentBytes: number };
  readonly times?: CallTimes;
}

const RESP_PASSWORD = 'password-of-the-benchmark';

export function isolationPeer(): ExecuteCommand<IsolationCommand, IsolationAnswer> {
  let watch: LoopWatch | undefined;
  let call: Parameters<typeof measureCalls>[0] | undefined;
  return async (command) => {
    switch (command.kind) {
      case 'node': {
        const target = await startNode(command);
        watch = new LoopWatch();
        return { target };
      }
      case 'figures':
        return { figures: { ...(watch as LoopWatch).take(), residentBytes: residentBytes() } };
      case 'client':
        call = await GOOD_CLIENTS[command.name]?.(command.target);
        return {};
      case 'measure':
        return { times: await measureCalls(call as NonNullable<typeof call>, command.forMs) };
      case 'hostile':
        void behave(command.name, command.target);
        return {};
    }
  };
}

async function startNode({
  discoveryAddr,
  poolBytes,
  clientSocket,
}: {
  readonly discoveryAddr: string;
  readonly poolBytes: number;
  readonly clientSocket: string;
}): Promise<Target> {
  const store = await MeshCacheStore.create(
    plainStorage(discoveryAddr, poolBytes, {
      client_socket: clientSocket,
      metrics_enabled: true,
      metrics_port: 0,
      resp_port: 0,
      resp_password: RESP_PASSWORD,
      namespace_quotas: { good: { min: 0.25 } },
    }),
  );
  const portOf = (endpoint: string): number => Number(endpoint.split(':').at(-1));
  return {
    clientSocket,
    respPort: portOf(store.respEndpoint),
    respPassword: RESP_PASSWORD,
    metricsPort: portOf(store.metricsEndpoint),
  };
}

/** Runs a kind of hostile client again and again until the process is killed. */
async function behave(name: string, target: Target): Promise<never> {
  for (;;) {
    await HOSTILE_KINDS[name]?.run(target).catch((error: Error) => {
      if (process.env.MESHCACHE_LOG === 'debug') process.stderr.write(`${name}: ${error.message}\n`);
    });
    await passed(10);
  }
}

/**
 * Resident memory of this process without shared memory, which counts as the clients'. Without /proc it is included.
 */
function residentBytes(): number {
  try {
    const text = readFileSync('/proc/self/status', 'latin1');
    return 1024 * Number(/^RssAnon:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0);
  } catch {
    return process.memoryUsage.rss();
  }
}

/**
 * Measures how long the event loop of this process is blocked. A timer is late because the loop is busy or because the
 * thread waits for a processor; the thread's processor time tells the two apart. Without /proc both figures include the
 * waiting.
 */
class LoopWatch {
  #lastMs = performance.now();
  #lastBusyMs = busyMs();
  #worstMs = 0;
  #worstBusyMs = 0;

  constructor() {
    setInterval(() => this.#look(), LOOK_MS).unref();
  }

  take(): LoopFigures {
    this.#look();
    const figures = { worstMs: this.#worstMs, worstBusyMs: this.#worstBusyMs };
    this.#worstMs = this.#worstBusyMs = 0;
    return figures;
  }

  #look(): void {
    const [nowMs, nowBusyMs] = [performance.now(), busyMs()];
    const lateMs = Math.max(0, nowMs - this.#lastMs - LOOK_MS);
    const busy = Math.min(lateMs, nowBusyMs === undefined ? lateMs : nowBusyMs - (this.#lastBusyMs ?? 0));
    this.#worstMs = Math.max(this.#worstMs, lateMs);
    this.#worstBusyMs = Math.max(this.#worstBusyMs, busy);
    this.#lastMs = nowMs;
    this.#lastBusyMs = nowBusyMs;
  }
}

/** Processor time of the main thread in milliseconds; undefined without /proc. */
function busyMs(): number | undefined {
  try {
    return Number(readFileSync('/proc/self/schedstat', 'latin1').split(' ')[0]) / 1e6;
  } catch {
    return undefined;
  }
}
