import { readFileSync } from 'node:fs';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { plainStorage } from '../measuring/store-pages.js';
import { type CallTimes, GOOD_CLIENTS, measureCalls } from './good-clients.js';
import { HOSTILE_KINDS } from './hostile-kinds.js';
import { passed, type Target } from './target.js';

const LOOK_MS = 5;

/** What the main loop of a process did since it was asked last. */
interface LoopFigures {
  /** The longest time in which it took no other event. */
  readonly worstMs: number;
  /** The longest such time, as far as it computed: on a crowded machine the rest is waiting for a processor. */
  readonly worstBusyMs: number;
}

/** A process is one of three: the node, a well-behaved client or a hostile one. */
export type IsolationCommand =
  | { readonly kind: 'node'; readonly discoveryAddr: string; readonly poolBytes: number; readonly clientSocket: string }
  | { readonly kind: 'figures' }
  | { readonly kind: 'client'; readonly name: string; readonly target: Target }
  | { readonly kind: 'measure'; readonly forMs: number }
  | { readonly kind: 'hostile'; readonly name: string; readonly target: Target };

export interface IsolationAnswer {
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

/** Behaves as a hostile client does until the process is ended. */
async function behave(name: string, target: Target): Promise<never> {
  for (;;) {
    await HOSTILE_KINDS[name]?.run(target).catch((error: Error) => {
      if (process.env.MESHCACHE_LOG === 'debug') process.stderr.write(`${name}: ${error.message}\n`);
    });
    await passed(10);
  }
}

/**
 * Memory of this process that is in use, without what it shares: a client's memory counts once, and as the client's.
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
 * Watches how long the main loop of this process is held up. A timer is late by what the loop does meanwhile and by
 * what the thread waits for a processor; the processor time of the thread tells the two apart. Without /proc both
 * figures are the whole.
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

/** Processor time of the main thread in milliseconds, where Linux tells it. */
function busyMs(): number | undefined {
  try {
    return Number(readFileSync('/proc/self/schedstat', 'latin1').split(' ')[0]) / 1e6;
  } catch {
    return undefined;
  }
}
