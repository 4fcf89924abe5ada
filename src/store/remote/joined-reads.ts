import { JOINED_READ_MAX_BYTES, JOINED_READ_MAX_PAGES, JOINED_READS_MAX_PAGES } from '../../base/limits.js';
import type { CallerPage } from '../call/caller-page.js';
import type { StoreGround } from '../ground/store-ground.js';
import { RemoteOutcome } from './remote-outcome.js';
import type { RemoteReads, RemoteRequest, RoundProgress } from './remote-reads.js';

/** A call that waits for the end of the turn, or is being read together with others. */
interface JoinedCall {
  readonly request: RemoteRequest;
  readonly outcome: RemoteOutcome;
  /** Indices of pages that have no result yet. */
  readonly open: Set<number>;
  resolve(outcome: RemoteOutcome): void;
  reject(error: unknown): void;
}

/**
 * Joins the reads of small calls made in one turn of the event loop: one lookup per directory owner, and one read per
 * node that has the pages.
 *
 * Calls are joined for one attempt if their first keys have the same directory owner. Each call ends as soon as all of
 * its own pages are read, are on this node's disk, or are misses; pages that could not be read where the directory said
 * are retried by the call alone. So a node that does not answer delays only the calls that ask it, and misses of calls
 * with the same further directory owners.
 */
export class JoinedReads {
  readonly #ground: StoreGround;
  readonly #reads: RemoteReads;
  #waiting: JoinedCall[] = [];

  constructor(ground: StoreGround, reads: RemoteReads) {
    this.#ground = ground;
    this.#reads = reads;
  }

  /**
   * Reads a request, see `RemoteReads.read`. Large calls, and calls that may be aborted or ask for reasons, are read
   * alone.
   */
  read(request: RemoteRequest): Promise<RemoteOutcome> {
    if (!isSmall(request)) return this.#reads.read(request);
    return new Promise((resolve, reject) => {
      const open = new Set(request.wanted);
      this.#waiting.push({ request, outcome: new RemoteOutcome(), open, resolve, reject });
      if (this.#waiting.length === 1) this.#ground.clock.soon(() => this.#readWaiting());
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

  /** Groups of calls to read together: with the same owner, and at most JOINED_READS_MAX_PAGES pages. */
  #groups(calls: readonly JoinedCall[]): JoinedCall[][] {
    if (calls.length === 1) return [[...calls]];
    const owners = this.#ground.directory.firstOwners(
      calls.map(({ request: { keys, wanted } }) => keys[wanted[0] as number] as string),
    );
    const groups: JoinedCall[][] = [];
    const latest = new Map<number, { readonly group: JoinedCall[]; pages: number }>();
    calls.forEach((call, i) => {
      const owner = owners[i] as number;
      let last = latest.get(owner);
      const count = call.request.wanted.length;
      if (last === undefined || last.pages + count > JOINED_READS_MAX_PAGES) {
        last = { group: [], pages: 0 };
        latest.set(owner, last);
        groups.push(last.group);
      }
      last.group.push(call);
      last.pages += count;
    });
    return groups;
  }

  /** Reads a call, or the rest of it, alone and ends it. */
  #readAlone(call: JoinedCall, request = call.request): void {
    this.#reads.read(request).then((further) => {
      call.outcome.addAll(further);
      call.resolve(call.outcome);
    }, call.reject);
  }

  /** Reads pages again after a first attempt: on other nodes, and wherever the directory says now. */
  #readAgain(call: JoinedCall, wanted: readonly number[]): void {
    const { keys, pages, onOwn } = call.request;
    this.#readAlone(call, { keys, pages, wanted, onOwn });
  }

  /** Reads a group of calls. Never rejects. */
  async #readTogether(calls: readonly JoinedCall[]): Promise<void> {
    const group = new JoinedGroup(calls, (call) => this.#end(call));
    try {
      await this.#reads.read(group.request());
      group.settleAll();
    } catch {
      // After a failure each call continues alone: an error of one call must not affect the others.
      for (const call of calls) if (call.open.size > 0) this.#readAgain(call, [...call.open]);
    }
  }

  /** Ends a call whose pages have all been looked up. */
  #end(call: JoinedCall): void {
    const missed = call.outcome.missed.map(({ index }) => index);
    if (missed.length === 0) call.resolve(call.outcome);
    else this.#readAgain(call, missed);
  }
}

/** The wanted pages of several calls as one request; each call ends when all of its own pages are settled. */
class JoinedGroup implements RoundProgress {
  readonly #end: (call: JoinedCall) => void;
  readonly #keys: string[] = [];
  readonly #pages: CallerPage[] = [];
  /** For each key of the group, the call of the page and the page's index in that call. */
  readonly #callOf: JoinedCall[] = [];
  readonly #indexOf: number[] = [];
  #isLocated = false;

  constructor(calls: readonly JoinedCall[], end: (call: JoinedCall) => void) {
    this.#end = end;
    for (const call of calls) {
      const { keys, pages, wanted, locationOf } = call.request;
      if (locationOf !== undefined) this.#isLocated = true;
      for (const i of wanted) {
        this.#keys.push(keys[i] as string);
        this.#pages.push(pages[i] as CallerPage);
        this.#callOf.push(call);
        this.#indexOf.push(i);
      }
    }
  }

  request(): RemoteRequest {
    const [keys, pages] = [this.#keys, this.#pages];
    const locationOf = (j: number) => this.#call(j).request.locationOf?.(this.#indexOf[j] as number);
    return {
      keys,
      pages,
      wanted: keys.map((_, j) => j),
      locationOf: this.#isLocated ? locationOf : undefined,
      onOwn: (indices) => this.#own(indices),
      round: this,
    };
  }

  tried({ reads, missed }: RemoteOutcome): void {
    for (const read of reads) {
      for (let k = 0; k < read.indices.length; k++) {
        const j = read.indices[k] as number;
        this.#call(j).outcome.addReadAs(this.#indexOf[j] as number, read, k);
        this.#settle(j);
      }
    }
    for (const miss of missed) {
      const j = miss.index;
      this.#call(j).outcome.missed.push({ ...miss, index: this.#indexOf[j] as number });
      this.#settle(j);
    }
  }

  searched(isFound: Uint8Array): void {
    for (let j = 0; j < this.#keys.length; j++) if (isFound[j] === 0) this.#settle(j);
  }

  /** Settles all remaining pages as misses. */
  settleAll(): void {
    for (let j = 0; j < this.#keys.length; j++) this.#settle(j);
  }

  #own(indices: readonly number[]): void {
    for (const j of indices) {
      this.#call(j).request.onOwn?.([this.#indexOf[j] as number]);
      this.#settle(j);
    }
  }

  #settle(j: number): void {
    const call = this.#call(j);
    if (call.open.delete(this.#indexOf[j] as number) && call.open.size === 0) this.#end(call);
  }

  #call(j: number): JoinedCall {
    return this.#callOf[j] as JoinedCall;
  }
}

function isSmall({ pages, wanted, signal, reasons }: RemoteRequest): boolean {
  if (signal !== undefined || reasons !== undefined || wanted.length === 0 || wanted.length > JOINED_READ_MAX_PAGES)
    return false;
  let bytes = 0;
  for (const i of wanted) bytes += (pages[i] as CallerPage).length;
  return bytes <= JOINED_READ_MAX_BYTES;
}
