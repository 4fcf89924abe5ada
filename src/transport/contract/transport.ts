import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ArgumentError } from '../../base/errors.js';
import { regionOf } from '../../memory/address-space.js';
import type { HostRegion } from '../../memory/host-region.js';
import type { DataProtocol } from '../../types.js';

const TCP_SCHEME = 'tcp://';

/** A registered memory region. A peer must present `rkey`, which is random and never reused, to read from it. */
export interface Mr {
  readonly addr: bigint;
  /** Bytes. */
  readonly length: number;
  readonly rkey: number;
  readonly lkey: number;
}

/** An address of host memory: below 2^53, so that a number holds it exactly. */
export type Address = bigint | number;

/** A piece of local memory. */
export interface LocalRange {
  readonly addr: Address;
  /** Bytes. */
  readonly length: number;
}

/** One read of `length` contiguous bytes of a peer's registered memory. */
export interface ReadOp {
  /** `host:port` of the peer's data plane in the transport's own protocol, or `tcp://host:port`. */
  readonly remoteEndpoint: string;
  /** Destination: `length` bytes of one live `HostRegion`, unless `scatter` is given. */
  readonly localAddr: Address;
  readonly remoteAddr: Address;
  readonly rkey: number;
  /** Bytes. */
  readonly length: number;
  /** Pieces of local memory that take the bytes in this order; their lengths add up to `length`. */
  readonly scatter?: readonly LocalRange[] | undefined;
  /** CRC-32 that the landed bytes must have; otherwise the result is false. */
  readonly checksum?: number | undefined;
  /**
   * Stamp that the last STAMP_BYTES landed bytes must be (see `memory/page-stamp.ts`); otherwise the result is false.
   * It is checked before the checksum.
   */
  readonly stamp?: number | undefined;
}

/** The endpoint `tcp://host:port`, which asks any transport for a read over TCP. */
export function tcpEndpointText(hostAndPort: string): string {
  return `${TCP_SCHEME}${hostAndPort}`;
}

/** The `host:port` of {@link tcpEndpointText}; undefined for any other endpoint. */
export function tcpHostAndPort(remoteEndpoint: string): string | undefined {
  return remoteEndpoint.startsWith(TCP_SCHEME) ? remoteEndpoint.slice(TCP_SCHEME.length) : undefined;
}

/** Counters of what a transport has read and served. */
export interface TransportStats {
  readonly readOps: number;
  readonly readBytes: number;
  /** Operations that ended false for any reason. */
  readonly failedOps: number;
  /** Operations whose bytes did not match the checksum: stale or damaged pages. */
  readonly checksumFailures: number;
  /** Operations whose bytes had another stamp: the page had been freed. */
  readonly staleOps: number;
  readonly servedOps: number;
  readonly servedBytes: number;
  /** Requests for memory that is not registered, or beyond its bounds. */
  readonly refusedOps: number;
  /** Connections closed because the peer did not speak the protocol. */
  readonly protocolErrors: number;
  readonly connections: number;
  readonly reconnects: number;
  /** Times that a peer has become unreachable over TCP. */
  readonly unreachablePeers: number;
}

/**
 * Moves pages between nodes. One test suite checks this contract for every implementation. An operation that ends true
 * has put exactly the remote bytes into the local range. Once the promise has resolved, nothing writes into any local
 * range any more, whatever the result.
 *
 * The local ranges of all operations in progress, in one batch or in several, must not overlap. If two overlap, one
 * overwrites the bytes of the other and both end true, because checksums are computed as the bytes arrive.
 */
export interface Transport {
  readonly protocol: DataProtocol;
  /**
   * Allows peers to read `length` bytes from `addr` on, which must lie in one live `HostRegion`. Throws
   * `ArgumentError`.
   */
  registerMr(addr: bigint, length: number): Mr;
  /** Deregisters memory; resolves when no peer can start a read of it any more. */
  deregisterMr(mr: Mr): Promise<void>;
  /**
   * Reads, and resolves with one result per operation, in order. Failed operations do not reject the promise. Throws
   * `ArgumentError` for local memory that is not live. `gone` has one element per operation. It is set (to a number of
   * `Gone`) if the peer answered and does not have the page: the memory is not registered, or the stamp or checksum
   * differs. For all other operations it stays unchanged.
   *
   * When `signal` is aborted, before or during the call, pending operations end false as soon as nothing can write into
   * their local memory any more; then the promise resolves. Over TCP this takes at most READ_ABORT_GRACE_MS. Over RDMA
   * no operation starts after the abort, but posted ones end as usual, because devices cannot cancel them. An abort
   * does not make a peer count as unreachable. The listener is removed from the signal.
   */
  batchRead(ops: readonly ReadOp[], gone?: Uint8Array, signal?: CancelSignal): Promise<boolean[]>;
  /** The `host:port` to advertise. */
  localEndpoint(): string;
  /** Endpoints that peers can read from, by protocol. An RDMA transport also serves TCP. */
  localEndpoints(): Readonly<Partial<Record<DataProtocol, Endpoint>>>;
  /**
   * Whether the peer answered the last attempt, or was never tried. Reads from unreachable peers end false at once;
   * such peers are retried in the background.
   */
  isReachable(remoteEndpoint: string): boolean;
  /** The `host:port` of each peer that is unreachable over TCP. */
  unreachable(): ReadonlySet<string>;
  /** Whether peers can read from this node. If not, the log says why. */
  isServing(): boolean;
  /** Current counts, and counters since the start. */
  stats(): TransportStats;
  /** Closes the transport within seconds; pending reads end false. Idempotent. */
  close(): Promise<void>;
  /** @internal Throws `InvariantError` unless its connections, requests and memory are consistent. */
  verify(): void;
}

/**
 * Checks an operation and returns the region that its bytes go to, or undefined if it has a scatter list, whose ranges
 * are checked instead. Throws `ArgumentError` for a malformed operation and for local memory that is not live. `index`
 * is the operation's position in the batch, for the message.
 */
export function checkReadOp(op: ReadOp, index: number, maxBytes: number): HostRegion | undefined {
  if (!Number.isInteger(op.length) || op.length < 0 || op.length > maxBytes) {
    throw new ArgumentError(
      `batchRead: operation ${index}: length must be a whole number of 0 to ${maxBytes} bytes, got ${String(op.length)}`,
    );
  }
  if (op.checksum !== undefined && op.checksum >>> 0 !== op.checksum) {
    throw new ArgumentError(
      `batchRead: operation ${index}: checksum must be a whole number of 0 to 2^32 - 1, got ${String(op.checksum)}`,
    );
  }
  if (op.stamp !== undefined && !(Number.isSafeInteger(op.stamp) && op.stamp >= 0 && op.stamp < 2 ** 48)) {
    throw new ArgumentError(
      `batchRead: operation ${index}: stamp must be a whole number of 0 to 2^48 - 1, got ${String(op.stamp)}`,
    );
  }
  if (op.scatter === undefined) return destinationRegion(op.localAddr, op.length, index);
  checkScatter(op.scatter, op.length, index);
  return undefined;
}

/** The live region that contains the range. Throws `ArgumentError` if there is none. */
export function destinationRegion(addr: Address, length: number, index: number): HostRegion {
  const isAddress = typeof addr === 'bigint' || Number.isSafeInteger(addr);
  const region = isAddress && Number.isInteger(length) ? regionOf(Number(addr), length) : null;
  if (region !== null) return region;
  throw new ArgumentError(
    `batchRead: operation ${index}: ${String(length)} bytes from local address ${String(addr)} on are not within a live HostRegion`,
  );
}

/** Whether an operation can be sent to a peer: its endpoint is a string, and `rkey` and address fit their fields. */
export function isSendable({ remoteEndpoint, rkey, remoteAddr }: ReadOp): boolean {
  const from = Number(remoteAddr);
  return typeof remoteEndpoint === 'string' && Number.isSafeInteger(from) && from >= 0 && rkey >>> 0 === rkey;
}

function checkScatter(scatter: readonly LocalRange[], length: number, index: number): void {
  let totalBytes = 0;
  for (const range of scatter) {
    destinationRegion(range.addr, range.length, index);
    totalBytes += range.length;
  }
  if (totalBytes !== length) {
    throw new ArgumentError(
      `batchRead: operation ${index}: the scatter ranges have ${totalBytes} bytes in all, its length is ${length}`,
    );
  }
}
