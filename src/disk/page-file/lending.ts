import { onAbort } from '../../base/concurrency/abort.js';

/** Memory of a caller that is used now and then while something slow is waited for; the caller gets it back when the signal is aborted. */
export class Lending {
  readonly #signal: AbortSignal | undefined;
  #use: Promise<unknown> = Promise.resolve();

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }

  /** Throws the signal's reason if the caller has the memory back already. */
  check(): void {
    this.#signal?.throwIfAborted();
  }

  /** Uses the memory. Rejects with the signal's reason if the caller has it back already. */
  async during<T>(use: () => Promise<T>): Promise<T> {
    this.check();
    const using = use();
    this.#use = using.catch(() => {});
    return using;
  }

  /** Settles as `work` does, or rejects with the signal's reason as soon as it is aborted and the memory is not in use. */
  until<T>(work: Promise<T>): Promise<T> {
    const signal = this.#signal;
    if (signal === undefined) return work;
    return new Promise((resolve, reject) => {
      const giveBack = (): void => void this.#use.then(() => reject(signal.reason));
      const stop = signal.aborted ? () => {} : onAbort(signal, giveBack);
      if (signal.aborted) giveBack();
      work.then(resolve, reject).finally(stop);
    });
  }
}
