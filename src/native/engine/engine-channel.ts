import { ClosedError } from '../../base/errors.js';
import {
  type NativeAddon,
  RDMA_STATS,
  type RdmaEngine,
  type RdmaEngineOptions,
  type RdmaReport,
  type RdmaStatName,
} from '../addon/contract.js';
import { type EngineEvent, engineEvent } from './engine-event.js';
import { engineToken } from './engine-options.js';
import { rdmaError } from './failure.js';
import type { OpBatch } from './op-batch.js';

export interface EngineChannelOptions {
  readonly addon: NativeAddon;
  readonly engine: RdmaEngineOptions;
  /** Called with every event of the engine; calls are not rate-limited. */
  onEvent(event: EngineEvent): void;
}

/** Counters of an engine since it was made. */
export type EngineStats = Readonly<Record<RdmaStatName, number>>;

/**
 * One RDMA engine of the addon, as this thread uses it: matches reports of the engine with what was started.
 *
 * The channel neither accesses nor holds memory: a caller that submits reads or registers memory keeps the memory until
 * the promise has resolved.
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

  /** The number of the peer for `OpBatch.addOp`, always the same for one address. */
  peer(host: string, port: number): number {
    return this.#engine.peer(host, port);
  }

  /**
   * Starts the reads. Resolves, with one index into `OP_STATUS` for each operation, once no device writes into any of
   * their memory any more. Undefined: the channel is closed, and nothing was started.
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

  /** The counters; after the channel is closed, their last values. */
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
