import { type CancelSignal, unlessAborted } from '../base/concurrency/cancellation.js';
import type { Keys } from '../core/index.js';
import type { DataLocation } from '../types.js';
import type { MissReason, ReasonLog, Reasons } from './call/call-options.js';
import type { CallerPage } from './call/caller-page.js';
import { indicesWhere } from './call/key-steps.js';
import type { RequestCall } from './call/request-calls.js';
import type { DiskTier } from './disk/disk-tier.js';
import type { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';
import type { ObjectTier } from './objects/object-tier.js';

/** A call that reads pages. */
export interface ReadingCall {
  /** The call's keys as they were passed; they may already be encoded. */
  readonly asked?: Keys | undefined;
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  /** True for each page that was read. */
  readonly results: boolean[];
  readonly request: RequestCall;
  /** Locations that the directory has just returned, by index. */
  readonly located?: ((index: number) => DataLocation | undefined) | undefined;
  readonly signal?: CancelSignal | undefined;
  /** Collects the reasons of misses, if the caller wants them. */
  readonly reasons?: Reasons<MissReason> | undefined;
}

/** Reads pages from this node's disk into the caller's memory. */
export class OwnDiskReads {
  hits = 0;
  readBytes = 0;
  readonly #ground: StoreGround;
  readonly #disk: DiskTier;
  readonly #statements: PageStatements;
  readonly #missLog: ReasonLog<MissReason>;
  #closed = false;

  constructor(
    ground: StoreGround,
    { disk, statements, missLog }: { disk: DiskTier; statements: PageStatements; missLog: ReasonLog<MissReason> },
  ) {
    this.#ground = ground;
    this.#disk = disk;
    this.#statements = statements;
    this.#missLog = missLog;
  }

  /** Stops: reads in progress finish, no new ones begin. */
  close(): void {
    this.#closed = true;
  }

  /**
   * Reads the pages with these indices that the disk has and that are good, as far as can be known. Soon after the
   * call's signal is aborted, nothing touches the pages any more, whatever the disk does.
   */
  async read(
    { keys, pages, results, request, signal, reasons }: ReadingCall,
    wanted: readonly number[],
  ): Promise<void> {
    const { clock, metrics } = this.#ground;
    const disk = this.#disk;
    if (signal?.aborted) return;
    const isGood = await unlessAborted(this.#statements.confirm(wanted.map((i) => keys[i] as string)), signal);
    if (isGood === undefined || signal?.aborted || this.#closed) return;
    const startMs = clock.nowMs();
    const good = wanted.filter((_, j) => isGood[j]);
    const isHere = disk.hasBatch(good.map((i) => keys[i] as string));
    const here = good.filter((_, j) => isHere[j] === 1);
    if (here.length === 0) return;
    const outcomes = await disk.readPages(
      here.map((i) => keys[i] as string),
      here.map((i) => pages[i] as CallerPage),
      { request: request.disk.next(), signal },
    );
    let hits = 0;
    let bytes = 0;
    outcomes.forEach((outcome, j) => {
      const i = here[j] as number;
      if (outcome === 'damaged') metrics.count('meshcache_checksum_failures_total', 1, { source: 'disk' });
      if (outcome === 'damaged' || outcome === 'wrong-length') {
        const reason = outcome === 'damaged' ? 'checksum' : 'other_size';
        reasons?.note(i, reason);
        this.#missLog.note(reason);
      }
      if (outcome !== 'read') return;
      results[i] = true;
      hits++;
      bytes += (pages[i] as CallerPage).length;
    });
    this.hits += hits;
    this.readBytes += bytes;
    metrics.recordReads('disk', { hits, misses: 0, bytes, seconds: (clock.nowMs() - startMs) / 1000 });
  }
}

/** Reads pages that no other tier has from the object store into the caller's memory, by way of the pool. */
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

  /** Reads those wanted pages that have not been read yet. */
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

  /** Brings pages without a location into the pool, where they then have one. */
  async locate(
    keys: readonly string[],
    located: readonly (DataLocation | null)[],
    signal: CancelSignal | undefined,
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
