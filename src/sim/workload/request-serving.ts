import type { Clock } from '../../base/environment/clock.js';
import type { CheckedStore } from '../check/checked-store.js';

export interface RequestServingParts {
  readonly store: CheckedStore;
  readonly clock: Pick<Clock, 'after'>;
  /** Milliseconds that computing a missing page takes. */
  readonly computeMsPerPage: number;
  /** Pages of one call. */
  readonly batchPages: number;
}

/** Outcome of one request, in pages. */
export interface RequestOutcome {
  readonly asked: number;
  /** Pages read before the first miss. */
  readonly found: number;
}

/**
 * Does what a serving program does with each request: looks up the longest prefix in the cluster, reads it, computes
 * the rest and sets it.
 */
export class RequestServing {
  readonly #parts: RequestServingParts;

  constructor(parts: RequestServingParts) {
    this.#parts = parts;
  }

  /** Serves one request; its keys are in the order of the prefix. */
  async serve(keys: readonly string[]): Promise<RequestOutcome> {
    const { store, batchPages, computeMsPerPage } = this.#parts;
    const existing = await store.exists(keys);
    const found = await this.#readPrefix(keys, existing);
    await this.#pass(computeMsPerPage * (keys.length - found));
    for (let from = found; from < keys.length; from += batchPages) {
      await store.setComputed(keys.slice(from, from + batchPages));
    }
    return { asked: keys.length, found };
  }

  /** The number of pages read before the first that did not come. */
  async #readPrefix(keys: readonly string[], existing: number): Promise<number> {
    const { store, batchPages } = this.#parts;
    for (let from = 0; from < existing; from += batchPages) {
      const read = await store.getComputed(keys.slice(from, Math.min(from + batchPages, existing)));
      const firstMiss = read.indexOf(false);
      if (firstMiss >= 0) return from + firstMiss;
    }
    return existing;
  }

  async #pass(ms: number): Promise<void> {
    if (ms > 0) await new Promise<void>((resolve) => this.#parts.clock.after(ms, resolve));
  }
}
