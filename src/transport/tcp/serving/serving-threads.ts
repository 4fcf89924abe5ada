import type { Environment } from '../../../base/environment/environment.js';
import { loadNative } from '../../../native/addon/loader.js';
import type { TcpLimits } from '../protocol/limits.js';
import { ServingLoads } from './moved-connections.js';
import type { Registration } from './registrations.js';
import type { ServingCounterName } from './serving-connection.js';
import { ServingThread } from './serving-thread.js';

interface ServingThreadsOptions {
  readonly host: string;
  /** Port to listen on; 0: any free one. */
  readonly port: number;
  readonly limits: TcpLimits;
  readonly env: Environment;
  readonly threads: number;
  /** Differentiated services code point of the connections. */
  readonly dscp?: number | undefined;
}

/**
 * The threads that serve registered memory. The first one listens and keeps its share of the connections. Without the
 * native addon, which moves connections to the others, it is the only one.
 */
export class ServingThreads {
  readonly #threads: readonly ServingThread[];

  /** Starts the threads and resolves when they serve. Throws `ConfigError` if they cannot listen at the address. */
  static async start({ threads, ...options }: ServingThreadsOptions): Promise<ServingThreads> {
    const { env, limits } = options;
    const count = env.threads.channel !== undefined && loadNative().addon !== null ? threads : 1;
    if (count === 1) return new ServingThreads([await ServingThread.start(options)]);
    const loads = new ServingLoads(count);
    const channel = `meshcache serving ${env.random.u32()}.${env.random.u32()}`;
    const shares = {
      ...options,
      limits: {
        ...limits,
        connectionsMaxCount: Math.ceil(limits.connectionsMaxCount / count),
        pendingMaxCount: Math.ceil(limits.pendingMaxCount / count),
      },
    };
    const first = await ServingThread.start({ ...shares, place: { index: 0, loads, channel } });
    const others = Array.from({ length: count - 1 }, (_, i) =>
      ServingThread.start({ ...shares, port: first.port, place: { index: i + 1, loads, channel } }),
    );
    return new ServingThreads([first, ...(await Promise.all(others))]);
  }

  private constructor(threads: readonly ServingThread[]) {
    this.#threads = threads;
  }

  /** The port that peers connect to. */
  get port(): number {
    return (this.#threads[0] as ServingThread).port;
  }

  /** Whether new peers can connect. It stays false after repeated failures. */
  get isServing(): boolean {
    return (this.#threads[0] as ServingThread).isServing;
  }

  /** A counter, over all threads. */
  total(name: ServingCounterName): number {
    return this.#threads.reduce((sum, { counters }) => sum + counters.value(name), 0);
  }

  /** Lets peers read the range; takes effect before a peer can use the rkey. */
  register(registration: Registration): void {
    for (const thread of this.#threads) thread.register(registration);
  }

  /** Deregisters a range; resolves when no new read of it starts any more. */
  async deregister(rkey: number): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.deregister(rkey)));
  }

  /** Resolves when the threads are gone and the port is free. */
  async close(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }
}
