import type { Clock } from '../base/environment/clock.js';
import type { DataLocation } from '../types.js';
import { inTime } from './call/call-options.js';
import { type CallerPage, fillPage } from './call/caller-page.js';
import type { CallOptions } from './call/request-calls.js';
import type { CopiedReads, LocatedReads } from './copied-reads.js';

/** What reads of found pages need. */
export interface FoundReads {
  readonly reads: LocatedReads;
  /** Reads a page that was set again after it was located. */
  readonly copied: CopiedReads;
  readonly clock: Clock;
  /** How long a location may be used without another lookup. */
  readonly freshMs: number;
}

/** Pages that were looked up together; they are read part by part, into memory of the caller. */
export class FoundPages {
  readonly #keys: readonly string[];
  readonly #locations: readonly (DataLocation | null)[];
  readonly #parts: FoundReads;
  readonly #freshUntilMs: number;

  constructor(keys: readonly string[], locations: readonly (DataLocation | null)[], parts: FoundReads) {
    this.#keys = keys;
    this.#locations = locations;
    this.#parts = parts;
    this.#freshUntilMs = parts.clock.nowMs() + parts.freshMs;
  }

  /** Length of a page; null: a miss. */
  lengthOf(index: number): number | null {
    return this.#locations[index]?.length ?? null;
  }

  /**
   * Reads the pages with these indices, each into memory of the length that was found. The result is the length of the
   * page, which may have been set again; null: a miss. A page that is longer now is not read. The memory is in use until
   * the promise has resolved.
   */
  async read(
    indices: readonly number[],
    pages: readonly CallerPage[],
    options: CallOptions,
  ): Promise<(number | null)[]> {
    const { reads, clock } = this.#parts;
    if (indices.length === 0 || reads.isClosed) return indices.map(() => null);
    return inTime(clock, options, async (call) => {
      const keys = indices.map((i) => this.#keys[i] as string);
      const isFresh = clock.nowMs() <= this.#freshUntilMs;
      const located = (j: number) => (isFresh ? (this.#locations[indices[j] as number] ?? undefined) : undefined);
      const isRead = await reads.get(keys, pages, call, located);
      const lengths: (number | null)[] = [];
      for (const [j, page] of pages.entries()) {
        lengths.push(isRead[j] === true ? page.length : await this.#again(keys[j] as string, page, call));
      }
      return lengths;
    });
  }

  /** Reads a page that was set again meanwhile, perhaps with another length. */
  async #again(key: string, page: CallerPage, options: CallOptions): Promise<number | null> {
    const { reads, copied } = this.#parts;
    if (reads.isClosed || options.signal?.aborted) return null;
    let length = 0;
    const mayTake = (bytes: number): boolean => {
      length = bytes;
      return bytes <= page.length;
    };
    const copy = await copied.get(key, { ...options, continues: true, mayTake });
    if (copy === 'too-large') return length;
    if (copy === null || reads.isClosed || options.signal?.aborted) return null;
    fillPage(page, copy);
    return copy.length;
  }
}

/** Memory for pages whose lengths are not known beforehand. */
export interface PageRoom {
  /** Bytes for all pages together. */
  readonly length: number;
  /** The memory of a page from `offset` on. */
  readonly pageAt: (offset: number, length: number) => CallerPage;
}

/** Place of a page in the room; undefined offset: the page did not fit and was not read. */
export interface PlacedPage {
  readonly offset: number | undefined;
  /** Bytes of the page. */
  readonly length: number;
}

/** Reads found pages one after the other into a room; see `PageStore.getPlaced`. */
export async function readPlaced(
  found: FoundPages,
  count: number,
  { room, options }: { readonly room: PageRoom; readonly options: CallOptions },
): Promise<(PlacedPage | null)[]> {
  const results = new Array<PlacedPage | null>(count).fill(null);
  const placed: number[] = [];
  const pages: CallerPage[] = [];
  let usedBytes = 0;
  for (let i = 0; i < count; i++) {
    const length = found.lengthOf(i);
    if (length === null) continue;
    const isPlaced = usedBytes + length <= room.length;
    results[i] = { offset: isPlaced ? usedBytes : undefined, length };
    if (!isPlaced) continue;
    placed.push(i);
    pages.push(room.pageAt(usedBytes, length));
    usedBytes += length;
  }
  const lengths = await found.read(placed, pages, options);
  for (const [j, i] of placed.entries()) {
    const length = lengths[j] ?? null;
    const { offset, length: roomBytes } = results[i] as PlacedPage;
    results[i] = length === null ? null : { offset: length > roomBytes ? undefined : offset, length };
  }
  return results;
}
