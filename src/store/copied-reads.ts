import type { Clock } from '../base/environment/clock.js';
import { COPY_ATTEMPTS_MAX_COUNT, READ_AGAIN_WITHIN_MS } from '../base/limits.js';
import { HostRegion } from '../memory/host-region.js';
import { holdInPlace } from '../memory/native-memory.js';
import type { DataLocation } from '../types.js';
import { type MissReason, Reasons } from './call/call-options.js';
import { type CallerPage, RegionPage } from './call/caller-page.js';
import { indicesWhere } from './call/key-steps.js';
import type { CallOptions } from './call/request-calls.js';

/** Reads pages whose locations have been looked up before. */
export interface LocatedReads {
  readonly isClosed: boolean;
  /** Locates pages on this node or in the directory; null: neither has the page, so it is a miss. */
  locate(keys: readonly string[], options: CallOptions): Promise<(DataLocation | null)[]>;
  /** Reads pages that have just been located, by index. */
  get(
    keys: readonly string[],
    pages: readonly CallerPage[],
    options: CallOptions,
    located: (index: number) => DataLocation | undefined,
  ): Promise<boolean[]>;
}

/**
 * Whether memory for a page of this many bytes may be taken; if so, it counts as taken. Called again for each further
 * attempt that finds the page.
 */
export type MayTake = (bytes: number) => boolean;

/** Reads pages of unknown length into newly allocated memory. */
export class CopiedReads {
  readonly #reads: LocatedReads;
  readonly #clock: Clock;

  constructor(reads: LocatedReads, clock: Clock) {
    this.#reads = reads;
    this.#clock = clock;
  }

  /** Reads a copy of a page; see `PageStore.getCopyWithin`. */
  async get(
    key: string,
    { mayTake, ...options }: CallOptions & { readonly mayTake: MayTake },
  ): Promise<Uint8Array | 'too-large' | null> {
    const [reads, clock] = [this.#reads, this.#clock];
    const { signal } = options;
    const untilMs = clock.nowMs() + READ_AGAIN_WITHIN_MS;
    let before: DataLocation | undefined;
    for (let attempt = 0; attempt < COPY_ATTEMPTS_MAX_COUNT && clock.nowMs() <= untilMs; attempt++) {
      const [location = null] = await reads.locate([key], options);
      if (location === null || reads.isClosed || (before && isSameStatement(location, before))) return null;
      if (!mayTake(location.length)) return 'too-large';
      const [copy = null] = await this.#readCopies([key], [location], options);
      if (copy !== null) return copy;
      if (reads.isClosed || signal?.aborted) return null;
      before = location;
    }
    return null;
  }

  /** Reads copies of pages; see `PageStore.getCopies`. */
  async getMany(keys: readonly string[], options: CallOptions): Promise<(Uint8Array | null)[]> {
    return this.#readLocated(keys, await this.#reads.locate(keys, options), options);
  }

  /** Reads copies of pages that have just been located. */
  async #readLocated(
    keys: readonly string[],
    locations: readonly (DataLocation | null)[],
    options: CallOptions,
  ): Promise<(Uint8Array | null)[]> {
    const reads = this.#reads;
    const { reasons, signal } = options;
    const copies = new Array<Uint8Array | null>(keys.length).fill(null);
    const found = indicesWhere(locations, (location) => location !== null);
    if (found.length === 0 || reads.isClosed) return copies;
    const wanted = found.map((i) => keys[i] as string);
    // This attempt has other indices, and a later attempt finds the reasons again.
    const first = await this.#readCopies(
      wanted,
      found.map((i) => locations[i] as DataLocation),
      { ...options, reasons: undefined },
    );
    for (const [j, i] of found.entries()) {
      copies[i] = first[j] ?? null;
      if (copies[i] !== null || reads.isClosed || signal?.aborted) continue;
      // The page was set again meanwhile and may have another length, or it is not where the directory said.
      const why = reasons && new Reasons<MissReason>();
      const again = await this.get(keys[i] as string, { ...options, reasons: why, mayTake: () => true });
      copies[i] = again === 'too-large' ? null : again;
      const reason = why?.of(0);
      if (reason !== undefined) reasons?.note(i, reason);
    }
    return copies;
  }

  /** Reads pages from these locations; null for each page that was not read. */
  async #readCopies(
    keys: readonly string[],
    locations: readonly DataLocation[],
    options: CallOptions,
  ): Promise<(Uint8Array | null)[]> {
    const copies = locations.map(({ length }) => new Uint8Array(length));
    const release = holdInPlace(copies);
    const regions = copies.map((copy) => HostRegion.wrap(copy));
    const pages = regions.map((region) => new RegionPage(region, region.start, region.length));
    try {
      const isRead = await this.#reads.get(keys, pages, options, (index) => locations[index]);
      return copies.map((copy, i) => (isRead[i] === true ? copy : null));
    } finally {
      release();
      for (const region of regions) region.free();
    }
  }
}

/** Whether two locations come from the same statement, so that the page was not announced again in between. */
function isSameStatement(a: DataLocation, b: DataLocation): boolean {
  return a.nodeId === b.nodeId && a.version === b.version && a.generation === b.generation && a.length === b.length;
}
