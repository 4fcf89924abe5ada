import { type CancelSignal, pause, unlessAborted } from '../../base/concurrency/cancellation.js';
import type { Clock } from '../../base/environment/clock.js';
import {
  HOLD_REQUEST_MAX_KEYS,
  PROMOTE_LEASE_MS,
  PROMOTE_RETRY_MAX_MS,
  PROMOTE_RETRY_MIN_MS,
  PROMOTE_TIMEOUT_MS,
} from '../../base/limits.js';
import { requestsOf } from '../../directory/owners/owners.js';
import type { DataLocation } from '../../types.js';
import type { HoldOutcome } from '../ground/other-holders.js';

/** Keys of the first round; later rounds are sized by how many are read in the available time. */
const FIRST_ROUND_KEYS = 16;

/** A page that its owner has promoted. */
export interface PromotedEntry {
  /** Index of the page among the keys to be read. */
  readonly index: number;
  readonly location: DataLocation;
}

export interface PromotedReadingParts {
  /** Asks a node to promote pages; one outcome for each key. Never rejects. */
  readonly ask: (nodeId: string, keys: readonly string[]) => Promise<readonly HoldOutcome[]>;
  /** Tells the owner that these pages have been read; not awaited. */
  readonly release: (nodeId: string, keys: readonly string[]) => void;
  /** Reads pages from their present locations into the caller's memory; one result for each entry. */
  readonly read: (entries: readonly PromotedEntry[]) => Promise<boolean[]>;
  /** Whether the reader is closing or its call was aborted: unread pages are then misses. */
  readonly isEnded: () => boolean;
  /** Aborting ends waits for the owner at once; reads in progress are still awaited. */
  readonly signal?: CancelSignal | undefined;
  readonly clock: Clock;
}

interface Round {
  readonly indices: readonly number[];
  readonly outcomes: readonly HoldOutcome[];
}

/**
 * Reads the pages that one owner has on its disk: has them promoted in rounds, and reads each round while the next one
 * is being promoted. Single use.
 *
 * A page whose read fails is requested once more. The size of a round is chosen so that its pages are read well before
 * the owner's leases end.
 */
export class PromotedReading {
  readonly #nodeId: string;
  readonly #keys: readonly string[];
  readonly #parts: PromotedReadingParts;
  readonly #results: boolean[];
  /** Indices still to be requested, the next one first. */
  #open: number[];
  readonly #failedOnce = new Set<number>();
  #roundKeys = FIRST_ROUND_KEYS;

  constructor(nodeId: string, keys: readonly string[], parts: PromotedReadingParts) {
    this.#nodeId = nodeId;
    this.#keys = keys;
    this.#parts = parts;
    this.#results = keys.map(() => false);
    this.#open = keys.map((_, i) => i);
  }

  /** Reads all pages; resolves with one result for each key when every page has been read or is a miss. */
  async run(): Promise<boolean[]> {
    const { clock, isEnded } = this.#parts;
    let progressMs = clock.nowMs();
    let pauseMs = PROMOTE_RETRY_MIN_MS;
    let next = this.#ask();
    while (next !== undefined) {
      const round = await unlessAborted(next, this.#parts.signal);
      if (round === undefined) {
        this.#releaseLate(next);
        break;
      }
      const entries = this.#sort(round);
      if (isEnded()) {
        this.#release(entries);
        break;
      }
      if (!round.outcomes.every((outcome) => outcome === 'later')) {
        progressMs = clock.nowMs();
        pauseMs = PROMOTE_RETRY_MIN_MS;
        next = entries.length > 0 ? this.#ask() : undefined;
        await this.#read(entries);
        next ??= this.#ask();
        continue;
      }
      if (clock.nowMs() - progressMs >= PROMOTE_TIMEOUT_MS) break;
      await pause(clock, pauseMs, this.#parts.signal, { keepAlive: true });
      pauseMs = Math.min(pauseMs * 2, PROMOTE_RETRY_MAX_MS);
      next = this.#ask();
    }
    return this.#results;
  }

  /** Requests the next round; undefined: no keys are left. */
  #ask(): Promise<Round> | undefined {
    const { ask, isEnded } = this.#parts;
    const [indices] = requestsOf(this.#keys, this.#open.slice(0, this.#roundKeys));
    if (indices === undefined || isEnded()) return undefined;
    this.#open = this.#open.slice(indices.length);
    const keys = indices.map((i) => this.#keys[i] as string);
    return ask(this.#nodeId, keys).then((outcomes) => ({ indices, outcomes }));
  }

  /** The entries that can be read now; pages whose outcome is `later` are queued to be requested again. */
  #sort({ indices, outcomes }: Round): PromotedEntry[] {
    const entries: PromotedEntry[] = [];
    const later: number[] = [];
    indices.forEach((index, j) => {
      const outcome = outcomes[j] ?? 'absent';
      if (outcome === 'later') later.push(index);
      else if (typeof outcome !== 'string') entries.push({ index, location: outcome });
    });
    this.#open = [...later, ...this.#open];
    return entries;
  }

  async #read(entries: readonly PromotedEntry[]): Promise<void> {
    if (entries.length === 0) return;
    const { read, clock } = this.#parts;
    const startMs = clock.nowMs();
    let isRead: readonly boolean[] = [];
    try {
      isRead = await read(entries);
    } finally {
      this.#release(entries);
    }
    entries.forEach(({ index }, j) => {
      this.#results[index] = isRead[j] === true;
      if (isRead[j] === true || this.#failedOnce.has(index)) return;
      this.#failedOnce.add(index);
      this.#open.push(index);
    });
    const elapsedMs = clock.nowMs() - startMs;
    if (elapsedMs > PROMOTE_LEASE_MS / 4) this.#roundKeys = Math.max(1, Math.floor(entries.length / 2));
    else if (elapsedMs < PROMOTE_LEASE_MS / 16) this.#roundKeys = Math.min(HOLD_REQUEST_MAX_KEYS, this.#roundKeys * 2);
  }

  /** Releases the pages of a round that arrives after the reading has ended. */
  #releaseLate(round: Promise<Round>): void {
    round.then(
      (late) => this.#release(this.#sort(late)),
      () => {},
    );
  }

  #release(entries: readonly PromotedEntry[]): void {
    if (entries.length === 0) return;
    // A key that was requested twice in a round has one answer, so it is released once.
    this.#parts.release(this.#nodeId, [...new Set(entries.map(({ index }) => this.#keys[index] as string))]);
  }
}
