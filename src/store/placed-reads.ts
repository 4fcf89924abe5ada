import type { CallerPage } from './call/caller-page.js';
import type { CallOptions } from './call/request-calls.js';
import type { CopiedReadsParts } from './copied-reads.js';

/** Memory for pages whose lengths are not known beforehand. */
export interface PageRoom {
  /** Bytes for all pages together. */
  readonly length: number;
  /** The memory of a page from `offset` on. */
  readonly pageAt: (offset: number, length: number) => CallerPage;
}

/** A page that was read to `offset` in its room; undefined: it is not there, because it did not fit. */
export interface PlacedPage {
  readonly offset: number | undefined;
  /** Bytes of the page. */
  readonly length: number;
}

export interface PlacedReadsParts extends Omit<CopiedReadsParts, 'clock'> {
  /** Reads a copy of a page that was set anew since it was located; null: a miss. */
  readonly readAgain: (key: string, options: CallOptions) => Promise<Uint8Array | 'too-large' | null>;
}

/** Reads pages of unknown length, one behind the other, into memory of the caller. */
export class PlacedReads {
  readonly #parts: PlacedReadsParts;

  constructor(parts: PlacedReadsParts) {
    this.#parts = parts;
  }

  /** See `PageStore.getPlaced`. */
  async get(keys: readonly string[], room: PageRoom, options: CallOptions): Promise<(PlacedPage | null)[]> {
    const locations = await this.#parts.locate(keys, options);
    const results = new Array<PlacedPage | null>(keys.length).fill(null);
    if (this.#parts.isClosed()) return results;
    const placed: number[] = [];
    let usedBytes = 0;
    for (const [i, location] of locations.entries()) {
      if (location === null) continue;
      const { length } = location;
      const isPlaced = usedBytes + length <= room.length;
      results[i] = { offset: isPlaced ? usedBytes : undefined, length };
      if (!isPlaced) continue;
      placed.push(i);
      usedBytes += length;
    }
    if (placed.length === 0) return results;
    const pages = placed.map((i) => {
      const { offset, length } = results[i] as PlacedPage;
      return room.pageAt(offset as number, length);
    });
    const isRead = await this.#parts.read(
      placed.map((i) => keys[i] as string),
      pages,
      options,
      (j) => locations[placed[j] as number] ?? undefined,
    );
    for (const [j, i] of placed.entries()) {
      if (isRead[j] === true) continue;
      results[i] = await this.#again(keys[i] as string, results[i] as PlacedPage, pages[j] as CallerPage, options);
    }
    return results;
  }

  /** Reads a page that was set anew meanwhile, and may have another length, to the place that it was given. */
  async #again(key: string, place: PlacedPage, page: CallerPage, options: CallOptions): Promise<PlacedPage | null> {
    const { isClosed, readAgain } = this.#parts;
    if (isClosed() || options.signal?.aborted) return null;
    const copy = await readAgain(key, { ...options, continues: true });
    if (!(copy instanceof Uint8Array) || isClosed() || options.signal?.aborted) return null;
    if (copy.length > place.length) return { offset: undefined, length: copy.length };
    let at = 0;
    for (const view of page.views) {
      const part = copy.subarray(at, at + view.length);
      view.set(part);
      at += part.length;
    }
    return { offset: place.offset, length: copy.length };
  }
}
