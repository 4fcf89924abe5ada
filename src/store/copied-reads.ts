import type { Clock } from '../base/environment/clock.js';
import { COPY_ATTEMPTS_MAX_COUNT, READ_AGAIN_WITHIN_MS } from '../base/limits.js';
import { HostRegion } from '../memory/host-region.js';
import type { DataLocation } from '../types.js';
import type { CallerPage } from './call/caller-page.js';
import type { CallOptions } from './call/request-calls.js';

export interface CopiedReadsParts {
  /** Locates a page on this node or in the directory; null: neither has it, which counts as a miss. */
  readonly locate: (key: string, signal: AbortSignal | undefined) => Promise<DataLocation | null>;
  /** Reads the page that has just been located. */
  readonly read: (key: string, page: CallerPage, options: CallOptions, located: DataLocation) => Promise<boolean>;
  readonly isClosed: () => boolean;
  readonly clock: Clock;
}

/** Reads pages of unknown length into newly allocated memory. */
export class CopiedReads {
  readonly #parts: CopiedReadsParts;

  constructor(parts: CopiedReadsParts) {
    this.#parts = parts;
  }

  /** Reads a copy of a page; see `PageStore.getCopyWithin`. */
  async get(
    key: string,
    { maxBytes, ...options }: CallOptions & { readonly maxBytes: number },
  ): Promise<Uint8Array | 'too-large' | null> {
    const { locate, read, isClosed, clock } = this.#parts;
    const { signal } = options;
    const untilMs = clock.nowMs() + READ_AGAIN_WITHIN_MS;
    let before: DataLocation | undefined;
    for (let attempt = 0; attempt < COPY_ATTEMPTS_MAX_COUNT && clock.nowMs() <= untilMs; attempt++) {
      const location = await locate(key, signal);
      if (location === null || isClosed() || (before && isSameStatement(location, before))) return null;
      if (location.length > maxBytes) return 'too-large';
      const copy = new Uint8Array(location.length);
      const region = HostRegion.wrap(copy);
      const page = { ranges: [{ addr: region.addr, length: copy.length }], views: region.views(), length: copy.length };
      const isRead = await read(key, page, options, location).finally(() => region.free());
      if (isRead) return copy;
      if (isClosed() || signal?.aborted) return null;
      before = location;
    }
    return null;
  }
}

/** Whether two locations come from the same statement, so that the page was not announced anew in between. */
function isSameStatement(a: DataLocation, b: DataLocation): boolean {
  return a.nodeId === b.nodeId && a.version === b.version && a.generation === b.generation && a.length === b.length;
}
