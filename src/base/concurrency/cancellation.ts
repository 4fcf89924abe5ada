import { setMaxListeners } from 'node:events';
import type { Clock } from '../environment/clock.js';

/**
 * Calls `abort` when the signal, which is not aborted yet, is aborted. Returns a function that removes the listener;
 * calling it later is harmless.
 */
export function onAbort(signal: CancelSignal, abort: () => void): () => void {
  // One call listens once for each node that it asks, and Node takes more than ten listeners for a leak.
  if (signal instanceof AbortSignal) setMaxListeners(0, signal);
  signal.addEventListener('abort', abort, { once: true });
  return () => signal.removeEventListener('abort', abort);
}

/**
 * Settles as `work` does, or resolves with undefined as soon as the signal is aborted; `work` then continues and its
 * result or error is ignored. Leaves no listener on the signal.
 */
export function unlessAborted<T>(work: Promise<T>, signal: CancelSignal | undefined): Promise<T | undefined> {
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

/** Calls `use` with a signal that is aborted when one of these is. Leaves no listeners on them. */
export async function untilAny<T>(
  signals: readonly (CancelSignal | undefined)[],
  use: (signal: CancelSignal) => Promise<T>,
): Promise<T> {
  const ends = new Cancellation();
  const stops: (() => void)[] = [];
  for (const signal of signals) {
    if (signal?.aborted === true) ends.abort(signal.reason);
    else if (signal !== undefined) stops.push(onAbort(signal, () => ends.abort(signal.reason)));
  }
  try {
    return await use(ends);
  } finally {
    for (const stop of stops) stop();
  }
}

/** Throws the signal's reason if it is aborted. */
export function checkNotAborted(signal: CancelSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason;
}

/**
 * Resolves after `ms`, or as soon as the signal is aborted. The wait keeps the process alive only if `keepAlive` is true.
 */
export async function pause(
  clock: Clock,
  ms: number,
  signal: CancelSignal | undefined,
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
  /** Why the result is no longer wanted. */
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once?: boolean }): void;
  /** Removes a listener; without effect for one that was not added. */
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A cheap `AbortController` for use in every call: it creates no event objects, which cost more than a short call. */
export class Cancellation implements CancelSignal {
  #isAborted = false;
  #reason: unknown;
  #listeners: Set<() => void> | undefined;

  get aborted(): boolean {
    return this.#isAborted;
  }

  get reason(): unknown {
    if (this.#isAborted) this.#reason ??= new DOMException('the call was aborted', 'AbortError');
    return this.#reason;
  }

  /** Adds a listener. It is called at most once. */
  addEventListener(_type: 'abort', listener: () => void): void {
    if (this.#isAborted) return;
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners?.delete(listener);
  }

  /** Calls all listeners, once. */
  abort(reason?: unknown): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason;
    const listeners = this.#listeners ?? [];
    this.#listeners = undefined;
    for (const listener of listeners) listener();
  }
}
