import type { Clock } from '../base/environment/clock.js';
import { JOINED_READ_MAX_BYTES, JOINED_READ_MAX_PAGES, JOINED_READS_MAX_PAGES } from '../base/limits.js';
import type { CallerPage } from './page-store.js';
import type { RemoteRead, RemoteReadOptions, RemoteReads } from './remote-reads.js';

export interface JoinedReadsParts {
  readonly reads: Pick<RemoteReads, 'read'>;
  /** The first directory owner of each key, as a number that is the same for the same owner. */
  readonly firstOwners: (keys: readonly string[]) => Uint32Array;
  readonly clock: Clock;
}

/** A call that waits for the end of the turn, or is being read together with others. */
interface JoinedCall {
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  readonly wanted: readonly number[];
  readonly onOwn: (indices: readonly number[]) => void;
  readonly locationOf: RemoteReadOptions['locationOf'];
  readonly reads: RemoteRead[];
  /** Indices of pages of which nothing is known yet. */
  readonly open: Set<number>;
  resolve(reads: RemoteRead[]): void;
  reject(error: unknown): void;
}

/**
 * Reads what small calls want within one turn of the event loop together: one lookup for each directory owner, one read for each node that has the pages.
 *
 * Calls are joined whose first keys have the same directory owner, for one attempt. Each ends as soon as all of its own pages are read, are on the own
 * disk, or are misses; with pages that could not be read where they were said to be it goes on alone. So a node that does not answer holds up those who ask it,
 * and misses of those whose other directory owners are the same.
 */
export class JoinedReads {
  readonly #parts: JoinedReadsParts;
  #waiting: JoinedCall[] = [];

  constructor(parts: JoinedReadsParts) {
    this.#parts = parts;
  }

  /** See `RemoteReads.read`. Calls for much, and those that may be aborted, are read alone. */
  read(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    { onOwn = () => {}, locationOf, signal }: RemoteReadOptions,
  ): Promise<RemoteRead[]> {
    const bytes = wanted.reduce((sum, i) => sum + (pages[i] as CallerPage).length, 0);
    const isSmall = wanted.length > 0 && wanted.length <= JOINED_READ_MAX_PAGES && bytes <= JOINED_READ_MAX_BYTES;
    if (!isSmall || signal !== undefined) {
      return this.#parts.reads.read(keys, pages, wanted, { onOwn, locationOf, signal });
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ keys, pages, wanted, onOwn, locationOf, reads: [], open: new Set(wanted), resolve, reject });
      if (this.#waiting.length === 1) this.#parts.clock.soon(() => this.#readWaiting());
    });
  }

  #readWaiting(): void {
    const calls = this.#waiting;
    this.#waiting = [];
    try {
      for (const group of this.#groups(calls)) {
        if (group.length === 1) this.#readAlone(group[0] as JoinedCall);
        else void this.#readTogether(group);
      }
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
  }

  /** Those that are read together: of one owner, and no more than JOINED_READS_MAX_PAGES pages. */
  #groups(calls: readonly JoinedCall[]): JoinedCall[][] {
    if (calls.length === 1) return [[...calls]];
    const owners = this.#parts.firstOwners(calls.map(({ keys, wanted }) => keys[wanted[0] as number] as string));
    const groups: JoinedCall[][] = [];
    const latest = new Map<number, { readonly group: JoinedCall[]; pages: number }>();
    calls.forEach((call, i) => {
      const owner = owners[i] as number;
      let last = latest.get(owner);
      if (last === undefined || last.pages + call.wanted.length > JOINED_READS_MAX_PAGES) {
        last = { group: [], pages: 0 };
        latest.set(owner, last);
        groups.push(last.group);
      }
      last.group.push(call);
      last.pages += call.wanted.length;
    });
    return groups;
  }

  /** Reads those pages of a call, all that it wants when left out, and ends it. */
  #readAlone(call: JoinedCall, wanted = call.wanted): void {
    const { keys, pages, onOwn, locationOf, reads } = call;
    const isFirst = wanted === call.wanted;
    this.#parts.reads
      .read(keys, pages, wanted, isFirst ? { onOwn, locationOf } : { onOwn })
      .then((further) => call.resolve([...reads, ...further]), call.reject);
  }

  /** Never rejects. */
  async #readTogether(calls: readonly JoinedCall[]): Promise<void> {
    const keys: string[] = [];
    const pages: CallerPage[] = [];
    /** By index in `keys`: whose it is, and its index there. */
    const callOf: JoinedCall[] = [];
    const indexOf: number[] = [];
    for (const call of calls) {
      for (const i of call.wanted) {
        keys.push(call.keys[i] as string);
        pages.push(call.pages[i] as CallerPage);
        callOf.push(call);
        indexOf.push(i);
      }
    }
    const settle = (j: number): void => {
      const call = callOf[j] as JoinedCall;
      if (call.open.delete(indexOf[j] as number) && call.open.size === 0) this.#end(call);
    };
    const onOwn = (indices: readonly number[]): void => {
      for (const j of indices) {
        (callOf[j] as JoinedCall).onOwn([indexOf[j] as number]);
        settle(j);
      }
    };
    const locationOf = (j: number) => (callOf[j] as JoinedCall).locationOf?.(indexOf[j] as number);
    const onTried = (read: RemoteRead): void => {
      (callOf[read.index] as JoinedCall).reads.push({ ...read, index: indexOf[read.index] as number });
      settle(read.index);
    };
    const onSearched = (found: ReadonlySet<number>): void => {
      for (let j = 0; j < keys.length; j++) if (!found.has(j)) settle(j);
    };
    const all = keys.map((_, j) => j);
    try {
      await this.#parts.reads.read(keys, pages, all, { onOwn, locationOf, round: { onTried, onSearched } });
      for (let j = 0; j < keys.length; j++) settle(j);
    } catch {
      // One that fails by itself is told so; the others are none of its business.
      for (const call of calls) if (call.open.size > 0) this.#readAlone(call, [...call.open]);
    }
  }

  /** All of its pages have been looked for. */
  #end(call: JoinedCall): void {
    const failed = call.reads.filter(({ isRead }) => !isRead).map(({ index }) => index);
    if (failed.length === 0) call.resolve(call.reads);
    else this.#readAlone(call, failed);
  }
}
