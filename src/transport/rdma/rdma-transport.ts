import { assert } from '../../base/assert.js';
import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import {
  CLOSE_TIMEOUT_MS,
  PAGE_MAX_BYTES,
  RDMA_RETRY_AFTER_MS,
  RDMA_RETRY_MAX_MS,
  READ_MIN_BYTES_PER_S,
} from '../../base/limits.js';
import { regionOf } from '../../memory/address-space.js';
import type { HostRegion } from '../../memory/host-region.js';
import {
  ACCESS_LOCAL_WRITE,
  ACCESS_REMOTE_READ,
  type NativeAddon,
  type OpStatusName,
  type RailOptions,
  type RdmaEngineOptions,
  type RdmaEventCause,
} from '../../native/addon/contract.js';
import { EngineChannel, type EngineStats, engineOptions } from '../../native/engine/engine-channel.js';
import { type EngineEvent, EventLog } from '../../native/engine/engine-event.js';
import { EngineReader, type ReaderBatch } from '../../native/engine/engine-reader.js';
import type { AuthFailureReason } from '../../net/auth-failures.js';
import {
  type Address,
  checkReadOp,
  destinationRegion,
  isSendable,
  type LocalRange,
  type Mr,
  type ReadOp,
  type Transport,
  tcpHostAndPort,
} from '../contract/transport.js';
import type { TcpTransport, TcpTransportStats } from '../tcp/tcp-transport.js';
import { Destinations, type DestinationUse, windowRestBytes } from './destinations.js';

interface RdmaTransportOptions {
  readonly addon: NativeAddon;
  /** One rail per device. Peers are told the address and port of the first. */
  readonly rails: readonly RailOptions[];
  /** Transport for peers without RDMA. The RDMA transport takes ownership of it. */
  readonly tcp: TcpTransport;
  readonly env: Environment;
  /** Differentiated services code point of reads; undefined: that of the system. */
  readonly dscp?: number | undefined;
  /** First pause after a failure, for tests. */
  readonly retryAfterMs?: number;
  readonly engine?: Partial<RdmaEngineOptions>;
}

/** Causes of engine events that count as failed authentication. */
const AUTH_FAILURES: Readonly<Partial<Record<RdmaEventCause, AuthFailureReason>>> = {
  wrong_secret: 'wrong',
  refused_secret: 'refused',
};

interface RdmaTransportStats extends TcpTransportStats {
  /** Counters of the engine. */
  readonly rdma: EngineStats;
}

/**
 * Reads pages from the memory of peers over RDMA and lets peers read local pages. Uses TCP for peers without RDMA.
 *
 * Registered memory is readable over both protocols, under one rkey, so it must be visible to all threads. Memory that
 * only a part of the cluster could read would be useless, and an ArrayBuffer that is transferred to another thread
 * would be freed while the device uses it. Reads may write into any memory.
 *
 * Reads by peers over RDMA are not counted, because no local processor takes part in them.
 */
export class RdmaTransport implements Transport {
  readonly protocol = 'rdma';
  /** Names of the devices in use. */
  readonly deviceNames: readonly string[];
  readonly #tcp: TcpTransport;
  readonly #env: Environment;
  readonly #channel: EngineChannel;
  readonly #reader: EngineReader;
  readonly #memoryRegions: MemoryRegions;
  readonly #destinations: Destinations;
  readonly #endpoint: Endpoint;
  /** Operations that failed before they reached the engine. */
  #failedHere = 0;
  readonly #forget: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  /** Starts the engine, so that peers can connect. If it throws `RdmaError`, `tcp` still belongs to the caller. */
  constructor({ addon, rails, tcp, env, dscp, ...options }: RdmaTransportOptions) {
    const engine = engineOptions(rails, env.secrets?.reveal() ?? [], { dscp, ...options.engine });
    const events = new EventLog(env);
    const onEvent = (event: EngineEvent): void => {
      events.record(event);
      const reason = AUTH_FAILURES[event.cause];
      if (reason === undefined) return;
      env.metrics.count('meshcache_auth_failures_total', 1, { plane: 'rdma', reason });
      if (event.kind !== 'rejected_peer') return;
      const actor = { address: parseEndpoint(event.peer)?.host ?? event.peer };
      env.audit?.record({ action: 'connect', door: 'data', outcome: 'refused', actor, reason });
    };
    const channel = EngineChannel.open({ addon, engine, onEvent });
    this.#forget = env.secrets?.onRenewed((secrets) => channel.setSecrets(secrets));
    this.deviceNames = rails.map(({ deviceName }) => deviceName);
    this.#tcp = tcp;
    this.#env = env;
    this.#channel = channel;
    this.#endpoint = { host: (rails[0] as RailOptions).address, port: channel.ports[0] as number };
    this.#reader = new EngineReader({
      channel,
      clock: env.clock,
      retryAfterMs: options.retryAfterMs ?? RDMA_RETRY_AFTER_MS,
      retryMaxMs: RDMA_RETRY_MAX_MS,
      stallTimeoutMs: engine.stallTimeoutMs,
      minBytesPerS: READ_MIN_BYTES_PER_S,
      onFailure: (status) => this.#failed(status),
    });
    this.#memoryRegions = new MemoryRegions(channel);
    this.#destinations = new Destinations({
      channel,
      clock: env.clock,
      onFailure: (error) =>
        env.log.log('error', 'RDMA: memory cannot be registered, reads into it fail', { reason: error.message }),
    });
  }

  /**
   * Registers memory. Throws `ArgumentError`, also for memory that only one thread can see, `RdmaError` for memory that
   * cannot be registered with the device (the message says what to do), and `ClosedError`. Registering locks the
   * memory, which takes about as long as the system needs to provide it. Freeing the region deregisters it.
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
   * Reads. If a read is aborted, operations that the engine does not have yet end at once. The others end with their
   * completions or the engine's timeouts, because devices cannot cancel them.
   */
  async batchRead(ops: readonly ReadOp[], gone?: Uint8Array, signal?: CancelSignal): Promise<boolean[]> {
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

  /** Whether a peer answers. An unreachable peer is retried in the background, so that no read has to wait for it. */
  isReachable(remoteEndpoint: string): boolean {
    if (tcpHostAndPort(remoteEndpoint) !== undefined) return this.#tcp.isReachable(remoteEndpoint);
    return this.#reader.isReachable(remoteEndpoint);
  }

  unreachable(): ReadonlySet<string> {
    return this.#tcp.unreachable();
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
      unreachablePeers: tcp.unreachablePeers,
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
    this.#forget?.();
    const released = this.#channel.close().then(() => {
      this.#memoryRegions.close();
      this.#destinations.close();
    });
    const [isReleased] = await Promise.all([within(clock, CLOSE_TIMEOUT_MS, released), this.#tcp.close()]);
    // Memory that the engine still uses stays held: the reads into it have not ended, and their callers keep waiting.
    if (!isReleased) log.log('error', 'RDMA: the engine did not close in time', { after_ms: CLOSE_TIMEOUT_MS });
  }

  /** Reads the operations with these indices over RDMA; the results of all others are false. */
  async #readByRdma(
    ops: readonly ReadOp[],
    indices: readonly number[],
    gone: Uint8Array | undefined,
    signal: CancelSignal | undefined,
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
      // There is no await from here to `run`, so that memory that is added is still live when the engine gets it.
      const batch = this.#reader.batch(ops.length);
      for (const index of ready) {
        const op = ops[index] as ReadOp;
        if (signal?.aborted === true) {
          this.#failedHere++;
          continue;
        }
        // The memory may have been freed while `#makeReady` waited.
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

  /** Registers all local memory of an operation. Returns false if that is impossible now. */
  #isReady(destinations: DestinationUse, op: ReadOp, index: number): boolean {
    return rangesOf(op).every(({ addr, length }) => {
      const start = Number(addr);
      if (length === 0 || this.#memoryRegions.covers(start, length)) return true;
      return destinations.add(destinationRegion(addr, length, index), start, length);
    });
  }

  /**
   * Deregisters unused memory until all local memory of an operation can be registered. Resolves with false if nothing
   * is left to deregister.
   */
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

/** Adds local memory to an operation, split at the borders of windows. */
function addRange(batch: ReaderBatch, addr: Address, length: number, index: number): void {
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

interface MemoryRegion {
  readonly handle: number;
  readonly region: HostRegion;
  /** First address of the range; `end` is the address after the last. */
  readonly start: number;
  readonly end: number;
  /** Stops watching for the freeing of the region. */
  readonly unwatch: () => void;
}

/** Memory that peers may read over RDMA, by rkey, until it is deregistered or its region is freed. */
export class MemoryRegions {
  readonly #channel: EngineChannel;
  readonly #byRkey = new Map<number, MemoryRegion>();
  /** Deregistered or freed memory that devices may still use. */
  readonly #held = new Set<readonly Uint8Array[]>();

  constructor(channel: EngineChannel) {
    this.#channel = channel;
  }

  /**
   * Registers memory and returns its lkey. Throws `RdmaError` when the memory cannot be registered, and `ClosedError`.
   */
  add(region: HostRegion, start: number, length: number, rkey: number): number {
    const access = ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE;
    const { handle, lkey } = this.#channel.registerMr(start, length, rkey, access);
    const unwatch = region.onFree(() => void this.remove(rkey));
    this.#byRkey.set(rkey, { handle, region, start, end: start + length, unwatch });
    return lkey;
  }

  /** Deregisters the memory. Resolves when no device uses it any more; resolves at once if the rkey is unknown. */
  async remove(rkey: number): Promise<void> {
    const registered = this.#byRkey.get(rkey);
    if (registered === undefined) return;
    this.#byRkey.delete(rkey);
    registered.unwatch();
    const memory = registered.region.segments;
    this.#held.add(memory);
    await this.#channel.deregisterMr(registered.handle);
    this.#held.delete(memory);
  }

  /** Whether one registered range contains this one, so that reads into it need no registration of their own. */
  covers(start: number, length: number): boolean {
    for (const registered of this.#byRkey.values()) {
      if (start >= registered.start && start + length <= registered.end) return true;
    }
    return false;
  }

  /** Forgets everything; the channel must be closed, which releases it. */
  close(): void {
    for (const { unwatch } of this.#byRkey.values()) unwatch();
    this.#byRkey.clear();
  }

  /** Throws `InvariantError` unless every registered range lies in a live region. */
  verify(): void {
    for (const [rkey, { region, start, end }] of this.#byRkey) {
      const isWithin = region.isLive && start >= region.start && end <= region.start + region.length;
      assert(isWithin, () => `RDMA memory regions: rkey ${rkey}, from ${start} to ${end}, is in no live region`);
    }
  }
}
