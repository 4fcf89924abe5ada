import { onAbort, unlessAborted } from '../../base/concurrency/cancellation.js';
import type { Clock } from '../../base/environment/clock.js';
import type { Logger } from '../../base/environment/log.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { ArgumentError } from '../../base/errors.js';
import { EXPIRY_MAX_MS } from '../../base/limits.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import { type PagePriority, priorityNumber } from '../../core/binding/page-priority.js';
import type { PublishRequest, RequestOptions } from '../../core/index.js';

/**
 * How long a call may take. When the signal is aborted, or the time is over, the call ends as soon as nothing touches
 * its buffers any more: pages that have been read by then count, all others are misses, and `false`.
 */
export interface WaitOptions {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds for the whole call. Default: the limits of its parts; for an attached client that of the client. */
  readonly timeoutMs?: number | undefined;
}

/** What a call knows of its time beside that. */
export interface TimedOptions extends WaitOptions {
  /** Default: the call is made now, and given up after `timeoutMs`. */
  readonly time?: CallTime | undefined;
}

/** Why a page has not been read. */
export type MissReason =
  /** No node has the page, as far as is known. */
  | 'absent'
  /** The page has another length than its buffer. */
  | 'other_size'
  /** The bytes did not match their checksum. */
  | 'checksum'
  /** The node that has the page did not answer. */
  | 'unreachable'
  /** The node that has the page did not hand it out. */
  | 'unreadable'
  | 'timed_out'
  | 'aborted'
  /** The store was closed during the call. */
  | 'closed'
  /** The node of this client does not tell the reason. */
  | 'unknown';

/** Why a page has not been set. */
export type RefusalReason =
  /** The page is larger than a pool takes, or than the maximum of its namespace. */
  | 'too_large'
  /** The pool is full of pages that cannot be evicted now. */
  | 'no_room'
  /** No owner of its directory entry has accepted the page. */
  | 'directory'
  /** Another writer has set the key at the same time, and its content has won. */
  | 'superseded'
  /** The node is leaving the cluster. */
  | 'draining'
  /** The node of this client did not answer. */
  | 'unreachable'
  | 'timed_out'
  | 'aborted'
  /** The store was closed during the call. */
  | 'closed'
  /** The node of this client does not tell the reason. */
  | 'unknown';

/** Options of calls that read pages. */
export interface ReadOptions extends RequestOptions, WaitOptions {
  /**
   * Called for each page that has not been read, before the call resolves: its index in the call, the reason, and the
   * name of its pool (`kv` is the main one). A call with it is read alone, and not joined with other small calls.
   */
  readonly onMiss?: ((index: number, reason: MissReason, pool: string) => void) | undefined;
}

/** Options of calls that set pages. */
export interface WriteOptions extends PublishRequest, WaitOptions {
  /**
   * Milliseconds after which the pages are expired: from then on no node finds them. A whole number from 1 to
   * EXPIRY_MAX_MS, about ten years. Default: they do not expire. A named entry that is set anew has the expiry of the
   * new call; of a computed page that is there already the later expiry counts.
   */
  readonly expiresInMs?: number | undefined;
  /**
   * Called for each page that has not been set, before the call resolves: its index in the call, the reason, and the
   * name of its pool.
   */
  readonly onRefused?: ((index: number, reason: RefusalReason, pool: string) => void) | undefined;
}

/** The options of a call without any. */
export const NO_OPTIONS = Object.freeze({});

const OPTION_NAMES: ReadonlySet<string> = new Set([
  'hint',
  'caller',
  'continues',
  'endsElsewhere',
  'signal',
  'timeoutMs',
  'onMiss',
  'onRefused',
  'expiresInMs',
  'priority',
]);

/** Longest time that a timer can wait. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** Throws `ArgumentError` unless these are options of a call; `further` names options that only this call has. */
export function checkOptions(method: string, options: WaitOptions, ...further: readonly string[]): void {
  if (options === NO_OPTIONS) return;
  if (typeof options !== 'object' || options === null) {
    throw new ArgumentError(`${method}: options must be an object, such as { timeoutMs: 500 }; got ${shown(options)}`);
  }
  checkNames(method, options, further.length === 0 ? OPTION_NAMES : new Set([...OPTION_NAMES, ...further]));
  const { signal, timeoutMs, onMiss, onRefused } = options as ReadOptions & WriteOptions;
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new ArgumentError(`${method}: signal must be an AbortSignal, got ${shown(signal)}`);
  }
  if (timeoutMs !== undefined && !(typeof timeoutMs === 'number' && timeoutMs > 0 && timeoutMs <= TIMER_MAX_MS)) {
    throw new ArgumentError(`${method}: timeoutMs must be above 0 and below 2^31, got ${shown(timeoutMs)}`);
  }
  checkExpiry(method, (options as WriteOptions).expiresInMs);
  checkPriority(method, (options as WriteOptions).priority);
  for (const [name, callback] of Object.entries({ onMiss, onRefused })) {
    if (callback !== undefined && typeof callback !== 'function') {
      throw new ArgumentError(`${method}: ${name} must be a function, got ${shown(callback)}`);
    }
  }
}

function checkExpiry(method: string, expiresInMs: number | undefined): void {
  if (expiresInMs === undefined) return;
  if (Number.isSafeInteger(expiresInMs) && expiresInMs >= 1 && expiresInMs <= EXPIRY_MAX_MS) return;
  throw new ArgumentError(
    `${method}: expiresInMs must be a whole number of milliseconds from 1 to ${EXPIRY_MAX_MS}, got ${shown(expiresInMs)}`,
  );
}

function checkPriority(method: string, priority: PagePriority | undefined): void {
  try {
    priorityNumber(priority);
  } catch (error) {
    throw new ArgumentError(`${method}: ${(error as Error).message}`);
  }
}

/** Calls `use` with options in which `timeoutMs` has become the signal and the time of the call. */
export function inTime<T, Options extends TimedOptions>(
  clock: Clock,
  options: Options,
  use: (options: Options) => Promise<T>,
): Promise<T> {
  const { timeoutMs } = options;
  // Most calls have no time of their own, and wait for nothing more because of those that have.
  if (timeoutMs === undefined || options.signal?.aborted) return use(options);
  return endInTime(clock, { ...options, timeoutMs }, use);
}

async function endInTime<T, Options extends TimedOptions>(
  clock: Clock,
  options: Options & { readonly timeoutMs: number },
  use: (options: Options) => Promise<T>,
): Promise<T> {
  const { signal, timeoutMs } = options;
  const nowMs = clock.nowMs();
  const time = options.time ?? callTime(clock, nowMs, nowMs + timeoutMs);
  const ends = new AbortController();
  const stop = signal && onAbort(signal, () => ends.abort(signal.reason));
  const cancel = clock.after(timeoutMs, () => ends.abort(timedOut(timeoutMs)), { keepAlive: true });
  try {
    return await use({ ...options, signal: ends.signal, timeoutMs: undefined, time });
  } finally {
    cancel();
    stop?.();
  }
}

/** Whether the signal has ended a call, and how. */
export function endedBy(signal: AbortSignal | undefined): 'timed_out' | 'aborted' | undefined {
  if (signal?.aborted !== true) return undefined;
  return (signal.reason as Error | undefined)?.name === 'TimeoutError' ? 'timed_out' : 'aborted';
}

/** The result of `work`; rejects with the signal's reason as soon as it is aborted. */
export async function orAbort<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  const ended = await unlessAborted(
    work.then((result) => ({ result })),
    signal,
  );
  if (ended === undefined) throw signal?.reason;
  return ended.result;
}

/** The reason of a signal that ends a call which has taken too long. */
export function timedOut(timeoutMs: number): DOMException {
  return new DOMException(`the call took more than ${timeoutMs} ms`, 'TimeoutError');
}

/**
 * Why pages of one call have not been read or set, by their index in the call; only calls that ask for reasons have
 * one.
 */
export class Reasons<Reason extends MissReason | RefusalReason> {
  readonly #reasons = new Map<number, Reason>();

  /** Notes a reason; a later one replaces it. */
  note(index: number, reason: Reason): void {
    this.#reasons.set(index, reason);
  }

  of(index: number): Reason | undefined {
    return this.#reasons.get(index);
  }

  /** Gives a reason to the pages without one whose result is false. */
  fill(results: readonly boolean[], reason: Reason): void {
    results.forEach((isDone, i) => {
      if (!isDone && !this.#reasons.has(i)) this.#reasons.set(i, reason);
    });
  }
}

/**
 * The time of one call. What is begun after its end is begun for nobody: the caller has been told that it is not done,
 * and may have done something else since. A timer does not tell the end in time: of a process that was stopped,
 * requests may be carried out before its timers.
 */
export interface CallTime {
  /** When the caller made the call, by the monotonic clock; its expiry counts from then. */
  readonly askedMs: number;
  /**
   * Whether the caller has given the call up. A version that was taken before this was asked, and false, lies within
   * the call.
   */
  isOver(): boolean;
}

/** The time of a call that was made at `askedMs`, and is given up at `untilMs`. */
export function callTime(clock: Pick<Clock, 'nowMs'>, askedMs: number, untilMs: number): CallTime {
  return { askedMs, isOver: () => clock.nowMs() >= untilMs };
}

/** The quota of a namespace tag in a pool: its maximum in bytes. */
export interface ReasonQuota {
  readonly namespace: string;
  readonly maxBytes: number;
}

/**
 * Logs why pages have not been read or set: for each reason and quota one line in LOG_LINE_INTERVAL_MS at most, with
 * the number of pages since the last one.
 */
export class ReasonLog<Reason extends MissReason | RefusalReason> {
  readonly #event: string;
  readonly #log: Logger;
  readonly #lines: SparseLog;

  /** `event` is the text of the lines. */
  constructor(event: string, parts: { readonly clock: Clock; readonly log: Logger }) {
    this.#event = event;
    this.#log = parts.log;
    this.#lines = new SparseLog(parts);
  }

  /** `quota`: what has refused the pages, which then have lines of their own. There are few quotas. */
  note(reason: Reason, pages = 1, quota?: ReasonQuota): void {
    const since = this.#lines.turn(quota === undefined ? reason : `${reason} ${quota.namespace}`, pages);
    if (since === 0) return;
    const limit = quota && { namespace: quota.namespace, max_bytes: quota.maxBytes };
    this.#log.log('warn', this.#event, { reason, pages: since, ...limit });
  }
}
