import { setMaxListeners } from 'node:events';
import type { Clock } from '../environment/clock.js';

/**
 * Calls `abort` when the signal, which is not aborted yet, is aborted. Returns a function that removes the listener;
 * calling it later is harmless.
 */
export function onAbort(signal: AbortSignal, abort: () => void): () => void {
  // One call listens once for each node that it asks, and Node takes more than ten listeners for a leak.
  setMaxListeners(0, signal);
  signal.addEventListener('abort', abort, { once: true });
  return () => signal.removeEventListener('abort', abort);
}

/**
 * Settles as `work` does, or resolves with undefined as soon as the signal is aborted; `work` then continues and its
 * result or error is ignored. Leaves no listener on the signal.
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

/**
 * Resolves after `ms`, or as soon as the signal is aborted. The wait keeps the process alive only if `keepAlive` is true.
 */
export async function pause(
  clock: Clock,
  ms: number,
  signal: AbortSignal | undefined,
  options: { readonly keepAlive?: boolean } = {},
): Promise<void> {
  let cancel = () => {};
  const time = new Promise<void>((resolve) => {
    cancel = clock.after(ms, resolve, options);
  });
  await unlessAborted(time, signal);
  cancel();
}

/** Tells when a result is no longer wanted. Every `AbortSignal` is a CancelSignal. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  /** Removes a listener; without effect for one that was not added. */
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A cheap `AbortController` for use in every call: it creates no event objects, which cost more than a short call. */
export class Cancellation implements CancelSignal {
  #isAborted = false;
  readonly #listeners = new Set<() => void>();

  get aborted(): boolean {
    return this.#isAborted;
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.#isAborted) this.#listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.delete(listener);
  }

  /** Calls all listeners, once. */
  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }
}
