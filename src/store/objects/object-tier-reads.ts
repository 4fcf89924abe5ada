import type { Clock } from '../../base/environment/clock.js';
import type { Metrics } from '../../metrics/metrics.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { DataLocation } from '../../types.js';
import type { CallerPage } from '../call/caller-page.js';
import { indicesWhere } from '../call/indices.js';
import type { ReadingCall } from '../disk/own-disk-reads.js';
import type { PageAnnouncements } from './object-search.js';
import type { ObjectTier } from './object-tier.js';

export interface ObjectTierReadsParts {
  readonly objects: Pick<ObjectTier, 'bring'>;
  readonly pool: Pick<PublishedPool, 'lookupBatch' | 'copyOut'>;
  readonly statements: Pick<PageAnnouncements, 'locationsOf'>;
  readonly verifyReads: boolean;
  readonly clock: Clock;
  readonly metrics: Metrics;
}

/** Reads pages that no other tier has from the object store into the caller's memory, by way of the own pool. */
export class ObjectTierReads {
  hits = 0;
  readBytes = 0;
  readonly #parts: ObjectTierReadsParts;

  constructor(parts: ObjectTierReadsParts) {
    this.#parts = parts;
  }

  /** Reads those of the wanted pages that have not been read yet. */
  async read({ keys, pages, results, signal }: ReadingCall, wanted: readonly number[]): Promise<void> {
    const left = wanted.filter((i) => !results[i]);
    if (left.length === 0 || signal?.aborted) return;
    const { objects, clock, metrics } = this.#parts;
    const startMs = clock.nowMs();
    let [hits, bytes] = [0, 0];
    await objects.bring({
      keys: left.map((i) => keys[i] as string),
      lengths: left.map((i) => (pages[i] as CallerPage).length),
      signal,
      use: async (positions) => {
        const indices = positions.map((position) => left[position] as number);
        for (const i of await this.#copy(keys, pages, indices)) {
          results[i] = true;
          hits++;
          bytes += (pages[i] as CallerPage).length;
        }
      },
    });
    this.hits += hits;
    this.readBytes += bytes;
    if (hits > 0) metrics.recordReads('object', { hits, misses: 0, bytes, seconds: (clock.nowMs() - startMs) / 1000 });
  }

  /** Brings pages without a location into the pool, where they have one then. */
  async locate(
    keys: readonly string[],
    located: readonly (DataLocation | null)[],
    signal: AbortSignal | undefined,
  ): Promise<(DataLocation | null)[]> {
    const missing = indicesWhere(keys, (_, i) => (located[i] ?? null) === null);
    const locations = [...located];
    if (missing.length === 0 || signal?.aborted) return locations;
    const { objects, statements } = this.#parts;
    const wanted = missing.map((i) => keys[i] as string);
    await objects.bring({
      keys: wanted,
      signal,
      use: async (positions) => {
        const found = statements.locationsOf(positions.map((position) => wanted[position] as string));
        positions.forEach((position, j) => {
          locations[missing[position] as number] = found[j] ?? null;
        });
      },
    });
    return locations;
  }

  /** Copies pages out of the pool; resolves with the indices of those that were there. */
  async #copy(
    keys: readonly string[],
    pages: readonly CallerPage[],
    indices: readonly number[],
  ): Promise<readonly number[]> {
    const { pool, verifyReads } = this.#parts;
    const wanted = indices.map((i) => keys[i] as string);
    const targets = indices.map((i) => pages[i] as CallerPage);
    const outcomes = await pool.copyOut(wanted, targets, pool.lookupBatch(wanted), verifyReads);
    return indices.filter((_, j) => outcomes[j] === 'read');
  }
}
