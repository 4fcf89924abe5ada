import { assert } from '../../base/assert.js';
import { type CancelSignal, onAbort } from '../../base/concurrency/cancellation.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { ArgumentError, ClosedError } from '../../base/errors.js';
import { regionOf } from '../../memory/address-space.js';
import type { HostRegion } from '../../memory/host-region.js';
import { NO_STAMP } from '../../memory/page-stamp.js';
import {
  checkReadOp,
  destinationRegion,
  isSendable,
  type LocalRange,
  type Mr,
  type ReadOp,
  type Transport,
  type TransportStats,
  tcpHostAndPort,
} from '../contract/transport.js';
import { type TcpLimits, tcpLimits } from './protocol/limits.js';
import { NO_CHECKSUM, ReadBatch, ReadRequest } from './reading/read-request.js';
import { Readers, type ReadersOptions } from './reading/readers.js';
import { registrationOf } from './serving/registrations.js';
import { ServingThreads } from './serving/serving-threads.js';

interface TcpTransportOptions {
  /** Address to listen on, and to advertise. */
  readonly host: string;
  /** Port to listen on; 0 (default): any free one. */
  readonly port?: number;
  readonly env: Environment;
  /**
   * Threads that receive and verify pages, and threads that serve them. 1 (default): the calling thread receives, and
   * one thread serves.
   */
  readonly threads?: number;
  /** Differentiated services code point of all connections. Default: that of the system. */
  readonly dscp?: number | undefined;
  /** Other limits, for tests. */
  readonly limits?: Partial<TcpLimits>;
}

export interface TcpTransportStats extends TransportStats {
  /** Connections of peers that were refused because there were too many. */
  readonly refusedConnections: number;
}

/**
 * Reads pages of peers over TCP and serves local pages.
 *
 * Reading runs on the caller's thread, directly into the destination, or on several threads of its own. Serving runs
 * on separate threads, out of the same shared memory, so that a busy main thread does not delay peers. The threads keep
 * the process alive until `close()`, as a listening server does.
 */
export class TcpTransport implements Transport {
  readonly protocol = 'tcp';
  readonly #endpoint: Endpoint;
  readonly #env: Environment;
  readonly #limits: TcpLimits;
  readonly #serving: ServingThreads;
  readonly #readers: Readers;
  readonly #usedRkeys = new Set<number>();
  /** Functions that stop watching for the freeing of a region, by rkey. */
  readonly #freeWatches = new Map<number, () => void>();
  #closing: Promise<void> | undefined;

  /** Resolves when peers can connect. Throws `ConfigError` if it cannot listen at the address. */
  static async create(options: TcpTransportOptions): Promise<TcpTransport> {
    const { host, port = 0, env, threads = 1, dscp } = options;
    const limits = tcpLimits(options.limits);
    const serving = await ServingThreads.start({ host, port, limits, env, threads, dscp });
    return new TcpTransport({ host, port: serving.port }, serving, { limits, env, threads, dscp });
  }

  private constructor(endpoint: Endpoint, serving: ServingThreads, reading: ReadersOptions) {
    const { limits, env } = reading;
    this.#endpoint = endpoint;
    this.#serving = serving;
    this.#limits = limits;
    this.#env = env;
    this.#readers = new Readers(reading);
  }

  /**
   * Registers memory. Throws `ArgumentError`, also for memory that the serving thread cannot see, and `ClosedError`.
   * Freeing the region deregisters it.
   */
  registerMr(addr: bigint, length: number): Mr {
    if (this.#closing !== undefined) throw new ClosedError('the TCP transport');
    const start = typeof addr === 'bigint' ? Number(addr) : Number.NaN;
    const region = Number.isSafeInteger(length) && length > 0 ? regionOf(start, length) : null;
    if (region === null) {
      throw new ArgumentError(
        `registerMr: ${String(length)} bytes from address ${String(addr)} on are not within a live HostRegion`,
      );
    }
    if (!region.isShared) {
      throw new ArgumentError(
        'registerMr: this region wraps memory that only one thread can see, and TCP serves from another; use HostRegion.allocate, or wrap a SharedArrayBuffer',
      );
    }
    const rkey = this.#newRkey();
    this.#serving.register(registrationOf(region, rkey, start, length));
    const freed = region.onFree(() => void this.#deregister(rkey));
    this.#freeWatches.set(rkey, freed);
    return { addr, length, rkey, lkey: rkey };
  }

  deregisterMr(mr: Mr): Promise<void> {
    return this.#deregister(mr.rkey);
  }

  /**
   * Reads. Aborted operations end at once, unless the socket holds their memory for the next bytes. Such operations end
   * when the bytes arrive, or after READ_ABORT_GRACE_MS together with the connection; its other requests are then sent
   * again over another connection.
   */
  async batchRead(ops: readonly ReadOp[], gone?: Uint8Array, signal?: CancelSignal): Promise<boolean[]> {
    const batch = new ReadBatch(ops.length, gone);
    const plans = planReads(ops, batch, { ...this.#limits, requestTargetBytes: this.#readers.requestTargetBytes(ops) });
    this.#readers.ownCounters.add('failedOps', batch.finishedOps);
    const isOver = this.#closing !== undefined || signal?.aborted === true;
    for (const { endpoint, requests } of plans) {
      if (!isOver) this.#readers.submit(tcpHostAndPort(endpoint) ?? endpoint, requests);
      else for (const request of requests) this.#readers.ownCounters.add('failedOps', request.failRest());
    }
    // A batch that was aborted before it began has ended, and its listener would never be called.
    return signal === undefined || signal.aborted ? batch.done : this.#untilAborted(batch, plans, signal);
  }

  localEndpoint(): string {
    return formatEndpoint(this.#endpoint);
  }

  localEndpoints(): { readonly tcp: Endpoint } {
    return { tcp: this.#endpoint };
  }

  isReachable(remoteEndpoint: string): boolean {
    return this.#readers.isReachable(tcpHostAndPort(remoteEndpoint) ?? remoteEndpoint);
  }

  unreachable(): ReadonlySet<string> {
    return this.#readers.unreachable;
  }

  isServing(): boolean {
    return this.#serving.isServing;
  }

  stats(): TcpTransportStats {
    const reading = this.#readers;
    const serving = this.#serving;
    return {
      readOps: reading.total('readOps'),
      readBytes: reading.total('readBytes'),
      failedOps: reading.total('failedOps'),
      checksumFailures: reading.total('checksumFailures'),
      staleOps: reading.total('staleOps'),
      servedOps: serving.total('servedOps'),
      servedBytes: serving.total('servedBytes'),
      refusedOps: serving.total('refusedOps'),
      protocolErrors: reading.total('protocolErrors') + serving.total('protocolErrors'),
      connections: reading.total('connections') + serving.total('connections'),
      reconnects: reading.total('reconnects'),
      unreachablePeers: reading.total('unreachablePeers'),
      refusedConnections: serving.total('refusedConnections'),
    };
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const reading = this.#readers.close();
    for (const unwatch of this.#freeWatches.values()) unwatch();
    this.#freeWatches.clear();
    await Promise.all([reading, this.#serving.close()]);
  }

  #untilAborted(batch: ReadBatch, plans: readonly PeerPlan[], signal: CancelSignal): Promise<boolean[]> {
    const stop = onAbort(signal, () => {
      for (const { endpoint } of plans) this.#readers.abort(tcpHostAndPort(endpoint) ?? endpoint, batch);
    });
    return batch.done.finally(stop);
  }

  #deregister(rkey: number): Promise<void> {
    this.#freeWatches.get(rkey)?.();
    this.#freeWatches.delete(rkey);
    return this.#serving.deregister(rkey);
  }

  /** A random rkey that this transport has not given out before. */
  #newRkey(): number {
    for (;;) {
      const rkey = this.#env.random.u32();
      if (rkey === 0 || this.#usedRkeys.has(rkey)) continue;
      this.#usedRkeys.add(rkey);
      return rkey;
    }
  }

  /** @internal */
  verify(): void {
    this.#readers.verify();
    for (const rkey of this.#freeWatches.keys()) {
      assert(
        this.#usedRkeys.has(rkey),
        () => `TCP transport: memory is registered with rkey ${rkey}, which was not given out`,
      );
    }
  }
}

/** The requests to one peer, in the order of sending. */
interface PeerPlan {
  readonly endpoint: string;
  readonly requests: ReadRequest[];
}

/**
 * Groups the operations of a batch into requests, peer by peer. Throws `ArgumentError`, before anything is sent, for
 * local memory that is not live and for malformed operations: an error while requests are sent would leave earlier ones
 * in flight. Operations that no peer can grant end false at once (the endpoint is not a string, or `rkey` or address do
 * not fit their fields).
 */
function planReads(ops: readonly ReadOp[], batch: ReadBatch, limits: TcpLimits): PeerPlan[] {
  const plans = new Map<string, PeerPlan>();
  let plan: PeerPlan | undefined;
  let request: ReadRequest | undefined;
  for (let index = 0; index < ops.length; index++) {
    const op = ops[index] as ReadOp;
    const region = checkReadOp(op, index, limits.readMaxBytes);
    if (!isSendable(op)) {
      batch.finish(index, false);
      continue;
    }
    if (plan === undefined || plan.endpoint !== op.remoteEndpoint) {
      plan = planFor(plans, op.remoteEndpoint);
      request = plan.requests.at(-1);
    }
    if (request === undefined || isFull(request, op.length, limits)) {
      request = new ReadRequest(batch);
      plan.requests.push(request);
    }
    const checksum = op.checksum === undefined ? NO_CHECKSUM : op.checksum;
    const { rkey, length, stamp = NO_STAMP } = op;
    request.beginOp({ index, rkey, remoteAddr: Number(op.remoteAddr), length, checksum, stamp });
    if (region !== undefined) addPieces(request, region, Number(op.localAddr), op.length);
    else addScatter(request, op.scatter ?? [], index);
    request.endOp();
  }
  return [...plans.values()];
}

function planFor(plans: Map<string, PeerPlan>, endpoint: string): PeerPlan {
  let plan = plans.get(endpoint);
  if (plan === undefined) {
    plan = { endpoint, requests: [] };
    plans.set(endpoint, plan);
  }
  return plan;
}

function isFull(request: ReadRequest, moreBytes: number, limits: TcpLimits): boolean {
  return request.opCount >= limits.requestMaxOps || request.totalBytes + moreBytes > limits.requestTargetBytes;
}

/** Adds the memory of a range in a region, segment by segment. */
function addPieces(request: ReadRequest, region: HostRegion, start: number, length: number): void {
  let offset = start - region.start;
  for (let rest = length; rest > 0; ) {
    const segmentIndex = Math.floor(offset / region.segmentBytes);
    const segment = region.segments[segmentIndex] as Uint8Array;
    const at = offset - segmentIndex * region.segmentBytes;
    const room = segment.length - at;
    // A segment that its owner has transferred has no room. The request is dropped when this piece is due.
    const take = room > 0 ? Math.min(rest, room) : rest;
    request.addPiece(segment, at, take);
    offset += take;
    rest -= take;
  }
}

function addScatter(request: ReadRequest, scatter: readonly LocalRange[], index: number): void {
  for (const { addr, length } of scatter) {
    addPieces(request, destinationRegion(addr, length, index), Number(addr), length);
  }
}
