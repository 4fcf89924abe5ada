import { assertEqual } from '../../../base/assert.js';
import type { Environment } from '../../../base/environment/environment.js';
import type { MessageEnd, Thread } from '../../../base/environment/threads.js';
import type { TcpLimits } from '../protocol/limits.js';
import { credentialsOf, passOn } from '../threads/thread-messages.js';
import { ThreadRestarts } from '../threads/thread-restarts.js';
import { type ReadBatch, ReadCounters, type ReadRequest } from './read-request.js';
import { type FromReading, type ReadingSetup, readOnThread, type ToReading } from './reading-program.js';

/** Requests of one batch that the thread has to carry out. */
interface ThreadRead {
  readonly batch: ReadBatch;
  readonly requests: readonly ReadRequest[];
  readonly totalBytes: number;
}

/**
 * The transport's handle of one reading thread.
 *
 * A thread that fails is replaced by another one after a pause; meanwhile, and for good after repeated failures, it
 * takes no requests. Its reads end false once it has ended, so that nothing writes into their memory any more.
 */
export class ReadingThread {
  readonly counters = new ReadCounters();
  readonly #limits: TcpLimits;
  readonly #env: Environment;
  readonly #dscp: number | undefined;
  readonly #reads = new Map<number, ThreadRead>();
  readonly #unreachable = new Set<string>();
  #thread: Thread | undefined;
  #nextId = 1;
  #pendingBytes = 0;
  readonly #restarts: ThreadRestarts;
  #cancelRestart: (() => void) | undefined;
  #isClosing = false;

  /** `dscp` is that of its connections. */
  constructor(limits: TcpLimits, env: Environment, dscp?: number) {
    this.#limits = limits;
    this.#env = env;
    this.#dscp = dscp;
    this.#restarts = new ThreadRestarts(env.clock, limits);
    this.#start();
  }

  /** Whether it takes requests. */
  get isRunning(): boolean {
    return this.#thread !== undefined && !this.#isClosing;
  }

  /** Bytes of the requests that have not ended. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** Endpoints of the peers that the thread does not reach. */
  get unreachable(): ReadonlySet<string> {
    return this.#unreachable;
  }

  /** Carries out requests of one batch. Must be running. All operations end, whatever happens. */
  submit(endpoint: string, requests: readonly ReadRequest[]): void {
    const id = this.#nextId++;
    const totalBytes = requests.reduce((sum, request) => sum + request.totalBytes, 0);
    this.#pendingBytes += totalBytes;
    this.#reads.set(id, { batch: (requests[0] as ReadRequest).batch, requests, totalBytes });
    this.#send({ type: 'read', id, endpoint, requests: requests.map((request) => request.pack()) });
  }

  /** Aborts the requests of a batch; see `ReadConnection.abort`. */
  abort(batch: ReadBatch): void {
    for (const [id, read] of this.#reads) if (read.batch === batch) this.#send({ type: 'abort', id });
  }

  /** Lets the thread use the credentials of the environment as they are now. */
  renewCredentials(): void {
    this.#send({ type: 'credentials', ...credentialsOf(this.#env) });
  }

  /** Resolves when the thread is gone; pending operations end false. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#cancelRestart?.();
    const thread = this.#thread;
    if (thread === undefined) return;
    this.#send({ type: 'close' });
    const stop = (): void => void thread.terminate().catch(() => {});
    const cancel = this.#env.clock.after(this.#limits.closeTimeoutMs, stop, { keepAlive: true });
    await thread.ended;
    cancel();
  }

  #send(message: ToReading): void {
    this.#thread?.messages.post(message);
  }

  #start(): void {
    const env = this.#env;
    const setup: ReadingSetup = {
      counterMemory: this.counters.memory,
      limits: this.#limits,
      dscp: this.#dscp,
      ...credentialsOf(env),
    };
    const thread = env.threads.start({
      name: 'meshcache-tcp-reading',
      script: new URL('./tcp-reading-worker.js', import.meta.url),
      data: setup,
      inline: (data: unknown, messages: MessageEnd) => readOnThread(data as ReadingSetup, messages, env),
    });
    this.#thread = thread;
    this.#restarts.started();
    thread.messages.onMessage((message) => this.#received(message as FromReading));
    thread.ended.then((failure) => this.#onEnded(failure));
  }

  #received(message: FromReading): void {
    if (message.type === 'ended') {
      this.#readEnded(message);
    } else if (message.type === 'turned') {
      if (message.isReachable) this.#unreachable.delete(message.endpoint);
      else this.#unreachable.add(message.endpoint);
    } else {
      passOn(message, this.#env);
    }
  }

  #readEnded({ id, isRead, gone }: FromReading & { readonly type: 'ended' }): void {
    const { requests, totalBytes } = this.#reads.get(id) as ThreadRead;
    this.#reads.delete(id);
    this.#pendingBytes -= totalBytes;
    let at = 0;
    for (const request of requests) {
      for (let op = 0; op < request.opCount; op++, at++) request.finish(op, isRead[at] === 1, gone[at]);
    }
  }

  #onEnded(failure = 'it ended by itself'): void {
    this.#thread = undefined;
    this.#unreachable.clear();
    // The failed thread could not count down its connections.
    this.counters.clear('connections');
    for (const { requests } of this.#reads.values()) {
      for (const request of requests) this.counters.add('failedOps', request.failRest());
    }
    this.#reads.clear();
    this.#pendingBytes = 0;
    if (this.#isClosing) return;

    const { clock, log, metrics } = this.#env;
    const delayMs = this.#restarts.failed();
    if (delayMs === undefined) {
      log.log('error', 'reading thread failed; the remaining threads read from peers', { error: failure });
      return;
    }
    log.log('error', 'reading thread failed; restarting it', { error: failure, delayMs });
    metrics.count('meshcache_transport_reading_restarts_total');
    this.#cancelRestart = clock.after(delayMs, () => this.#start());
  }

  /** Throws `InvariantError` unless the bytes of the requests that have not ended are counted. */
  verify(): void {
    const requests = [...this.#reads.values()].flatMap((read) => read.requests);
    const bytes = requests.reduce((sum, { totalBytes }) => sum + totalBytes, 0);
    assertEqual('reading thread: bytes of requests', this.#pendingBytes, bytes);
  }
}
