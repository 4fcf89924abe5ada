import {
  CLOSE_TIMEOUT_MS,
  DATA_CONNECTIONS_MAX_COUNT,
  HANDSHAKES_PENDING_MAX_COUNT,
  PAGE_MAX_BYTES,
  PEER_PATIENCE_MIN_MS,
  READ_ABORT_GRACE_MS,
  READ_CONNECT_TIMEOUT_MS,
  READ_DRAIN_TIMEOUT_MS,
  READ_FINISH_TIMEOUT_MS,
  READ_HANDSHAKE_TIMEOUT_MS,
  READ_IN_FLIGHT_MAX_BYTES,
  READ_IN_FLIGHT_MAX_COUNT,
  READ_MIN_BYTES_PER_S,
  READ_PROBED_MAX_MS,
  READ_REQUEST_MAX_OPS,
  READ_REQUEST_TARGET_BYTES,
  READ_RETRY_AFTER_MS,
  READ_RETRY_MAX_MS,
  READ_STALL_TIMEOUT_MS,
} from '../../../base/limits.js';
import { CONNECTION_RATES, type ConnectionRates } from '../../../net/connection-limits.js';

/**
 * Fewest bytes of a batch that reading threads receive. Receiving them takes the calling thread longer than the two
 * messages that it costs to have another thread do it.
 */
const THREADED_MIN_BYTES = 512 * 1024;
/** Consecutive restarts of a failing serving or reading thread, and the delay before the first one, which doubles each time. */
const SERVING_RESTARTS_MAX_COUNT = 8;
const SERVING_RESTART_DELAY_MS = 50;
/** After running this long, a serving thread starts again with the first restart delay. */
const SERVING_LASTS_MS = 60_000;

/** The limits of the TCP data plane. The constants in `base/limits.ts` or above explain them. */
export interface TcpLimits {
  readonly readMaxBytes: number;
  readonly requestTargetBytes: number;
  /** Fewest bytes of a batch that several threads receive. */
  readonly threadedMinBytes: number;
  readonly inFlightMaxBytes: number;
  readonly inFlightMaxCount: number;
  readonly stallTimeoutMs: number;
  readonly patienceMinMs: number;
  readonly minBytesPerS: number;
  readonly abortGraceMs: number;
  readonly connectTimeoutMs: number;
  readonly retryAfterMs: number;
  readonly retryMaxMs: number;
  readonly probedMaxMs: number;
  readonly connectionsMaxCount: number;
  readonly pendingMaxCount: number;
  readonly connectionRates: ConnectionRates;
  readonly handshakeTimeoutMs: number;
  readonly drainTimeoutMs: number;
  readonly closeTimeoutMs: number;
  /** Time for peers to receive the answers in progress when serving ends. */
  readonly finishTimeoutMs: number;
  readonly requestMaxOps: number;
  readonly servingRestartsMaxCount: number;
  readonly servingRestartDelayMs: number;
  readonly servingLastsMs: number;
}

/** The default limits; tests replace some with `overrides`. */
export function tcpLimits(overrides: Partial<TcpLimits> = {}): TcpLimits {
  return {
    readMaxBytes: PAGE_MAX_BYTES,
    requestMaxOps: READ_REQUEST_MAX_OPS,
    requestTargetBytes: READ_REQUEST_TARGET_BYTES,
    threadedMinBytes: THREADED_MIN_BYTES,
    inFlightMaxBytes: READ_IN_FLIGHT_MAX_BYTES,
    inFlightMaxCount: READ_IN_FLIGHT_MAX_COUNT,
    stallTimeoutMs: READ_STALL_TIMEOUT_MS,
    patienceMinMs: PEER_PATIENCE_MIN_MS,
    minBytesPerS: READ_MIN_BYTES_PER_S,
    abortGraceMs: READ_ABORT_GRACE_MS,
    connectTimeoutMs: READ_CONNECT_TIMEOUT_MS,
    retryAfterMs: READ_RETRY_AFTER_MS,
    retryMaxMs: READ_RETRY_MAX_MS,
    probedMaxMs: READ_PROBED_MAX_MS,
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
