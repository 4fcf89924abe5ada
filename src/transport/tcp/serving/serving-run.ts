import type { Environment } from '../../../base/environment/environment.js';
import type { MessageEnd, Thread } from '../../../base/environment/threads.js';
import type { FromServing, ServingReport, ServingSetup, ToServing } from './serving-messages.js';
import { serve } from './serving-program.js';

export interface ServingRunOptions extends ServingSetup {
  readonly env: Environment;
  /** Called when the thread starts no read of this range any more. */
  onDeregistered(rkey: number): void;
  onReport(report: ServingReport): void;
}

/** One serving thread from its start to its end. */
export class ServingRun {
  /** Resolves when the thread is gone and the port is free. Never rejects. */
  readonly ended: Promise<void>;
  readonly #thread: Thread;
  readonly #answer: Promise<number | string>;
  #isListening = false;
  #failure = '';

  /** Starts the thread. Messages are handled in order, also those that are sent before it listens. */
  constructor({ env, onDeregistered, onReport, ...setup }: ServingRunOptions) {
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
        if (message.type === 'listening') resolve(message.port);
        else if (message.type === 'refused') resolve(message.message);
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

  /** Sends a message; without effect once the thread has ended. */
  send(message: ToServing): void {
    this.#thread.messages.post(message);
  }

  /** Asks the thread to end its connections and itself. */
  stop(): void {
    if (this.#isListening) this.send({ type: 'close' });
    else this.terminate().catch(() => {});
  }

  /** Stops the thread wherever it is; resolves when it has ended. */
  async terminate(): Promise<void> {
    await this.#thread.terminate();
  }
}
