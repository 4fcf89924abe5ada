import { ArgumentError } from '../base/errors.js';
import { shown } from '../base/shown.js';

/** Default interval of heartbeats and default time-to-live, in seconds. */
const HEARTBEAT_INTERVAL_S = 2;
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
