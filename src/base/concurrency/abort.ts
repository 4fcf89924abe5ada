import { setMaxListeners } from 'node:events';

/** Calls `abort` when the signal, which is not aborted yet, is aborted. Returns what takes the listener off again; harmless afterwards. */
export function onAbort(signal: AbortSignal, abort: () => void): () => void {
  // One call listens in as many places as it asks nodes: Node warns of more than ten listeners as of a leak.
  setMaxListeners(0, signal);
  signal.addEventListener('abort', abort, { once: true });
  return () => signal.removeEventListener('abort', abort);
}

/**
 * Resolves as `work` does, or with undefined as soon as the signal is aborted. `work` itself goes on after that, and its result or
 * error is ignored. Leaves no listener on the signal.
 */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T | undefined> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const stop = signal.aborted ? () => {} : onAbort(signal, () => resolve(undefined));
    if (signal.aborted) resolve(undefined);
    work.then(
      (value) => {
        stop();
        resolve(value);
      },
      (error: unknown) => {
        stop();
        reject(error);
      },
    );
  });
}
