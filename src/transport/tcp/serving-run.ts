import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { FromServing, ServingReport, ServingSetup, ToServing } from './serving-messages.js';

export interface ServingRunOptions extends Omit<ServingSetup, 'control'> {
  /** The thread starts no read of this range any more. */
  onDeregistered(rkey: number): void;
  onReport(report: ServingReport): void;
}

/** One serving thread from its start to its end, whichever way it ends. */
export class ServingRun {
  /** Resolves when the thread is gone and the port is free. Never rejects. */
  readonly ended: Promise<void>;
  readonly #worker: Worker;
  readonly #control: MessagePort;
  readonly #answer: Promise<number | string>;
  #isListening = false;
  #hasEnded = false;
  #failure = '';

  /** What is sent is handled in order, also what is sent before the thread listens. */
  constructor({ onDeregistered, onReport, ...setup }: ServingRunOptions) {
    const { port1, port2 } = new MessageChannel();
    const workerData: ServingSetup = { ...setup, control: port2 };
    this.#control = port1;
    this.#worker = new Worker(new URL('./tcp-serving-worker.js', import.meta.url), {
      name: 'meshcache-tcp-serving',
      workerData,
      transferList: [port2],
      // The host program's loaders and hooks are not for this thread.
      execArgv: [],
    });
    this.#worker.on('error', (error: Error) => {
      this.#failure = error.message;
    });
    const portClosed = new Promise((resolve) => this.#control.once('close', resolve));
    const exited = new Promise<void>((resolve) => this.#worker.once('exit', () => resolve())).then(() => {
      this.#hasEnded = true;
      this.#control.close();
    });
    this.ended = Promise.all([portClosed, exited]).then(() => {});
    this.#answer = new Promise((resolve) => {
      this.#control.on('message', (message: FromServing) => {
        if (message.type === 'listening') resolve(message.port);
        else if (message.type === 'refused') resolve(message.message);
        else if (message.type === 'deregistered') onDeregistered(message.rkey);
        else onReport(message);
      });
      exited.then(() => resolve(this.#failure || 'the serving thread ended'));
    });
  }

  /** Resolves with the port listened on, or with why there is none; the thread is gone then. */
  async listening(): Promise<number | string> {
    const answer = await this.#answer;
    if (typeof answer === 'number') this.#isListening = true;
    else await this.terminate();
    return answer;
  }

  /** What made it end; empty when it was not an error of its own. */
  get failure(): string {
    return this.#failure;
  }

  /** Without effect once the thread is gone. */
  send(message: ToServing): void {
    if (!this.#hasEnded) this.#control.postMessage(message);
  }

  /** Lets the thread end its connections and itself. */
  stop(): void {
    if (this.#isListening) this.send({ type: 'close' });
    else this.terminate().catch(() => {});
  }

  /** Ends the thread wherever it is; resolves when it has ended. */
  async terminate(): Promise<void> {
    await this.#worker.terminate();
  }
}
