import type { Clock } from '../base/clock.js';
import { JOINED_READ_MAX_PAGES } from '../base/limits.js';
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
  /** Pages that have not been read. */
  left: number;
  resolve(reads: RemoteRead[]): void;
  reject(error: unknown): void;
}

/**
 * Reads what small calls want within one turn of the event loop together: one lookup for each directory owner, one read for each node that has the pages.
 *
 * Only calls whose first keys have the same directory owner are joined, and each ends as soon as its own pages are there: a node that does not answer
 * holds up nobody who does not ask it. A miss is known when the joined read is over.
 */
export class JoinedReads {
  readonly #parts: JoinedReadsParts;
  #waiting: JoinedCall[] = [];

  constructor(parts: JoinedReadsParts) {
    this.#parts = parts;
  }

  /** See `RemoteReads.read`. Calls of many pages, and those that may be aborted, are read alone. */
  read(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    { onOwn = () => {}, locationOf, signal }: RemoteReadOptions,
  ): Promise<RemoteRead[]> {
    if (signal !== undefined || wanted.length > JOINED_READ_MAX_PAGES) {
      return this.#parts.reads.read(keys, pages, wanted, { onOwn, locationOf, signal });
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ keys, pages, wanted, onOwn, locationOf, reads: [], left: wanted.length, resolve, reject });
      if (this.#waiting.length === 1) this.#parts.clock.soon(() => this.#readWaiting());
    });
  }

  #readWaiting(): void {
    const calls = this.#waiting;
    this.#waiting = [];
    if (calls.length === 1) {
      this.#readAlone(calls[0] as JoinedCall);
      return;
    }
    const owners = this.#parts.firstOwners(calls.map(({ keys, wanted }) => keys[wanted[0] as number] as string));
    const groups = new Map<number, JoinedCall[]>();
    calls.forEach((call, i) => {
      const owner = owners[i] as number;
      const group = groups.get(owner);
      if (group === undefined) groups.set(owner, [call]);
      else group.push(call);
    });
    for (const group of groups.values()) {
      if (group.length === 1) this.#readAlone(group[0] as JoinedCall);
      else void this.#readTogether(group);
    }
  }

  #readAlone({ keys, pages, wanted, onOwn, locationOf, resolve, reject }: JoinedCall): void {
    this.#parts.reads.read(keys, pages, wanted, { onOwn, locationOf }).then(resolve, reject);
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
    const onOwn = (indices: readonly number[]): void => {
      for (const j of indices) (callOf[j] as JoinedCall).onOwn([indexOf[j] as number]);
    };
    const locationOf = (j: number) => (callOf[j] as JoinedCall).locationOf?.(indexOf[j] as number);
    const note = (read: RemoteRead): JoinedCall => {
      const call = callOf[read.index] as JoinedCall;
      call.reads.push({ ...read, index: indexOf[read.index] as number });
      return call;
    };
    const known = new Uint8Array(keys.length);
    const onRead = (read: RemoteRead): void => {
      known[read.index] = 1;
      const call = note(read);
      if (--call.left === 0) call.resolve(call.reads);
    };
    const all = keys.map((_, j) => j);
    try {
      const reads = await this.#parts.reads.read(keys, pages, all, { onOwn, locationOf, onRead });
      for (const read of reads) if (known[read.index] === 0) note(read);
      for (const call of calls) call.resolve(call.reads);
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
  }
}
