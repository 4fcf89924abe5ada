import { assert, assertAtMost, assertEqual } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import {
  READ_REPORT_DELAY_MS,
  READ_REPORT_FULL_KEYS,
  READ_REPORT_MAX_CHARACTERS,
  READ_REPORT_MAX_KEYS,
  READ_REPORTS_WAITING_MAX_CHARACTERS,
  READ_REPORTS_WAITING_MAX_KEYS,
} from '../../base/limits.js';
import type { RequestHint } from '../../core/index.js';

/** Pages of one owner that one call on another node has read, in the call's order. */
export interface ReportedRead {
  readonly keys: readonly string[];
  readonly hint: RequestHint;
}

/** Pages of one owner that another node expects to read. */
export interface ExpectedRead {
  readonly keys: readonly string[];
  /** Time of the clock of the node that expects it; Infinity: never. */
  readonly expectedAtMs: number;
}

/** What an owner is told of its pages. */
export type ReadReport = ReportedRead | ExpectedRead;

export interface ReadReportsParts {
  /** Sends reports to an owner; rejects on failure. */
  readonly send: (nodeId: string, reports: readonly ReadReport[]) => Promise<void>;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/** The reads of one owner's pages that wait to be reported. */
interface OwnerReads {
  /** The waiting reads, the oldest first. */
  reads: ReadReport[];
  /** Total keys of the waiting reads. */
  keys: number;
  /** Time of the clock at which the oldest read must be reported. */
  dueMs: number;
  /** The report in flight; undefined: none. */
  underWay: Promise<void> | undefined;
  /** Cancels the timer of the next report, which ends at `dueMs`; undefined when no timer runs. */
  cancelTimer: (() => void) | undefined;
}

/**
 * Reports to owners which of their pages this node has read from their memory, because owners do not see one-sided
 * reads. A report lists reads in order and is sent READ_REPORT_DELAY_MS after its first read, or as soon as
 * READ_REPORT_FULL_KEYS wait; at most one report per owner is in flight. Best effort: reads that cannot be reported are
 * dropped and counted.
 *
 * Accounting: `#waitingKeys` and `#waitingCharacters` are the totals of waiting reads of all owners. Beyond their
 * limits the oldest reads are dropped, beginning with the owner that has had no report for the longest time.
 */
export class ReadReports {
  readonly #parts: ReadReportsParts;
  /** Owners with waiting reads or a report in flight. An owner moves to the end when a report to it begins. */
  readonly #owners = new Map<string, OwnerReads>();
  #waitingKeys = 0;
  #waitingCharacters = 0;
  #isClosed = false;

  constructor(parts: ReadReportsParts) {
    this.#parts = parts;
  }

  /** Total keys that wait to be reported. */
  get waitingKeys(): number {
    return this.#waitingKeys;
  }

  /** Notes that a call has read these pages of an owner, in this order, or expects to. */
  add(nodeId: string, report: ReadReport): void {
    const { keys } = report;
    if (this.#isClosed || keys.length === 0) return;
    const owner = this.#ownerOf(nodeId);
    if (owner.reads.length === 0) owner.dueMs = this.#parts.clock.nowMs() + READ_REPORT_DELAY_MS;
    for (let start = 0; start < keys.length; ) {
      const end = messageEnd(keys, start);
      const isWhole = start === 0 && end === keys.length;
      this.#push(owner, isWhole ? report : { ...report, keys: keys.slice(start, end) });
      start = end;
    }
    this.#dropAboveLimits();
    this.#goOn(nodeId, owner);
  }

  /** Reports all waiting reads now. Resolves when the owners have answered, or the reports have failed. */
  async tellAll(): Promise<void> {
    const nowMs = this.#parts.clock.nowMs();
    const told = [...this.#owners].map(async ([nodeId, owner]) => {
      owner.dueMs = nowMs;
      owner.cancelTimer?.();
      owner.cancelTimer = undefined;
      this.#goOn(nodeId, owner);
      while (owner.underWay !== undefined) await owner.underWay;
    });
    await Promise.all(told);
  }

  /** Stops reporting: waiting reads are dropped. */
  close(): void {
    this.#isClosed = true;
    for (const owner of this.#owners.values()) owner.cancelTimer?.();
    this.#owners.clear();
  }

  /** Throws `InvariantError` unless the accounting holds. Checks nothing after {@link close}. */
  verify(): void {
    if (this.#isClosed) return;
    let [keys, characters] = [0, 0];
    for (const owner of this.#owners.values()) {
      const count = owner.reads.reduce((sum, read) => sum + read.keys.length, 0);
      assertEqual('read reports: keys that wait for an owner', owner.keys, count);
      assert(
        owner.underWay !== undefined || (owner.reads.length > 0 && owner.cancelTimer !== undefined),
        'read reports: reads wait that nothing sends',
      );
      keys += count;
      for (const read of owner.reads) characters += charactersOf(read.keys);
    }
    assertEqual('read reports: keys that wait', this.#waitingKeys, keys);
    assertEqual('read reports: their characters', this.#waitingCharacters, characters);
    assertAtMost('read reports: keys that wait', keys, READ_REPORTS_WAITING_MAX_KEYS);
    assertAtMost('read reports: their characters', characters, READ_REPORTS_WAITING_MAX_CHARACTERS);
  }

  #ownerOf(nodeId: string): OwnerReads {
    let owner = this.#owners.get(nodeId);
    if (owner === undefined) {
      owner = { reads: [], keys: 0, dueMs: 0, underWay: undefined, cancelTimer: undefined };
      this.#owners.set(nodeId, owner);
    }
    return owner;
  }

  /** Sends the next report to an owner if it is full or due; otherwise sets a timer for it. */
  #goOn(nodeId: string, owner: OwnerReads): void {
    if (owner.underWay !== undefined || this.#isClosed) return;
    if (owner.reads.length === 0) {
      owner.cancelTimer?.();
      this.#owners.delete(nodeId);
      return;
    }
    const isFull = owner.keys >= READ_REPORT_FULL_KEYS;
    if (!isFull && owner.cancelTimer !== undefined) return;
    const waitMs = owner.dueMs - this.#parts.clock.nowMs();
    if (isFull || waitMs <= 0) {
      owner.cancelTimer?.();
      owner.cancelTimer = undefined;
      owner.underWay = this.#send(nodeId, owner);
      return;
    }
    owner.cancelTimer = this.#parts.clock.after(waitMs, () => {
      owner.cancelTimer = undefined;
      this.#goOn(nodeId, owner);
    });
  }

  /** Sends one report and continues with the next one. Never rejects. */
  async #send(nodeId: string, owner: OwnerReads): Promise<void> {
    this.#owners.delete(nodeId);
    this.#owners.set(nodeId, owner);
    const reads = this.#take(owner);
    const keys = reads.reduce((sum, read) => sum + readsOf(read), 0);
    const isTold = await this.#parts.send(nodeId, reads).then(
      () => true,
      () => false,
    );
    this.#count(isTold ? 'told' : 'failed', keys);
    owner.underWay = undefined;
    this.#goOn(nodeId, owner);
  }

  /** Removes the oldest reads, as many as fit in one report. */
  #take(owner: OwnerReads): ReadReport[] {
    const taken: ReadReport[] = [];
    let [keys, characters] = [0, 0];
    for (const read of owner.reads) {
      keys += read.keys.length;
      characters += charactersOf(read.keys);
      if (taken.length > 0 && (keys > READ_REPORT_MAX_KEYS || characters > READ_REPORT_MAX_CHARACTERS)) break;
      taken.push(read);
    }
    for (const read of owner.reads.splice(0, taken.length)) this.#add(owner, read, -1);
    return taken;
  }

  #push(owner: OwnerReads, read: ReadReport): void {
    owner.reads.push(read);
    this.#add(owner, read, 1);
  }

  #shift(owner: OwnerReads): number {
    const read = owner.reads.shift();
    if (read === undefined) return 0;
    this.#add(owner, read, -1);
    return readsOf(read);
  }

  #add(owner: OwnerReads, { keys }: ReadReport, sign: 1 | -1): void {
    owner.keys += sign * keys.length;
    this.#waitingKeys += sign * keys.length;
    this.#waitingCharacters += sign * charactersOf(keys);
  }

  #dropAboveLimits(): void {
    for (const [nodeId, owner] of this.#owners) {
      if (!this.#isAboveLimits()) return;
      while (this.#isAboveLimits() && owner.reads.length > 0) this.#count('dropped', this.#shift(owner));
      // The owner may have nothing left to report.
      this.#goOn(nodeId, owner);
    }
  }

  #isAboveLimits(): boolean {
    if (this.#waitingKeys > READ_REPORTS_WAITING_MAX_KEYS) return true;
    return this.#waitingCharacters > READ_REPORTS_WAITING_MAX_CHARACTERS;
  }

  #count(result: 'told' | 'failed' | 'dropped', pages: number): void {
    this.#parts.metrics.count('meshcache_reported_reads_total', pages, { result });
  }
}

/** The pages of a report that were read. */
function readsOf(report: ReadReport): number {
  return 'hint' in report ? report.keys.length : 0;
}

function charactersOf(keys: readonly string[]): number {
  let characters = 0;
  for (const { length } of keys) characters += length;
  return characters;
}

/** Returns the end of the part of a read that fits in one report: at least one key. */
function messageEnd(keys: readonly string[], start: number): number {
  let characters = 0;
  let end = start;
  for (; end < keys.length && end - start < READ_REPORT_MAX_KEYS; end++) {
    const { length } = keys[end] as string;
    if (end > start && characters + length > READ_REPORT_MAX_CHARACTERS) break;
    characters += length;
  }
  return end;
}
