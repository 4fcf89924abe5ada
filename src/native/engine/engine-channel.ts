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
import { rdmaError } from './failure.js';
import type { OpBatch } from './op-batch.js';

export interface EngineChannelOptions {
  readonly addon: NativeAddon;
  readonly engine: RdmaEngineOptions;
  /** Something worth telling has happened; not rate-limited. */
  onEvent(event: EngineEvent): void;
}

/** Counters of an engine since it was made. */
export type EngineStats = Readonly<Record<RdmaStatName, number>>;

/**
 * The hold of this thread on one RDMA engine of the addon: what has been started, and is ended by its reports.
 *
 * Nothing here looks into memory or keeps it: who submits reads, or registers memory, keeps it until the promise has
 * resolved.
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

  /** An engine that listens on all of its rails. Throws `RdmaError`. */
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

  /** As `RdmaEngine.registerMr`. Throws `RdmaError`, with what to do about it, and `ClosedError`. */
  registerMr(addr: number, length: number, rkey: number, access: number): { handle: number; lkey: number } {
    if (this.#isClosing) throw new ClosedError('the RDMA engine');
    try {
      return this.#engine.registerMr(addr, length, rkey, access);
    } catch (cause) {
      throw rdmaError(`${length} bytes of memory cannot be registered for RDMA`, cause);
    }
  }

  /** No new read of it starts from now on; resolves when no device uses the memory any more. Never rejects. */
  deregisterMr(handle: number): Promise<void> {
    // Closing releases everything.
    if (this.#isClosing) return this.#closed;
    return new Promise((resolve) => {
      this.#deregistering.set(handle, resolve);
      this.#engine.deregisterMr(handle);
    });
  }

  /** A number for the address, for `OpBatch.addOp`; the same each time. */
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

  /** Those at the end once it is closed. */
  stats(): EngineStats {
    if (this.#lastStats !== undefined) return this.#lastStats;
    const values = this.#engine.stats();
    return Object.fromEntries(RDMA_STATS.map((name, i) => [name, values[i] ?? 0])) as EngineStats;
  }

  /** Ends everything; reads under way end as `closed`. Resolves when all is released. Idempotent. */
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
    // Last: whatever the log does, results have been given.
    for (const event of events) this.#onEvent(engineEvent(event));
  }

  #ended(): void {
    this.#lastStats = { ...this.stats(), connections: 0 };
    for (const resolve of this.#deregistering.values()) resolve();
    this.#deregistering.clear();
    this.#resolveClosed();
  }
}
