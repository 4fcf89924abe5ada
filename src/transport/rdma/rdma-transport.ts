import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import {
  CLOSE_TIMEOUT_MS,
  PAGE_MAX_BYTES,
  RDMA_RETRY_MAX_MS,
  READ_MIN_BYTES_PER_S,
  READ_RETRY_AFTER_MS,
} from '../../base/limits.js';
import { regionOf } from '../../memory/address-space.js';
import type { HostRegion } from '../../memory/host-region.js';
import type {
  NativeAddon,
  OpStatusName,
  RailOptions,
  RdmaEngineOptions,
  RdmaEvent,
} from '../../native/addon/contract.js';
import { EngineChannel, type EngineStats } from '../../native/engine/engine-channel.js';
import { engineOptions } from '../../native/engine/engine-options.js';
import { EngineReader, type ReaderBatch } from '../../native/engine/engine-reader.js';
import { EventLog } from '../../native/engine/event-log.js';
import type { AuthFailureReason } from '../../net/auth-failures.js';
import { checkReadOp, destinationRegion, isSendable } from '../contract/read-checks.js';
import { type LocalRange, type Mr, type ReadOp, type Transport, tcpHostAndPort } from '../contract/transport.js';
import type { TcpTransport, TcpTransportStats } from '../tcp/tcp-transport.js';
import { Destinations, type DestinationUse, windowRestBytes } from './destinations.js';
import { MemoryRegions } from './memory-regions.js';

export interface RdmaTransportOptions {
  readonly addon: NativeAddon;
  /** One for each device; the first one's address and port are what peers are told. */
  readonly rails: readonly RailOptions[];
  /** Serves peers without RDMA, and reads from them. It is the RDMA transport's from now on. */
  readonly tcp: TcpTransport;
  readonly env: Environment;
  /** For tests. */
  readonly retryAfterMs?: number;
  readonly engine?: Partial<RdmaEngineOptions>;
}

export interface RdmaTransportStats extends TcpTransportStats {
  /** What the engine counts. */
  readonly rdma: EngineStats;
}

/**
 * Reads pages out of the memory of peers by RDMA, and lets them read one's own; over TCP where a peer has no RDMA.
 *
 * What is registered can be read over both, under the one rkey, and so has to be memory that all threads see: memory
 * that only half of a cluster could read would be of no use, and an ArrayBuffer that is handed to another thread
 * would be freed under the device. Reads may land in memory of any kind.
 *
 * Peers' reads by RDMA are counted nowhere: no processor of this side has a part in them.
 */
export class RdmaTransport implements Transport {
  readonly protocol = 'rdma';
  /** Devices in use. */
  readonly deviceNames: readonly string[];
  readonly #tcp: TcpTransport;
  readonly #env: Environment;
  readonly #channel: EngineChannel;
  readonly #reader: EngineReader;
  readonly #memoryRegions: MemoryRegions;
  readonly #destinations: Destinations;
  readonly #endpoint: Endpoint;
  /** Operations that ended before the engine saw them. */
  #failedHere = 0;
  #closing: Promise<void> | undefined;

  /** Peers can connect when it returns. Throws `RdmaError`; `tcp` is still the caller's then. */
  constructor({ addon, rails, tcp, env, ...options }: RdmaTransportOptions) {
    const engine = engineOptions(rails, env.secrets?.reveal() ?? [], options.engine);
    const events = new EventLog(env);
    const onEvent = (event: RdmaEvent): void => {
      events.record(event);
      const reason = authFailureOf(event);
      if (reason !== undefined) env.metrics.count('meshcache_auth_failures_total', 1, { plane: 'rdma', reason });
    };
    const channel = EngineChannel.open({ addon, engine, onEvent });
    this.deviceNames = rails.map(({ deviceName }) => deviceName);
    this.#tcp = tcp;
    this.#env = env;
    this.#channel = channel;
    this.#endpoint = { host: (rails[0] as RailOptions).address, port: channel.ports[0] as number };
    this.#reader = new EngineReader({
      channel,
      clock: env.clock,
      retryAfterMs: options.retryAfterMs ?? READ_RETRY_AFTER_MS,
      retryMaxMs: RDMA_RETRY_MAX_MS,
      stallTimeoutMs: engine.stallTimeoutMs,
      minBytesPerS: READ_MIN_BYTES_PER_S,
      onFailure: (status) => this.#failed(status),
    });
    this.#memoryRegions = new MemoryRegions(channel);
    this.#destinations = new Destinations({
      channel,
      clock: env.clock,
      onFailure: (error) => env.log.log('error', 'RDMA: reads fail', { reason: error.message }),
    });
  }

  /**
   * Also throws `ArgumentError` for memory that only one thread can see, `RdmaError` for memory that cannot be
   * registered with the device (its message says what to do), and `ClosedError`. Locks the memory, which takes about as long as
   * the system needs to provide it. A region that is freed is deregistered.
   */
  registerMr(addr: bigint, length: number): Mr {
    const mr = this.#tcp.registerMr(addr, length);
    const start = Number(addr);
    try {
      const lkey = this.#memoryRegions.add(regionOf(start, length) as HostRegion, start, length, mr.rkey);
      return { ...mr, lkey };
    } catch (error) {
      this.#tcp.deregisterMr(mr).catch(() => {});
      throw error;
    }
  }

  async deregisterMr(mr: Mr): Promise<void> {
    await Promise.all([this.#memoryRegions.remove(mr.rkey), this.#tcp.deregisterMr(mr)]);
  }

  /**
   * Operations by RDMA that are aborted before the engine has them end at once. The others end with their completions, or by the
   * engine's own timeouts: what is posted to a device cannot be called back.
   */
  async batchRead(ops: readonly ReadOp[], gone?: Uint8Array, signal?: AbortSignal): Promise<boolean[]> {
    for (const [index, op] of ops.entries()) checkReadOp(op, index, PAGE_MAX_BYTES);
    if (this.#closing !== undefined || signal?.aborted === true) {
      this.#failedHere += ops.length;
      return new Array<boolean>(ops.length).fill(false);
    }
    const byRdma: number[] = [];
    const overTcp: number[] = [];
    for (const [index, op] of ops.entries()) {
      if (!isSendable(op)) this.#failedHere++;
      else if (tcpHostAndPort(op.remoteEndpoint) !== undefined) overTcp.push(index);
      else byRdma.push(index);
    }
    if (overTcp.length === 0) return this.#readByRdma(ops, byRdma, gone, signal);
    const tcpGone = new Uint8Array(overTcp.length);
    const [results, tcpResults] = await Promise.all([
      this.#readByRdma(ops, byRdma, gone, signal),
      this.#tcp.batchRead(
        overTcp.map((index) => ops[index] as ReadOp),
        tcpGone,
        signal,
      ),
    ]);
    for (const [i, index] of overTcp.entries()) {
      results[index] = tcpResults[i] as boolean;
      if (gone !== undefined) gone[index] = tcpGone[i] as number;
    }
    return results;
  }

  localEndpoint(): string {
    return formatEndpoint(this.#endpoint);
  }

  localEndpoints(): { readonly rdma: Endpoint; readonly tcp: Endpoint } {
    return { rdma: this.#endpoint, ...this.#tcp.localEndpoints() };
  }

  /** A peer that did not answer by RDMA is tried again in the background, so that no read has to wait to find out. */
  isReachable(remoteEndpoint: string): boolean {
    if (tcpHostAndPort(remoteEndpoint) !== undefined) return this.#tcp.isReachable(remoteEndpoint);
    return this.#reader.isReachable(remoteEndpoint);
  }

  isServing(): boolean {
    return this.#tcp.isServing();
  }

  stats(): RdmaTransportStats {
    const tcp = this.#tcp.stats();
    const rdma = this.#channel.stats();
    return {
      readOps: tcp.readOps + rdma.readOps,
      readBytes: tcp.readBytes + rdma.readBytes,
      failedOps: tcp.failedOps + rdma.failedOps + this.#failedHere + this.#reader.skippedOps,
      checksumFailures: tcp.checksumFailures + rdma.checksumFailures,
      staleOps: tcp.staleOps + rdma.staleOps,
      servedOps: tcp.servedOps,
      servedBytes: tcp.servedBytes,
      refusedOps: tcp.refusedOps,
      protocolErrors: tcp.protocolErrors + rdma.protocolErrors,
      connections: tcp.connections + rdma.connections + rdma.acceptedConnections,
      reconnects: tcp.reconnects + rdma.reconnects,
      refusedConnections: tcp.refusedConnections + rdma.refusedConnections,
      rdma,
    };
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { clock, log } = this.#env;
    const released = this.#channel.close().then(() => {
      this.#memoryRegions.close();
      this.#destinations.close();
    });
    const [isReleased] = await Promise.all([within(clock, CLOSE_TIMEOUT_MS, released), this.#tcp.close()]);
    // What it still holds stays held: its reads have not ended, and their callers go on waiting.
    if (!isReleased) log.log('error', 'RDMA: the engine does not end', { after_ms: CLOSE_TIMEOUT_MS });
  }

  /** Reads those operations of `ops` that have these indices; the results of all others are false. */
  async #readByRdma(
    ops: readonly ReadOp[],
    indices: readonly number[],
    gone: Uint8Array | undefined,
    signal: AbortSignal | undefined,
  ): Promise<boolean[]> {
    const destinations = this.#destinations.use();
    try {
      const ready: number[] = [];
      for (const index of indices) {
        const op = ops[index] as ReadOp;
        if (this.#isReady(destinations, op, index) || (await this.#makeReady(destinations, op, index)))
          ready.push(index);
        else this.#failedHere++;
      }
      // Nothing is waited for from here on: what is added is still live when the engine gets it.
      const batch = this.#reader.batch(ops.length);
      for (const index of ready) {
        const op = ops[index] as ReadOp;
        if (signal?.aborted === true) {
          this.#failedHere++;
          continue;
        }
        // Memory may have been freed while other memory was made room for.
        if (!rangesOf(op).every(({ addr, length }) => length === 0 || regionOf(Number(addr), length) !== null)) {
          this.#failedHere++;
          continue;
        }
        if (!batch.addOp(index, op.remoteEndpoint, op.rkey, Number(op.remoteAddr), op)) continue;
        for (const { addr, length } of rangesOf(op)) addRange(batch, addr, length, index);
      }
      return await batch.run(gone);
    } finally {
      destinations.release();
    }
  }

  /** Sees to it that all local memory of an operation is registered. False: that cannot be as things are. */
  #isReady(destinations: DestinationUse, op: ReadOp, index: number): boolean {
    return rangesOf(op).every(({ addr, length }) => {
      const start = Number(addr);
      if (length === 0 || this.#memoryRegions.covers(start, length)) return true;
      return destinations.add(destinationRegion(addr, length, index), start, length);
    });
  }

  /** The same, once memory that nothing is read into has made room for it. */
  async #makeReady(destinations: DestinationUse, op: ReadOp, index: number): Promise<boolean> {
    while (await this.#destinations.makeRoom()) {
      if (this.#closing !== undefined) return false;
      if (this.#isReady(destinations, op, index)) return true;
    }
    return false;
  }

  #failed(status: OpStatusName): void {
    if (status !== 'checksum') return;
    this.#env.metrics.count('meshcache_checksum_failures_total', 1, { source: 'remote' });
  }

  /** @internal */
  verify(): void {
    this.#tcp.verify();
    this.#memoryRegions.verify();
    this.#destinations.verify();
    this.#reader.verify();
  }
}

/** The local memory of an operation. */
function rangesOf({ localAddr: addr, length, scatter }: ReadOp): readonly LocalRange[] {
  return scatter ?? [{ addr, length }];
}

/** Adds local memory to an operation, window by window as it is registered. */
function addRange(batch: ReaderBatch, addr: bigint, length: number, index: number): void {
  if (length === 0) return;
  const region = destinationRegion(addr, length, index);
  let at = Number(addr);
  for (let rest = length; rest > 0; ) {
    const take = Math.min(rest, windowRestBytes(region, at));
    batch.addPiece(at, take);
    at += take;
    rest -= take;
  }
}

/** The engine says in words what a connection has ended of. */
function authFailureOf({ message }: RdmaEvent): AuthFailureReason | undefined {
  if (message.includes("does not know the cluster's secret")) return 'wrong';
  return message.includes('has another secret') ? 'refused' : undefined;
}
