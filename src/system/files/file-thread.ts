import { type MessagePort, workerData } from 'node:worker_threads';
import { FILE_OPERATIONS, type FileOperation } from './file-operations.js';

/** Start data of a file thread. */
export interface FileThreadStart {
  readonly port: MessagePort;
  /** One number: the id of the call in progress; the thread sets it to 0 and wakes who waits when its answer has been posted. */
  readonly current: Int32Array<SharedArrayBuffer>;
}

/** A call for a file thread. */
export interface FileCallMessage {
  readonly id: number;
  readonly operation: FileOperation;
  readonly args: readonly unknown[];
}

/** The answer to a {@link FileCallMessage}. */
export interface FileAnswer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: { readonly message: string; readonly fields: object };
}

const { port, current } = workerData as FileThreadStart;

port.on('message', ({ id, operation, args }: FileCallMessage) => {
  const answer = answerOf(id, operation, args);
  const { value } = answer;
  const isOwnMemory = value instanceof Uint8Array && value.buffer instanceof ArrayBuffer;
  port.postMessage(answer, isOwnMemory ? [value.buffer as ArrayBuffer] : []);
  // The next call may have been given already, with the answer.
  Atomics.compareExchange(current, 0, id, 0);
  Atomics.notify(current, 0);
});

function answerOf(id: number, operation: FileOperation, args: readonly unknown[]): FileAnswer {
  try {
    return { id, value: (FILE_OPERATIONS[operation] as (...args: readonly unknown[]) => unknown)(...args) };
  } catch (error) {
    const { message } = error as Error;
    return { id, error: { message, fields: { ...(error as object) } } };
  }
}
