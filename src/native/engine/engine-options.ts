import { createHmac } from 'node:crypto';
import { availableParallelism } from 'node:os';
import {
  DATA_CONNECTIONS_MAX_COUNT,
  RDMA_CONNECT_TIMEOUT_MS,
  RDMA_IDLE_PROBE_MS,
  RDMA_QUEUE_DEPTH_COUNT,
  RDMA_QUEUE_PAIRS_PER_PEER_COUNT,
  RDMA_READ_MAX_BYTES,
  RDMA_SPIN_US,
  RDMA_VERIFY_THREADS_MAX_COUNT,
  READ_STALL_TIMEOUT_MS,
} from '../../base/limits.js';
import type { RailOptions, RdmaEngineOptions } from '../addon/contract.js';

/** Labels that the two halves of a token are derived from, together with the secret. */
const REQUEST_LABEL = 'meshcache rdma 1 request';
const REPLY_LABEL = 'meshcache rdma 1 reply';

/**
 * Options for an engine with these rails that presents the first of `secrets` and accepts each; tests replace some with
 * `overrides`.
 */
export function engineOptions(
  rails: readonly RailOptions[],
  secrets: readonly string[],
  overrides: Partial<RdmaEngineOptions> = {},
): RdmaEngineOptions {
  return {
    rails,
    tokens: secrets.map(engineToken),
    queuePairsPerPeer: RDMA_QUEUE_PAIRS_PER_PEER_COUNT,
    queueDepth: RDMA_QUEUE_DEPTH_COUNT,
    readMaxBytes: RDMA_READ_MAX_BYTES,
    connectTimeoutMs: RDMA_CONNECT_TIMEOUT_MS,
    stallTimeoutMs: READ_STALL_TIMEOUT_MS,
    idleProbeMs: RDMA_IDLE_PROBE_MS,
    acceptedMaxCount: DATA_CONNECTIONS_MAX_COUNT,
    spinUs: RDMA_SPIN_US,
    verifyThreads: Math.min(RDMA_VERIFY_THREADS_MAX_COUNT, Math.max(1, availableParallelism() - 1)),
    ...overrides,
  };
}

/**
 * A token of 64 bytes: 32 that a connecting peer presents and 32 that it is answered with. Neither half reveals the
 * secret or the other half.
 */
export function engineToken(clusterSecret: string): Uint8Array {
  const half = (label: string): Buffer => createHmac('sha256', clusterSecret).update(label).digest();
  return new Uint8Array(Buffer.concat([half(REQUEST_LABEL), half(REPLY_LABEL)]));
}
