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

/** The limits of production, with the `overrides` of a test. */
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
