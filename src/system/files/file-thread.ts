import { receiveMessageOnPort, workerData } from 'node:worker_threads';
import {
  FILE_OPERATIONS,
  type FileAnswer,
  type FileCallMessage,
  type FileThreadStart,
  IDLE,
} from './file-operations.js';

const { port, state } = workerData as FileThreadStart;

for (;;) {
  while (Atomics.load(state, 0) === IDLE) Atomics.wait(state, 0, IDLE);
  const { message } = receiveMessageOnPort(port) as { readonly message: FileCallMessage };
  const answer = answerTo(message);
  const { value } = answer;
  const isOwnMemory = value instanceof Uint8Array && value.buffer instanceof ArrayBuffer;
  port.postMessage(answer, isOwnMemory ? [value.buffer as ArrayBuffer] : []);
  Atomics.store(state, 0, IDLE);
  Atomics.notify(state, 0);
}

function answerTo({ operation, args }: FileCallMessage): FileAnswer {
  try {
    return { value: (FILE_OPERATIONS[operation] as (...args: readonly unknown[]) => unknown)(...args) };
  } catch (error) {
    const { message } = error as Error;
    return { error: { message, fields: { ...(error as object) } } };
  }
}
