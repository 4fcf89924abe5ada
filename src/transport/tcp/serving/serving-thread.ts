import type { Environment } from '../../../base/environment/environment.js';
import { formatEndpoint } from '../../../base/environment/network.js';
import type { MessageEnd, Thread } from '../../../base/environment/threads.js';
import { ConfigError } from '../../../base/errors.js';
import type { TcpLimits } from '../protocol/limits.js';
import { credentialsOf, onCredentialsRenewed, passOn, type ThreadReport } from '../threads/thread-messages.js';
import { ThreadRestarts } from '../threads/thread-restarts.js';
import type { ServingLoads } from './moved-connections.js';
import type { Registration } from './registrations.js';
import { ServingCounters } from './serving-connection.js';
import { type FromServing, type ServingSetup, serve, type ToServing } from './serving-program.js';

interface ServingRunOptions extends ServingSetup {
  readonly env: Environment;
  /** Called when the thread will start no more reads of this range. */
  onDeregistered(rkey: number): void;
  /** Called when the thread serves. */
  onListening(): void;
  onReport(report: ThreadReport): void;
}

/** The place of a thread among several that serve together. */
interface ServingPlace {
  /** Number of the thread; 0 accepts connections and gives the others their share. */
  readonly index: number;
  readonly loads: ServingLoads;
  /** Name of the channel on which the threads exchange messages. */
  readonly channel: string;
}

interface ServingThreadOptions {
  readonly host: string;
  /** Port to listen on; 0: any free one. A thread that does not accept needs the port of the one that does. */
  readonly port: number;
  readonly limits: TcpLimits;
  readonly env: Environment;
  /** Differentiated services code point of its connections. */
  readonly dscp?: number | undefined;
  /** Undefined: the thread serves alone. */
  readonly place?: ServingPlace;
}

/**
 * The transport's handle of the serving thread.
 *
 * {@link register} only posts a message, yet no peer that knows the rkey comes too early: when the serving thread sees
 * an unknown rkey, it first handles all posted messages synchronously. The registration was posted before any peer
 * could learn the rkey.
 *
 * A failed thread is replaced by another one on the same port and with the same registrations; otherwise the node would
 * stay a member whose pages cannot be read. After repeated failures it is not replaced any more.
 */
export class ServingThread {
  readonly counters = new ServingCounters();
  readonly #options: ServingThreadOptions;
  readonly #registrations = new Map<number, Registration>();
  readonly #deregistering = new Map<number, () => void>();
  /** The current run; undefined between the end of one and the start of the next. */
  #run: ServingRun | undefined;
  #port = 0;
  readonly #restarts: ThreadRestarts;
  #cancelRestart: (() => void) | undefined;
  #isClosing = false;
  /** Stops watching for renewed credentials. */
  #forget: () => void = () => {};

  /** Starts the thread and resolves when it listens. Throws `ConfigError` if it cannot listen at the address. */
  static async start(options: ServingThreadOptions): Promise<ServingThread> {
    const thread = new ServingThread(options);
    thread.#forget = onCredentialsRenewed(options.env, () =>
      thread.#run?.send({ type: 'credentials', ...credentialsOf(options.env) }),
    );
    const answer = await thread.#begin(options.port).listening();
    if (typeof answer === 'string') {
      thread.#forget();
      throw listenError(options, answer);
    }
    thread.#port = answer;
    return thread;
  }

  private constructor(options: ServingThreadOptions) {
    this.#options = options;
    this.#restarts = new ThreadRestarts(options.env.clock, options.limits);
  }

  /** The port that the thread listens on. */
  get port(): number {
    return this.#port;
  }

  /** Whether a thread is running. It stays false after repeated failures. */
  get isServing(): boolean {
    return this.#run !== undefined;
  }

  /** Lets peers read the range; takes effect before a peer can use the rkey. */
  register(registration: Registration): void {
    this.#registrations.set(registration.rkey, registration);
    this.#run?.send({ type: 'register', registration });
  }

  /** Deregisters a range; resolves when no new read of it starts any more. */
  deregister(rkey: number): Promise<void> {
    const registration = this.#registrations.get(rkey);
    if (registration === undefined) return Promise.resolve();
    Atomics.store(registration.registeredFlag, 0, 0);
    this.#registrations.delete(rkey);
    const run = this.#run;
    if (run === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      this.#deregistering.set(rkey, resolve);
      run.send({ type: 'deregister', rkey });
    });
  }

  /** Resolves when the thread is gone and the port is free. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#forget();
    this.#cancelRestart?.();
    const run = this.#run;
    if (run === undefined) return;
    run.stop();
    const { env, limits } = this.#options;
    const cancel = env.clock.after(limits.closeTimeoutMs, () => run.terminate().catch(() => {}), { keepAlive: true });
    await run.ended;
    cancel();
  }

  /** Starts a thread that receives all registrations before it accepts a peer. */
  #begin(port: number): ServingRun {
    const { host, limits, env, dscp, place } = this.#options;
    const run = new ServingRun({
      env,
      place: place === undefined ? undefined : { ...place, loads: place.loads.memory },
      counterMemory: this.counters.memory,
      host,
      port,
      limits,
      dscp,
      ...credentialsOf(env),
      onListening: () => place?.loads.set(place.index, true),
      onReport: (report) => passOn(report, env),
      onDeregistered: (rkey) => {
        this.#deregistering.get(rkey)?.();
        this.#deregistering.delete(rkey);
      },
    });
    this.#run = run;
    this.#restarts.started();
    for (const registration of this.#registrations.values()) {
      if (Atomics.load(registration.liveFlag, 0) === 1) run.send({ type: 'register', registration });
    }
    run.ended.then(() => this.#onEnded(run));
    return run;
  }

  #onEnded({ failure }: ServingRun): void {
    this.#run = undefined;
    // The failed thread could not count down its connections.
    this.counters.clear('connections');
    const { place } = this.#options;
    place?.loads.set(place.index, false);
    for (const resolve of this.#deregistering.values()) resolve();
    this.#deregistering.clear();
    if (this.#isClosing || this.#port === 0) return;

    const { env } = this.#options;
    const delayMs = this.#restarts.failed();
    if (delayMs === undefined) {
      const isNeeded = place === undefined || place.index === 0;
      const effect = isNeeded ? 'peers cannot read from this node any more' : 'the remaining threads serve';
      env.log.log('error', `serving thread failed; ${effect}`, { error: failure });
      return;
    }
    env.log.log('error', 'serving thread failed; restarting it', { error: failure, delayMs });
    env.metrics.count('meshcache_transport_serving_restarts_total');
    this.#cancelRestart = env.clock.after(delayMs, () => this.#restart(), { keepAlive: true });
  }

  /**
   * Starts another thread on the port that peers know. If the port is taken, that thread ends, which leads to the next
   * attempt.
   */
  #restart(): void {
    const { log } = this.#options.env;
    const port = this.#port;
    this.#begin(port)
      .listening()
      .then((answer) => {
        if (this.#isClosing) return;
        if (answer === port) log.log('info', 'serving thread restarted', { port });
        else log.log('warn', 'serving thread could not be restarted', { port, reason: answer });
      });
  }
}

/** Returns the error for an address that the thread cannot listen on; it names the configuration key to change. */
function listenError(address: { readonly host: string; readonly port: number }, failure: string): ConfigError {
  const [key, advice] = /\b(EADDRINUSE|EACCES)\b/.test(failure)
    ? ['tcp_port', 'choose a port that is free, or 0 for any']
    : ['local_hostname', 'give a host name or address of this machine'];
  return new ConfigError(
    `configuration key "${key}": cannot listen on ${formatEndpoint(address)} (${failure}); ${advice}`,
  );
}

/** One serving thread from its start to its end. */
class ServingRun {
  /** Resolves when the thread is gone and the port is free. Never rejects. */
  readonly ended: Promise<void>;
  readonly #thread: Thread;
  readonly #answer: Promise<number | string>;
  #isListening = false;
  #failure = '';

  /** Starts the thread. Messages are handled in order, including those sent before it listens. */
  constructor({ env, onDeregistered, onListening, onReport, ...setup }: ServingRunOptions) {
    this.#thread = env.threads.start({
      name: 'meshcache-tcp-serving',
      script: new URL('./tcp-serving-worker.js', import.meta.url),
      data: setup,
      inline: (data: unknown, messages: MessageEnd) => serve(data as ServingSetup, messages, env),
    });
    this.ended = this.#thread.ended.then((failure = '') => {
      this.#failure = failure;
    });
    this.#answer = new Promise((resolve) => {
      this.#thread.messages.onMessage((given) => {
        const message = given as FromServing;
        if (message.type === 'listening') {
          onListening();
          resolve(message.port);
        } else if (message.type === 'refused') resolve(message.message);
        else if (message.type === 'deregistered') onDeregistered(message.rkey);
        else onReport(message);
      });
      this.ended.then(() => resolve(this.#failure || 'the serving thread ended'));
    });
  }

  /** Resolves with the port, or with the reason why the thread could not listen and has ended. */
  async listening(): Promise<number | string> {
    const answer = await this.#answer;
    if (typeof answer === 'number') this.#isListening = true;
    else await this.terminate();
    return answer;
  }

  /** The error that ended the thread; empty if there was none. */
  get failure(): string {
    return this.#failure;
  }

  /** Sends a message. Has no effect once the thread has ended. */
  send(message: ToServing): void {
    this.#thread.messages.post(message);
  }

  /** Asks the thread to end its connections and itself. */
  stop(): void {
    if (this.#isListening) this.send({ type: 'close' });
    else this.terminate().catch(() => {});
  }

  /** Stops the thread at once, whatever it does; resolves when it has ended. */
  async terminate(): Promise<void> {
    await this.#thread.terminate();
  }
}
