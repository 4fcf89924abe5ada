import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { Environment } from '../../base/environment.js';
import { ConfigError } from '../../base/errors.js';
import { formatEndpoint } from '../../base/network.js';
import type { TcpLimits } from './limits.js';
import type { Registration } from './registrations.js';
import { ServingCounters } from './serving-counters.js';
import type { FromServing, ServingSetup, ToServing } from './serving-messages.js';

export interface ServingThreadOptions {
  readonly host: string;
  /** 0: a free one. */
  readonly port: number;
  readonly limits: TcpLimits;
  readonly env: Environment;
}

/**
 * The transport's hold on its serving thread.
 *
 * {@link register} only posts a message, and yet no peer that has learnt the rkey comes too early:
 * when the serving thread meets an rkey that it does not know, it first takes in, synchronously, what has
 * been posted to it; and the registration was posted before anybody could be told the rkey.
 */
export class ServingThread {
  readonly counters = new ServingCounters();
  readonly #worker: Worker;
  readonly #control: MessagePort;
  readonly #options: ServingThreadOptions;
  readonly #registeredFlags = new Map<number, Int32Array>();
  readonly #deregistering = new Map<number, () => void>();
  readonly #exited: Promise<void>;
  #port = 0;
  #hasExited = false;
  #isClosing = false;

  /** Starts the thread and resolves when it listens. Throws `ConfigError` when it cannot listen there. */
  static async start(options: ServingThreadOptions): Promise<ServingThread> {
    const thread = new ServingThread(options);
    await thread.#listening();
    return thread;
  }

  private constructor(options: ServingThreadOptions) {
    this.#options = options;
    const { port1, port2 } = new MessageChannel();
    this.#control = port1;
    const { host, port, limits } = options;
    const setup: ServingSetup = { control: port2, counterMemory: this.counters.memory, host, port, limits };
    this.#worker = new Worker(new URL('./tcp-serving-worker.js', import.meta.url), {
      name: 'meshcache-tcp-serving',
      workerData: setup,
      transferList: [port2],
      // The host program's loaders and hooks are not for this thread.
      execArgv: [],
    });
    this.#worker.on('error', (error: Error) =>
      options.env.log.log('error', 'serving thread failed; peers cannot read from this node any more', {
        error: error.message,
      }),
    );
    const portClosed = new Promise((resolve) => this.#control.once('close', resolve));
    const exited = new Promise((resolve) => this.#worker.once('exit', resolve)).then(() => this.#onExit());
    this.#exited = Promise.all([portClosed, exited]).then(() => {});
  }

  /** The port listened on. */
  get port(): number {
    return this.#port;
  }

  /** Allows peers to read; takes effect before anybody can use the rkey. */
  register(registration: Registration): void {
    this.#registeredFlags.set(registration.rkey, registration.registeredFlag);
    this.#send({ type: 'register', registration });
  }

  /** No read of it starts any more once this has resolved. */
  deregister(rkey: number): Promise<void> {
    const flag = this.#registeredFlags.get(rkey);
    if (flag === undefined || this.#hasExited) return Promise.resolve();
    Atomics.store(flag, 0, 0);
    this.#registeredFlags.delete(rkey);
    return new Promise((resolve) => {
      this.#deregistering.set(rkey, resolve);
      this.#send({ type: 'deregister', rkey });
    });
  }

  /** Resolves when the thread is gone and the port is free. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#send({ type: 'close' });
    const cancel = this.#options.env.clock.after(
      this.#options.limits.closeTimeoutMs,
      () => {
        this.#worker.terminate().catch(() => {});
      },
      { keepAlive: true },
    );
    await this.#exited;
    cancel();
  }

  async #listening(): Promise<void> {
    const answer = await new Promise<FromServing>((resolve) => {
      this.#control.once('message', resolve);
      this.#worker.once('error', (error: Error) => resolve({ type: 'refused', message: error.message }));
      this.#worker.once('exit', () => resolve({ type: 'refused', message: 'the serving thread ended' }));
    });
    if (answer.type === 'listening') {
      this.#port = answer.port;
      this.#control.on('message', (message: FromServing) => this.#onMessage(message));
      return;
    }
    await this.#worker.terminate();
    const { host, port } = this.#options;
    const reason = answer.type === 'refused' ? answer.message : answer.type;
    throw new ConfigError(
      `configuration key "tcp_port": cannot listen on ${formatEndpoint({ host, port })} (${reason}); ` +
        'choose a port that is free, or 0 for any, and a local_hostname that is an address of this machine',
    );
  }

  #onMessage(message: FromServing): void {
    if (message.type !== 'deregistered') return;
    this.#deregistering.get(message.rkey)?.();
    this.#deregistering.delete(message.rkey);
  }

  #onExit(): void {
    this.#hasExited = true;
    this.#control.close();
    for (const resolve of this.#deregistering.values()) resolve();
    this.#deregistering.clear();
    if (!this.#isClosing && this.#port !== 0) {
      this.#options.env.log.log('error', 'serving thread ended; peers cannot read from this node any more');
    }
  }

  #send(message: ToServing): void {
    if (!this.#hasExited) this.#control.postMessage(message);
  }
}
