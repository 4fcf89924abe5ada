import type { MessagePort } from 'node:worker_threads';
import type { FileOperation } from './file-operations.js';

/** States of a file thread. */
export const IDLE = 0;
export const BUSY = 1;

/** Start data of a file thread. */
export interface FileThreadStart {
  readonly port: MessagePort;
  /**
   * One number. The main thread sets it to BUSY when it has posted a call, the file thread to IDLE when it has posted
   * the answer; each wakes the other one then, which may see the number changed before. Both sleep on it: waking an
   * event loop for each call costs more.
   */
  readonly state: Int32Array<SharedArrayBuffer>;
}

/** A call for a file thread. */
export interface FileCallMessage {
  readonly operation: FileOperation;
  readonly args: readonly unknown[];
}

/** The answer to a {@link FileCallMessage}. */
export interface FileAnswer {
  readonly value?: unknown;
  readonly error?: { readonly message: string; readonly fields: object };
}
