import { createHmac } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { ClosedError } from '../../base/errors.js';
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
import {
  type NativeAddon,
  OP_COLUMNS,
  type RailOptions,
  RDMA_STATS,
  type RdmaEngine,
  type RdmaEngineOptions,
  type RdmaReport,
  type RdmaStatName,
} from '../addon/contract.js';
import { type EngineEvent, engineEvent, rdmaError } from './engine-event.js';

/** Labels from which, with the secret, the two halves of a token are derived. */
const REQUEST_LABEL = 'meshcache rdma 1 request';
const REPLY_LABEL = 'meshcache rdma 1 reply';

/**
 * Returns options for an engine with these rails that presents the first of `secrets` and accepts each. Tests replace
 * some with `overrides`.
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
 * Derives a token of 64 bytes: 32 that a connecting peer presents, and 32 that are the answer to it. Neither half
 * reveals the secret or the other half.
 */
export function engineToken(clusterSecret: string): Uint8Array {
  const half = (label: string): Buffer => createHmac('sha256', clusterSecret).update(label).digest();
  return new Uint8Array(Buffer.concat([half(REQUEST_LABEL), half(REPLY_LABEL)]));
}

/** Marks an operation without a checksum. */
const NO_CHECKSUM = -1;
const NO_STAMP = 0;

/** Checks of the bytes that an operation has read. */
export interface OpChecks {
  /** CRC-32 that the bytes must have. */
  readonly checksum?: number | undefined;
  /** Stamp that the last bytes must be; see `memory/page-stamp.ts`. */
  readonly stamp?: number | undefined;
}

/** Reads for one call of `RdmaEngine.submit`, in its layout: rows of operations, then their pieces, in order. */
export class OpBatch {
  readonly #ops: number[] = [];
  readonly #pieces: number[] = [];
  #totalBytes = 0;

  get opCount(): number {
    return this.#ops.length / OP_COLUMNS;
  }

  /** Total length of all pieces. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  /**
   * Adds an operation; its pieces follow by {@link addPiece}. Without `checksum` and `stamp`, its bytes are not
   * checked.
   */
  addOp(peer: number, rkey: number, remoteAddr: number, checks: OpChecks = {}): void {
    const { checksum = NO_CHECKSUM, stamp = NO_STAMP } = checks;
    this.#ops.push(peer, rkey, remoteAddr, checksum, stamp, 0);
  }

  /** Adds local memory for the next bytes of the operation added last. */
  addPiece(addr: number, length: number): void {
    this.#pieces.push(addr, length);
    const pieceCountAt = this.#ops.length - 1;
    this.#ops[pieceCountAt] = (this.#ops[pieceCountAt] as number) + 1;
    this.#totalBytes += length;
  }

  encode(): Float64Array {
    const encoded = new Float64Array(this.#ops.length + this.#pieces.length);
    encoded.set(this.#ops);
    encoded.set(this.#pieces, this.#ops.length);
    return encoded;
  }
}

interface EngineChannelOptions {
  readonly addon: NativeAddon;
  readonly engine: RdmaEngineOptions;
  /** Called with every event of the engine; calls are not rate-limited. */
  onEvent(event: EngineEvent): void;
}

/** Counters of an engine since its creation. */
export type EngineStats = Readonly<Record<RdmaStatName, number>>;

/**
 * One RDMA engine of the addon, as used by this thread. Matches reports of the engine with the calls that started the
 * work.
 *
 * The channel neither accesses nor holds memory: callers that submit reads or register memory must keep it until the
 * promise has resolved.
 */
export class EngineChannel {
  readonly #engine: RdmaEngine;
  readonly #onEvent: (event: EngineEvent) => void;
  readonly #batches = new Map<number, (statuses: Uint8Array) => void>();
  readonly #deregistering = new Map<number, () => void>();
  readonly #closed: Promise<void>;
  #resolveClosed: () => void = () => {};
  #isClosing = false;
  #lastStats: EngineStats | undefined;
  #nextBatchId = 1;

  /** Starts an engine that listens on all of its rails. Throws `RdmaError`. */
  static open(options: EngineChannelOptions): EngineChannel {
    return new EngineChannel(options);
  }

  private constructor({ addon, engine, onEvent }: EngineChannelOptions) {
    this.#onEvent = onEvent;
    this.#closed = new Promise((resolve) => {
      this.#resolveClosed = resolve;
    });
    try {
      this.#engine = addon.createRdmaEngine(engine, (report) => this.#reported(report));
    } catch (cause) {
      throw rdmaError('the RDMA engine cannot be started', cause);
    }
  }

  /** Port that each rail listens on. */
  get ports(): readonly number[] {
    return this.#engine.ports;
  }

  /**
   * Registers memory; see `RdmaEngine.registerMr`. Throws `RdmaError`, whose message says what to do, and
   * `ClosedError`.
   */
  registerMr(addr: number, length: number, rkey: number, access: number): { handle: number; lkey: number } {
    if (this.#isClosing) throw new ClosedError('the RDMA engine');
    try {
      return this.#engine.registerMr(addr, length, rkey, access);
    } catch (cause) {
      throw rdmaError(`${length} bytes of memory cannot be registered for RDMA`, cause);
    }
  }

  /** Starts no new read of the memory; resolves when no device uses it any more. Never rejects. */
  deregisterMr(handle: number): Promise<void> {
    // Closing releases all memory.
    if (this.#isClosing) return this.#closed;
    return new Promise((resolve) => {
      this.#deregistering.set(handle, resolve);
      this.#engine.deregisterMr(handle);
    });
  }

  /** Returns the number of the peer for `OpBatch.addOp`; always the same for one address. */
  peer(host: string, port: number): number {
    return this.#engine.peer(host, port);
  }

  /**
   * Starts the reads. Resolves once no device writes into any of their memory any more, with one index into `OP_STATUS`
   * per operation. Returns undefined if the channel is closed and nothing was started.
   */
  submit(batch: OpBatch, timeoutMs: number): Promise<Uint8Array> | undefined {
    if (this.#isClosing) return undefined;
    const batchId = this.#nextBatchId++;
    return new Promise((resolve) => {
      this.#batches.set(batchId, resolve);
      this.#engine.submit(batchId, batch.opCount, batch.encode(), timeoutMs);
    });
  }

  /** Presents the first of these secrets, and accepts each, on connections that are made from now on. */
  setSecrets(secrets: readonly string[]): void {
    if (!this.#isClosing) this.#engine.setTokens(secrets.map(engineToken));
  }

  /** Returns the counters; after the channel is closed, their last values. */
  stats(): EngineStats {
    if (this.#lastStats !== undefined) return this.#lastStats;
    const values = this.#engine.stats();
    return Object.fromEntries(RDMA_STATS.map((name, i) => [name, values[i] ?? 0])) as EngineStats;
  }

  /** Closes the engine; reads in progress end as `closed`. Resolves when all memory is released. Idempotent. */
  close(): Promise<void> {
    if (!this.#isClosing) {
      this.#isClosing = true;
      this.#engine.close();
    }
    return this.#closed;
  }

  #reported({ batchIds, statuses, events, deregistered, closed }: RdmaReport): void {
    for (const [i, batchId] of batchIds.entries()) {
      this.#batches.get(batchId)?.(statuses[i] as Uint8Array);
      this.#batches.delete(batchId);
    }
    for (const handle of deregistered) {
      this.#deregistering.get(handle)?.();
      this.#deregistering.delete(handle);
    }
    if (closed) this.#ended();
    // Events come last, so that a failure in the log cannot delay results.
    for (const event of events) this.#onEvent(engineEvent(event));
  }

  #ended(): void {
    this.#lastStats = { ...this.stats(), connections: 0 };
    for (const resolve of this.#deregistering.values()) resolve();
    this.#deregistering.clear();
    this.#resolveClosed();
  }
}
