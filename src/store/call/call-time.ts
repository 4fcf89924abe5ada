import type { Clock } from '../../base/environment/clock.js';

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
