import {
  CLOSE_TIMEOUT_MS,
  DATA_CONNECTIONS_MAX_COUNT,
  HANDSHAKES_PENDING_MAX_COUNT,
  PAGE_MAX_BYTES,
  READ_ABORT_GRACE_MS,
  READ_CONNECT_TIMEOUT_MS,
  READ_DRAIN_TIMEOUT_MS,
  READ_FINISH_TIMEOUT_MS,
  READ_HANDSHAKE_TIMEOUT_MS,
  READ_IN_FLIGHT_MAX_BYTES,
  READ_IN_FLIGHT_MAX_COUNT,
  READ_MIN_BYTES_PER_S,
  READ_REQUEST_MAX_OPS,
  READ_REQUEST_TARGET_BYTES,
  READ_RETRY_AFTER_MS,
  READ_STALL_TIMEOUT_MS,
} from '../../../base/limits.js';
import { CONNECTION_RATES, type ConnectionRates } from '../../../net/connection-limits.js';

/** A serving thread that fails is started again so many times in a row, after a delay that doubles each time. */
const SERVING_RESTARTS_MAX_COUNT = 8;
const SERVING_RESTART_DELAY_MS = 50;
/** One that has run for so long before it fails has lasted: the count and the delay begin anew. */
const SERVING_LASTS_MS = 60_000;

/** The limits of the TCP data plane; `base/limits.ts` says what each means, or the constants above. */
export interface TcpLimits {
  readonly readMaxBytes: number;
  readonly requestTargetBytes: number;
  readonly inFlightMaxBytes: number;
  readonly inFlightMaxCount: number;
  readonly stallTimeoutMs: number;
  readonly minBytesPerS: number;
  readonly abortGraceMs: number;
  readonly connectTimeoutMs: number;
  readonly retryAfterMs: number;
  readonly connectionsMaxCount: number;
  readonly pendingMaxCount: number;
  readonly connectionRates: ConnectionRates;
  readonly handshakeTimeoutMs: number;
  readonly drainTimeoutMs: number;
  readonly closeTimeoutMs: number;
  /** What peers have to take the answers that are under way when serving ends. */
  readonly finishTimeoutMs: number;
  readonly requestMaxOps: number;
  readonly servingRestartsMaxCount: number;
  readonly servingRestartDelayMs: number;
  readonly servingLastsMs: number;
}

/** The limits of production, with what `overrides` (of a test) replaces. */
export function tcpLimits(overrides: Partial<TcpLimits> = {}): TcpLimits {
  return {
    readMaxBytes: PAGE_MAX_BYTES,
    requestMaxOps: READ_REQUEST_MAX_OPS,
    requestTargetBytes: READ_REQUEST_TARGET_BYTES,
    inFlightMaxBytes: READ_IN_FLIGHT_MAX_BYTES,
    inFlightMaxCount: READ_IN_FLIGHT_MAX_COUNT,
    stallTimeoutMs: READ_STALL_TIMEOUT_MS,
    minBytesPerS: READ_MIN_BYTES_PER_S,
    abortGraceMs: READ_ABORT_GRACE_MS,
    connectTimeoutMs: READ_CONNECT_TIMEOUT_MS,
    retryAfterMs: READ_RETRY_AFTER_MS,
    connectionsMaxCount: DATA_CONNECTIONS_MAX_COUNT,
    pendingMaxCount: HANDSHAKES_PENDING_MAX_COUNT,
    connectionRates: CONNECTION_RATES,
    handshakeTimeoutMs: READ_HANDSHAKE_TIMEOUT_MS,
    drainTimeoutMs: READ_DRAIN_TIMEOUT_MS,
    closeTimeoutMs: CLOSE_TIMEOUT_MS,
    finishTimeoutMs: READ_FINISH_TIMEOUT_MS,
    servingRestartsMaxCount: SERVING_RESTARTS_MAX_COUNT,
    servingRestartDelayMs: SERVING_RESTART_DELAY_MS,
    servingLastsMs: SERVING_LASTS_MS,
    ...overrides,
  };
}
