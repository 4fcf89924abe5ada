import type { DataLocation } from '../types.js';
import type { CallerPage } from './call/caller-page.js';
import { indicesWhere } from './call/indices.js';
import type { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';
import type { ObjectTier } from './objects/object-tier.js';
import type { ReadingCall } from './own-disk-reads.js';

/** Reads pages that no other tier has from the object store into the caller's memory, by way of the own pool. */
export class ObjectTierReads {
  hits = 0;
  readBytes = 0;
  readonly #ground: StoreGround;
  readonly #objects: ObjectTier;
  readonly #statements: PageStatements;

  constructor(ground: StoreGround, { objects, statements }: { objects: ObjectTier; statements: PageStatements }) {
    this.#ground = ground;
    this.#objects = objects;
    this.#statements = statements;
  }

  /** Reads those of the wanted pages that have not been read yet. */
  async read({ keys, pages, results, signal }: ReadingCall, wanted: readonly number[]): Promise<void> {
    const left = wanted.filter((i) => !results[i]);
    if (left.length === 0 || signal?.aborted) return;
    const { clock, metrics } = this.#ground;
    const startMs = clock.nowMs();
    let [hits, bytes] = [0, 0];
    await this.#objects.bring({
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
    const wanted = missing.map((i) => keys[i] as string);
    await this.#objects.bring({
      keys: wanted,
      signal,
      use: async (positions) => {
        const found = this.#statements.locationsOf(positions.map((position) => wanted[position] as string));
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
    const { pool, config } = this.#ground;
    const wanted = indices.map((i) => keys[i] as string);
    const targets = indices.map((i) => pages[i] as CallerPage);
    const outcomes = await pool.copyOut(wanted, targets, pool.lookupBatch(wanted), config.verifyReads);
    return indices.filter((_, j) => outcomes[j] === 'read');
  }
}
