import { type CancelSignal, onAbort, unlessAborted } from '../../base/concurrency/cancellation.js';
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
 * Limits for the duration of a call. When the signal is aborted or the time is over, the call ends as soon as nothing
 * touches its buffers any more: pages read by then count, all others are misses (`false`).
 */
export interface WaitOptions {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds for the whole call. Default: the limits of its parts; for an attached client, the client's limit. */
  readonly timeoutMs?: number | undefined;
}

/** Limits for the duration of a call inside the store, as in {@link WaitOptions}. */
export interface CallLimits {
  readonly signal?: CancelSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

/** Options of a call, with its time as measured inside the store. */
export interface TimedOptions extends CallLimits {
  /** Default: the call starts now and is given up after `timeoutMs`. */
  readonly time?: CallTime | undefined;
}

/** Why a page was not read. */
export type MissReason =
  /** No node is known to have the page. */
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
  /** The client's node does not report the reason. */
  | 'unknown';

/** Why a page was not set. */
export type RefusalReason =
  /** The page is larger than a pool accepts, or than the maximum of its namespace. */
  | 'too_large'
  /** The pool is full of pages that cannot be evicted now. */
  | 'no_room'
  /** No owner of its directory entry has accepted the page. */
  | 'directory'
  /** Another writer set the key at the same time, and its content won. */
  | 'superseded'
  /** The node is leaving the cluster. */
  | 'draining'
  /** The client's node did not answer. */
  | 'unreachable'
  | 'timed_out'
  | 'aborted'
  /** The store was closed during the call. */
  | 'closed'
  /** The client's node does not report the reason. */
  | 'unknown';

/** What a caller knows of the session that a call belongs to: a conversation, or a run of an agent. */
export interface SessionOptions {
  /** Name of the session, at most SESSION_NAME_MAX_BYTES of UTF-8, unique in its namespace. */
  readonly session?: string | undefined;
  /** Seconds until the session's next request is expected. */
  readonly waiting?: number | undefined;
  /** Whether the session goes on from the pages of this call alone: its other pages are of a branch that has ended. */
  readonly branched?: boolean | undefined;
  /** Whether the session has no further request. */
  readonly ended?: boolean | undefined;
}

/** Options of calls that read pages. */
export interface ReadOptions extends RequestOptions, WaitOptions, SessionOptions {
  /**
   * Called for each page that was not read, before the call resolves: its index in the call, the reason, and the name
   * of its pool (`kv` is the main one). A call with this callback is not joined with other small calls.
   */
  readonly onMiss?: ((index: number, reason: MissReason, pool: string) => void) | undefined;
}

/** Options of calls that set pages. */
export interface WriteOptions extends PublishRequest, WaitOptions, SessionOptions {
  /**
   * Milliseconds after which the pages expire: from then on no node finds them. A whole number from 1 to EXPIRY_MAX_MS,
   * about ten years. Default: they do not expire. Setting a named entry again gives it the expiry of the new call; a
   * computed page that already exists gets the later expiry.
   */
  readonly expiresInMs?: number | undefined;
  /**
   * Called for each page that was not set, before the call resolves: its index in the call, the reason, and the name of
   * its pool.
   */
  readonly onRefused?: ((index: number, reason: RefusalReason, pool: string) => void) | undefined;
}

/** Default options of a call: none. */
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
  'session',
  'waiting',
  'branched',
  'ended',
]);

/** Longest delay of a timer. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Throws `ArgumentError` unless `options` is an object that has no others than these names, and whose signal, if any,
 * is one.
 */
export function checkBasicOptions(
  method: string,
  options: { readonly signal?: AbortSignal | undefined },
  names: ReadonlySet<string>,
): void {
  if (typeof options !== 'object' || options === null) {
    const [name] = names;
    throw new ArgumentError(`${method}: options must be an object, such as { ${name}: … }; got ${shown(options)}`);
  }
  checkNames(method, options, names);
  const { signal } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new ArgumentError(`${method}: signal must be an AbortSignal, got ${shown(signal)}`);
  }
}

/** Throws `ArgumentError` unless `options` are options of a call; `further` names options that only this method has. */
export function checkOptions(method: string, options: WaitOptions, ...further: readonly string[]): void {
  if (options === NO_OPTIONS) return;
  checkBasicOptions(method, options, further.length === 0 ? OPTION_NAMES : new Set([...OPTION_NAMES, ...further]));
  const { timeoutMs, onMiss, onRefused } = options as ReadOptions & WriteOptions;
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

/** Calls `use` with options in which `timeoutMs` has been turned into a signal and a call time. */
export function inTime<T, Options extends TimedOptions>(
  clock: Clock,
  options: Options,
  use: (options: Options) => Promise<T>,
): Promise<T> {
  const { timeoutMs } = options;
  // Most calls have no timeout, and must not pay for those that have one.
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

/** Whether and how the signal has ended a call. */
export function endedBy(signal: CancelSignal | undefined): 'timed_out' | 'aborted' | undefined {
  if (signal?.aborted !== true) return undefined;
  return (signal.reason as Error | undefined)?.name === 'TimeoutError' ? 'timed_out' : 'aborted';
}

/** Resolves with the result of `work`; rejects with the signal's reason as soon as it is aborted. */
export async function orAbort<T>(work: Promise<T>, signal: CancelSignal | undefined): Promise<T> {
  const ended = await unlessAborted(
    work.then((result) => ({ result })),
    signal,
  );
  if (ended === undefined) throw signal?.reason;
  return ended.result;
}

/** The abort reason for a call that has timed out. */
export function timedOut(timeoutMs: number): DOMException {
  return new DOMException(`the call took more than ${timeoutMs} ms`, 'TimeoutError');
}

/**
 * Why pages of one call were not read or set, by their index in the call. Exists only in calls that ask for reasons.
 */
export class Reasons<Reason extends MissReason | RefusalReason> {
  readonly #reasons = new Map<number, Reason>();

  /** Records a reason; a later one replaces it. */
  note(index: number, reason: Reason): void {
    this.#reasons.set(index, reason);
  }

  of(index: number): Reason | undefined {
    return this.#reasons.get(index);
  }

  /** Sets a reason for all failed pages that have none. */
  fill(results: readonly boolean[], reason: Reason): void {
    results.forEach((isDone, i) => {
      if (!isDone && !this.#reasons.has(i)) this.#reasons.set(i, reason);
    });
  }
}

/**
 * The time of one call. Work that begins after its end is useless: the caller has been told that it was not done, and
 * may have done something else since. Timers do not report the end reliably: after a process was stopped, requests may
 * be carried out before its timers fire.
 */
export interface CallTime {
  /** When the caller made the call, on the monotonic clock; expiries count from then. */
  readonly askedMs: number;
  /** Whether the caller has given the call up. A version taken before this returned false belongs to the call. */
  isOver(): boolean;
}

/** The time of a call that was made at `askedMs` and is given up at `untilMs`. */
export function callTime(clock: Pick<Clock, 'nowMs'>, askedMs: number, untilMs: number): CallTime {
  return { askedMs, isOver: () => clock.nowMs() >= untilMs };
}

/** The quota of a namespace tag in a pool, with its maximum in bytes. */
export interface ReasonQuota {
  readonly namespace: string;
  readonly maxBytes: number;
}

/**
 * Logs why pages were not read or set: at most one line per reason and quota every LOG_LINE_INTERVAL_MS, with the
 * number of pages since the last one.
 */
export class ReasonLog<Reason extends MissReason | RefusalReason> {
  readonly #event: string;
  readonly #log: Logger;
  readonly #lines: SparseLog;

  /** `event` is the message of the lines. */
  constructor(event: string, parts: { readonly clock: Clock; readonly log: Logger }) {
    this.#event = event;
    this.#log = parts.log;
    this.#lines = new SparseLog(parts);
  }

  /** Counts pages for a reason. `quota`: the quota that refused them; each of the few quotas has lines of its own. */
  note(reason: Reason, pages = 1, quota?: ReasonQuota): void {
    const since = this.#lines.turn(quota === undefined ? reason : `${reason} ${quota.namespace}`, pages);
    if (since === 0) return;
    const limit = quota && { namespace: quota.namespace, max_bytes: quota.maxBytes };
    this.#log.log('warn', this.#event, { reason, pages: since, ...limit });
  }
}
