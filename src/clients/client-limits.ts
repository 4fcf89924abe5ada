import {
  CLIENT_BODY_MAX_BYTES,
  CLIENT_BYTES_RUNNING_MAX_COUNT,
  CLIENT_DEADLINE_MS,
  CLIENT_HANDSHAKE_TIMEOUT_MS,
  CLIENT_IN_FLIGHT_MAX_COUNT,
  CLIENT_OUTPUT_MAX_BYTES,
  CLIENT_RUNNING_MAX_COUNT,
  CLIENT_SMALL_BODIES_MAX_BYTES,
  CLIENT_STALL_TIMEOUT_MS,
  CLIENTS_BODIES_MAX_BYTES,
  CLIENTS_GREETING_MAX_COUNT,
  CLIENTS_MAX_COUNT,
  CLIENTS_OUTPUT_MAX_BYTES,
  RECEIVING_WINDOW_MS,
} from '../base/limits.js';
import { NO_SERVED_LIMITS, type ServedLimits } from '../net/served/served-connections.js';

/** Limits of the client socket; `base/limits.ts` describes each. */
export interface ClientLimits {
  readonly clientsMaxCount: number;
  readonly greetingMaxCount: number;
  readonly bodyMaxBytes: number;
  readonly bodiesMaxBytes: number;
  readonly smallBodiesMaxBytes: number;
  readonly inFlightMaxCount: number;
  readonly runningMaxCount: number;
  readonly bytesRunningMaxCount: number;
  readonly outputMaxBytes: number;
  readonly allOutputMaxBytes: number;
  readonly deadlineMs: number;
  readonly handshakeTimeoutMs: number;
  readonly stallTimeoutMs: number;
  readonly receivingWindowMs: number;
}

/** Returns the production limits; tests replace some with `overrides`. */
export function clientLimits(overrides: Partial<ClientLimits> = {}): ClientLimits {
  return {
    clientsMaxCount: CLIENTS_MAX_COUNT,
    greetingMaxCount: CLIENTS_GREETING_MAX_COUNT,
    bodyMaxBytes: CLIENT_BODY_MAX_BYTES,
    bodiesMaxBytes: CLIENTS_BODIES_MAX_BYTES,
    smallBodiesMaxBytes: CLIENT_SMALL_BODIES_MAX_BYTES,
    inFlightMaxCount: CLIENT_IN_FLIGHT_MAX_COUNT,
    runningMaxCount: CLIENT_RUNNING_MAX_COUNT,
    bytesRunningMaxCount: CLIENT_BYTES_RUNNING_MAX_COUNT,
    outputMaxBytes: CLIENT_OUTPUT_MAX_BYTES,
    allOutputMaxBytes: CLIENTS_OUTPUT_MAX_BYTES,
    deadlineMs: CLIENT_DEADLINE_MS,
    handshakeTimeoutMs: CLIENT_HANDSHAKE_TIMEOUT_MS,
    stallTimeoutMs: CLIENT_STALL_TIMEOUT_MS,
    receivingWindowMs: RECEIVING_WINDOW_MS,
    ...overrides,
  };
}

/** Returns the limits that apply to the connections themselves. */
export function servedLimits(limits: ClientLimits): ServedLimits {
  const { greetingMaxCount, handshakeTimeoutMs, stallTimeoutMs, receivingWindowMs } = limits;
  return {
    ...NO_SERVED_LIMITS,
    greetingMaxCount,
    greetingTimeoutMs: handshakeTimeoutMs,
    lateReason: 'no HELLO in time',
    replacedReason: 'too many connections that are not attached',
    stallTimeoutMs,
    receivingWindowMs,
    inFlightMaxCount: limits.inFlightMaxCount,
    inFlightMaxBytes: limits.smallBodiesMaxBytes,
  };
}
