import { assert, assertAtMost, assertEqual } from '../../base/assert.js';
import type { PauseWatch } from '../../base/concurrency/pause-watch.js';
import type { WorkTurns } from '../../base/concurrency/work-turns.js';
import { type Clock, within } from '../../base/environment/clock.js';
import { PendingConnections } from '../connection-limits.js';
import type { ServedProtocol } from './served-connection.js';

/** Limits of the connections of a door. */
export interface ServedLimits {
  /** Most connections that the door has not accepted yet; a further one replaces another. */
  readonly greetingMaxCount: number;
  /** Time limit for the peer to identify itself. */
  readonly greetingTimeoutMs: number;
  /** Reason for the log when a peer has not identified itself in time. */
  readonly lateReason: string;
  /** Reason for the log when a connection is replaced by another one. */
  readonly replacedReason: string;
  /** Time limit for a peer to take some of the waiting output, and to complete a message. */
  readonly stallTimeoutMs: number;
  /** Window over which the rate of a message that arrives in parts is measured. */
  readonly receivingWindowMs: number;
  /** Bytes of output that may wait before the peer is watched. */
  readonly watchedMinBytes: number;
  /** Bytes of output that may wait for one peer, and for all. Beyond that, the connection is closed. */
  readonly outputMaxBytes: number;
  readonly allOutputMaxBytes: number;
  /** Requests in flight of one connection, and of all; and what each connection is always granted. */
  readonly inFlightMaxCount: number;
  readonly inFlightMaxBytes: number;
  readonly allInFlightMaxCount: number;
  readonly allInFlightMaxBytes: number;
  readonly grantedCount: number;
  readonly grantedBytes: number;
}

/** Processes received bytes of many connections in turns. */
export interface ServedFairness {
  readonly turns: WorkTurns;
  readonly pauses: Pick<PauseWatch, 'sentAfterMs'>;
}

const UNLIMITED = Number.POSITIVE_INFINITY;

/** Defaults of limits that a door may omit: unlimited. */
export const NO_SERVED_LIMITS = {
  receivingWindowMs: UNLIMITED,
  watchedMinBytes: 0,
  outputMaxBytes: UNLIMITED,
  allOutputMaxBytes: UNLIMITED,
  allInFlightMaxCount: UNLIMITED,
  allInFlightMaxBytes: UNLIMITED,
  grantedCount: 0,
  grantedBytes: 0,
} satisfies Partial<ServedLimits>;

/**
 * The connections of one door, and what they share.
 *
 * Accounting: the requests in flight, and their bytes, are the sum over the connections that have not ended.
 */
export class ServedConnections<Protocol extends ServedProtocol = ServedProtocol> {
  readonly clock: Clock;
  readonly limits: ServedLimits;
  readonly fairness: ServedFairness | undefined;
  /** Open connections whose peers the door has not accepted yet. */
  readonly greeting: PendingConnections<ServedProtocol>;
  /** Open connections, oldest first. */
  readonly #open = new Set<Protocol>();
  /** Closed connections that still have something in progress. */
  readonly #ending = new Set<Protocol>();
  #inFlightCount = 0;
  #inFlightBytes = 0;
  #onEmpty: (() => void)[] = [];
  /** The first event that should have been impossible. */
  #impossible: string | undefined;

  constructor(clock: Clock, limits: ServedLimits, fairness?: ServedFairness) {
    this.clock = clock;
    this.limits = limits;
    this.fairness = fairness;
    this.greeting = new PendingConnections(
      limits.greetingMaxCount,
      ({ served }) => served.replace(limits.replacedReason),
      ({ served }) => served.origin,
    );
  }

  /** Number of open connections. */
  get size(): number {
    return this.#open.size;
  }

  /** Number of connections that have not ended yet. */
  get unendedCount(): number {
    return this.#open.size + this.#ending.size;
  }

  get inFlightCount(): number {
    return this.#inFlightCount;
  }

  /** Whether the output that waits for all peers together exceeds its limit. */
  get isFlooded(): boolean {
    const { allOutputMaxBytes } = this.limits;
    return allOutputMaxBytes !== UNLIMITED && this.sum(({ served }) => served.waitingBytes) > allOutputMaxBytes;
  }

  /** Iterates over open connections, oldest first. They may be closed during the iteration. */
  [Symbol.iterator](): Iterator<Protocol> {
    return this.#open.values();
  }

  /** Returns the open connections that the door has accepted. */
  accepted(): Protocol[] {
    return [...this.#open].filter((one) => !this.greeting.has(one));
  }

  /** Returns the closed connections that still have something in progress. */
  ending(): Protocol[] {
    return [...this.#ending];
  }

  /** Returns the sum of a number over all open connections. */
  sum(of: (one: Protocol) => number): number {
    let sum = 0;
    for (const one of this.#open) sum += of(one);
    return sum;
  }

  /** Adds a new connection. */
  add(one: Protocol): void {
    this.#open.add(one);
    if (one.served.state === 'greeting') this.greeting.add(one);
  }

  /** Whether all connections together may have another request of this many bytes. */
  hasRoomFor(bytes: number): boolean {
    const { allInFlightMaxCount, allInFlightMaxBytes } = this.limits;
    return this.#inFlightCount < allInFlightMaxCount && this.#inFlightBytes + bytes <= allInFlightMaxBytes;
  }

  /** @internal Counts a request that has begun or was settled. */
  count(count: 1 | -1, bytes: number): void {
    this.#inFlightCount += count;
    this.#inFlightBytes += bytes;
  }

  /** @internal Records an event that should have been impossible. */
  impossible(what: string): void {
    this.#impossible ??= what;
  }

  /** @internal Called when a connection is closed. */
  closed(one: ServedProtocol): void {
    this.#open.delete(one as Protocol);
    this.greeting.delete(one);
    this.#ending.add(one as Protocol);
  }

  /** @internal Called when a closed connection has ended. */
  ended(one: ServedProtocol): void {
    this.#ending.delete(one as Protocol);
    this.#tellEmpty();
  }

  /** Closes all connections. */
  close(reason: string): void {
    for (const one of this.#open) one.served.close(reason);
  }

  /**
   * Lets all connections finish, and closes those that take longer than `finishTimeoutMs`. Resolves when all have
   * ended.
   */
  async shutDown(reason: string, finishTimeoutMs: number): Promise<void> {
    const empty = new Promise<void>((resolve) => this.#onEmpty.push(resolve));
    for (const one of this.#open) one.finish(reason);
    this.#tellEmpty();
    await within(this.clock, finishTimeoutMs, empty);
    this.close(reason);
    await empty;
  }

  #tellEmpty(): void {
    if (this.unendedCount > 0) return;
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  }

  /** Throws `InvariantError` unless its counts match its connections, and each connection is consistent. */
  verify(subject: string): void {
    assert(this.#impossible === undefined, () => `${subject}: ${this.#impossible}`);
    let [count, bytes] = [0, 0];
    for (const one of [...this.#open, ...this.#ending]) {
      one.served.verify();
      one.verify();
      count += one.served.inFlightCount;
      bytes += one.served.inFlightBytes;
    }
    assertEqual(`${subject}: requests in flight`, this.#inFlightCount, count);
    assertEqual(`${subject}: bytes of requests in flight`, this.#inFlightBytes, bytes);
    assertAtMost(`${subject}: connections that greet`, this.greeting.count, this.limits.greetingMaxCount);
    this.greeting.verify(this.#open);
  }
}
