import { ArgumentError } from '../base/errors.js';
import {
  DISCOVERY_CHANGE_GAP_MAX_PER_MEMBER_MS,
  DISCOVERY_CHANGE_GAP_MS,
  DISCOVERY_CHANGE_GAP_PER_MEMBER_MS,
} from '../base/limits.js';
import { shown } from '../base/shown.js';

/** Default interval of heartbeats, in seconds. */
const HEARTBEAT_INTERVAL_S = 2;
/** Default time-to-live of a member, in seconds. */
const MEMBER_TTL_S = 6;

/** The times of a discovery client or server in milliseconds. Throws `ArgumentError` for invalid times. */
export function timingOf(options: { readonly heartbeatInterval?: number; readonly memberTtl?: number }): {
  readonly heartbeatIntervalMs: number;
  readonly memberTtlMs: number;
} {
  const { heartbeatInterval = HEARTBEAT_INTERVAL_S, memberTtl = MEMBER_TTL_S } = options;
  for (const [name, seconds] of Object.entries({ heartbeatInterval, memberTtl })) {
    if (Number.isFinite(seconds) && seconds > 0) continue;
    throw new ArgumentError(`${name} must be a number of seconds above 0, got ${shown(seconds)}`);
  }
  return { heartbeatIntervalMs: heartbeatInterval * 1000, memberTtlMs: memberTtl * 1000 };
}

/**
 * Decides when a membership change is acted on: at once after a quiet time, and more and more rarely while changes go
 * on, down to a limit that grows with the number of members. Each round of changes costs every member a pass over all
 * members and a new ring, so that n nodes joining one by one would cost each member the square of n. With the gaps, the
 * cost of a storm grows with its duration.
 */
export class ChangeGap {
  #actedMs = Number.NEGATIVE_INFINITY;
  /** The gap that was kept before the last planned change. */
  #gapMs = 0;

  /** Plans the reaction to a change while none is planned; returns the delay in milliseconds, 0 for at once. */
  plan(nowMs: number, members: number): number {
    const minMs = DISCOVERY_CHANGE_GAP_MS + members * DISCOVERY_CHANGE_GAP_PER_MEMBER_MS;
    const maxMs = DISCOVERY_CHANGE_GAP_MS + members * DISCOVERY_CHANGE_GAP_MAX_PER_MEMBER_MS;
    const isQuiet = nowMs - this.#actedMs > 2 * this.#gapMs;
    this.#gapMs = isQuiet ? minMs : Math.min(maxMs, Math.max(minMs, 2 * this.#gapMs));
    return Math.max(0, this.#actedMs + this.#gapMs - nowMs);
  }

  /** Takes note that the planned change was acted on. */
  acted(nowMs: number): void {
    this.#actedMs = nowMs;
  }
}
