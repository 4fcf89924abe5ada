import { getSystemErrorMap } from 'node:util';
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { BUSY, type FileAnswer, type FileCallMessage, type FileThreadStart, IDLE } from './file-call.js';

/** Time between two looks at a call of somebody else's thread while this thread waits for it. */
const STATE_POLL_MS = 2;

/** Makes a call on a thread of somebody else's, which sets `state` to IDLE as soon as the system has answered. */
export type OutsideWork = (state: Int32Array<SharedArrayBuffer>) => Promise<number>;

/** A call to be made: an operation of a file thread, or work of somebody else's. */
export interface StartedCall extends FileCallMessage {
  readonly outside: OutsideWork | undefined;
}

/** What makes a call, one at a time. */
export interface RunningCall {
  start(call: StartedCall): void;
  /** Whether the system has not answered. */
  readonly isBusy: boolean;
  /** The answer, when there is one. The process does not stay for it. */
  answer(): Promise<FileAnswer>;
  /** Blocks until the system has answered; false: it has not at that time. */
  idleBy(endMs: number): boolean;
}

/** A thread that makes one call at a time. */
export class FileThread implements RunningCall {
  readonly #state = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  readonly #port: MessagePort;

  constructor() {
    const { port1, port2 } = new MessageChannel();
    const start: FileThreadStart = { port: port2, state: this.#state };
    const worker = new Worker(new URL('./file-thread.js', import.meta.url), {
      name: 'meshcache-files',
      workerData: start,
      transferList: [port2],
      execArgv: [],
      // Descriptors belong to the process, and outlive the thread that has opened them.
      trackUnmanagedFds: false,
    });
    worker.unref();
    // A thread that cannot be started never answers, so its calls end by their deadline.
    worker.on('error', () => {});
    this.#port = port1;
  }

  get isBusy(): boolean {
    return Atomics.load(this.#state, 0) === BUSY;
  }

  start({ operation, args }: StartedCall): void {
    const message: FileCallMessage = { operation, args };
    this.#port.postMessage(message);
    Atomics.store(this.#state, 0, BUSY);
    Atomics.notify(this.#state, 0);
  }

  async answer(): Promise<FileAnswer> {
    while (this.isBusy) await Atomics.waitAsync(this.#state, 0, BUSY).value;
    return this.#received();
  }

  /** Blocks until the call has ended; undefined: it has not in that time. */
  wait(timeoutMs: number): FileAnswer | undefined {
    return this.idleBy(performance.now() + timeoutMs) ? this.#received() : undefined;
  }

  idleBy(endMs: number): boolean {
    return idleBy(this.#state, endMs, Number.POSITIVE_INFINITY);
  }

  #received(): FileAnswer {
    return (receiveMessageOnPort(this.#port) as { readonly message: FileAnswer }).message;
  }
}

/** One call that a thread of somebody else's makes. */
export class OutsideCall implements RunningCall {
  readonly #state = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  #answer: Promise<FileAnswer> = Promise.resolve({});

  get isBusy(): boolean {
    return Atomics.load(this.#state, 0) === BUSY;
  }

  start(call: StartedCall): void {
    Atomics.store(this.#state, 0, BUSY);
    this.#answer = this.#make(call);
  }

  answer(): Promise<FileAnswer> {
    return this.#answer;
  }

  idleBy(endMs: number): boolean {
    return idleBy(this.#state, endMs, STATE_POLL_MS);
  }

  async #make({ operation, outside }: StartedCall): Promise<FileAnswer> {
    try {
      const result = await (outside as OutsideWork)(this.#state);
      return result >= 0 ? { value: result } : failure(operation, result);
    } catch (error) {
      Atomics.store(this.#state, 0, IDLE);
      const { message } = error as Error;
      return { error: { message, fields: {} } };
    }
  }
}

/** The answer for a negative errno. */
function failure(syscall: string, errno: number): FileAnswer {
  const [code, text] = getSystemErrorMap().get(errno) ?? ['EIO', `error ${-errno}`];
  return { error: { message: `${code}: ${text}, ${syscall}`, fields: { errno, code, syscall } } };
}

function idleBy(state: Int32Array<SharedArrayBuffer>, endMs: number, pollMs: number): boolean {
  while (Atomics.load(state, 0) === BUSY) {
    const leftMs = endMs - performance.now();
    if (leftMs <= 0) return false;
    Atomics.wait(state, 0, BUSY, Math.min(leftMs, pollMs));
  }
  return true;
}
