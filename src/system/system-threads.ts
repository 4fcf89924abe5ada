import {
  BroadcastChannel,
  MessageChannel,
  type MessagePort,
  receiveMessageOnPort,
  Worker,
  workerData,
} from 'node:worker_threads';
import type { MessageEnd, Thread, ThreadProgram, Threads } from '../base/environment/threads.js';

/** Start data of a thread. */
interface ThreadStart {
  readonly data: unknown;
  readonly port: MessagePort;
}

/** Threads of this process. */
export const systemThreads: Threads = {
  canCopy: true,
  start: (program) => new SystemThread(program),
  channel(name) {
    const channel = new BroadcastChannel(name);
    channel.unref();
    return {
      post: (message) => channel.postMessage(message),
      onMessage(listener) {
        channel.onmessage = (event) => listener((event as { readonly data: unknown }).data);
      },
      receive: () => receiveMessageOnPort(channel as unknown as MessagePort)?.message,
      close: () => channel.close(),
      // Only this side closes it.
      onClose() {},
    };
  },
};

/** Returns the start data and the message end of a thread of {@link systemThreads}. Called by its first module. */
export function startOfThread(): { readonly data: unknown; readonly messages: MessageEnd } {
  const { data, port } = workerData as ThreadStart;
  return { data, messages: endOf(port) };
}

class SystemThread implements Thread {
  readonly messages: MessageEnd;
  readonly ended: Promise<string | undefined>;
  readonly #worker: Worker;

  constructor({ name, script, data }: ThreadProgram) {
    const { port1, port2 } = new MessageChannel();
    const start: ThreadStart = { data, port: port2 };
    this.#worker = new Worker(script, {
      name,
      workerData: start,
      transferList: [port2],
      // Loaders and hooks of the host program must not run in this thread.
      execArgv: [],
    });
    this.messages = endOf(port1);
    let failure: string | undefined;
    this.#worker.on('error', (error: Error) => {
      failure = error.message;
    });
    const portClosed = new Promise((resolve) => port1.once('close', resolve));
    const exited = new Promise<void>((resolve) => this.#worker.once('exit', () => resolve())).then(() => port1.close());
    this.ended = Promise.all([portClosed, exited]).then(() => failure);
  }

  async terminate(): Promise<void> {
    await this.#worker.terminate();
  }
}

function endOf(port: MessagePort): MessageEnd {
  return {
    post: (message) => port.postMessage(message),
    onMessage: (listener) => void port.on('message', listener),
    receive: () => receiveMessageOnPort(port)?.message,
    close: () => port.close(),
    onClose: (listener) => void port.once('close', listener),
  };
}
