import {
  RECEIVING_WINDOW_MS,
  RESP_ALL_WAITING_MAX_BYTES,
  RESP_ARGUMENTS_BUDGET_BYTES,
  RESP_CONNECTIONS_MAX_COUNT,
  RESP_FINISH_TIMEOUT_MS,
  RESP_LOGIN_TIMEOUT_MS,
  RESP_STALL_TIMEOUT_MS,
  RESP_VALUES_BUDGET_BYTES,
  RESP_WAITING_MAX_BYTES,
  RESP_WAITING_MAX_COUNT,
} from '../base/limits.js';
import { NO_SERVED_LIMITS, type ServedLimits } from '../net/served/served-connections.js';

/** Limits of the door for Redis clients that tests change; `base/resp-limits.ts` describes each. */
export interface RespLimits {
  readonly connectionsMaxCount: number;
  readonly waitingMaxCount: number;
  readonly waitingMaxBytes: number;
  readonly allWaitingMaxBytes: number;
  readonly argumentsBudgetBytes: number;
  readonly valuesBudgetBytes: number;
  readonly stallTimeoutMs: number;
  readonly receivingWindowMs: number;
  readonly loginTimeoutMs: number;
  readonly finishTimeoutMs: number;
}

/** Returns the production limits; tests replace some with `overrides`. */
export function respLimits(overrides: Partial<RespLimits> = {}): RespLimits {
  return {
    connectionsMaxCount: RESP_CONNECTIONS_MAX_COUNT,
    waitingMaxCount: RESP_WAITING_MAX_COUNT,
    waitingMaxBytes: RESP_WAITING_MAX_BYTES,
    allWaitingMaxBytes: RESP_ALL_WAITING_MAX_BYTES,
    argumentsBudgetBytes: RESP_ARGUMENTS_BUDGET_BYTES,
    valuesBudgetBytes: RESP_VALUES_BUDGET_BYTES,
    stallTimeoutMs: RESP_STALL_TIMEOUT_MS,
    receivingWindowMs: RECEIVING_WINDOW_MS,
    loginTimeoutMs: RESP_LOGIN_TIMEOUT_MS,
    finishTimeoutMs: RESP_FINISH_TIMEOUT_MS,
    ...overrides,
  };
}

/** Returns the limits that apply to the connections themselves. */
export function servedLimits(limits: RespLimits): ServedLimits {
  const { connectionsMaxCount, loginTimeoutMs, stallTimeoutMs, receivingWindowMs } = limits;
  return {
    ...NO_SERVED_LIMITS,
    greetingMaxCount: connectionsMaxCount,
    greetingTimeoutMs: loginTimeoutMs,
    lateReason: 'not authenticated in time',
    replacedReason: 'too many connections that are not authenticated',
    stallTimeoutMs,
    receivingWindowMs,
    inFlightMaxCount: limits.waitingMaxCount,
    inFlightMaxBytes: limits.waitingMaxBytes,
    allInFlightMaxBytes: limits.allWaitingMaxBytes,
    // A connection without waiting commands is always read.
    grantedCount: 1,
    grantedBytes: Number.POSITIVE_INFINITY,
  };
}
