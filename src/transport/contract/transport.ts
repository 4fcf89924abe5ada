import type { Endpoint } from '../../base/environment/network.js';
import type { DataProtocol } from '../../types.js';

const TCP_SCHEME = 'tcp://';

/** A registered memory region. `rkey` is what a peer must show to read from it: random, never used twice. */
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
  /** `host:port` of the peer's data plane, of the transport's own protocol; or `tcp://host:port`. */
  readonly remoteEndpoint: string;
  /** Where the bytes go: `length` bytes of one live `HostRegion`, unless `scatter` is given. */
  readonly localAddr: Address;
  readonly remoteAddr: Address;
  readonly rkey: number;
  /** Bytes. */
  readonly length: number;
  /** Pieces of local memory that take the bytes in this order; their lengths add up to `length`. */
  readonly scatter?: readonly LocalRange[] | undefined;
  /** CRC-32 that the bytes must have once they have landed; another one makes the result false. */
  readonly checksum?: number | undefined;
  /** What the last STAMP_BYTES bytes must be once they have landed (see `memory/page-stamp.ts`), looked at before the checksum; another one makes the result false. */
  readonly stamp?: number | undefined;
}

/** How a read over TCP is asked for, whatever the transport's own protocol: `tcp://host:port`. */
export function tcpEndpointText(hostAndPort: string): string {
  return `${TCP_SCHEME}${hostAndPort}`;
}

/** The `host:port` of {@link tcpEndpointText}; undefined for any other endpoint. */
export function tcpHostAndPort(remoteEndpoint: string): string | undefined {
  return remoteEndpoint.startsWith(TCP_SCHEME) ? remoteEndpoint.slice(TCP_SCHEME.length) : undefined;
}

/** What a transport has read for its node and served to others. */
export interface TransportStats {
  readonly readOps: number;
  readonly readBytes: number;
  /** Operations that ended false, whatever the reason. */
  readonly failedOps: number;
  /** Operations whose bytes did not have the checksum asked for: stale or damaged pages caught. */
  readonly checksumFailures: number;
  /** Operations whose bytes did not have the stamp asked for: pages that had been freed. */
  readonly staleOps: number;
  readonly servedOps: number;
  readonly servedBytes: number;
  /** Requests for memory that is not registered (any more), or out of its bounds. */
  readonly refusedOps: number;
  /** Connections closed because the peer did not speak the protocol. */
  readonly protocolErrors: number;
  readonly connections: number;
  readonly reconnects: number;
}

/**
 * Moves pages between nodes. One contract, checked by one test suite for every implementation:
 * an operation that ends true has put exactly the remote bytes into the local range; after the
 * promise has resolved nothing writes into any local range any more, whatever the result.
 *
 * The local ranges of all operations under way, of one batch or of several, must not overlap. That is
 * the caller's to see to: of two that do, one overwrites what the other has put there, and both end
 * true, because a checksum is taken of the bytes as they arrive.
 */
export interface Transport {
  readonly protocol: DataProtocol;
  /** Allows peers to read `length` bytes from `addr` on (they must lie in one live `HostRegion`). Throws `ArgumentError`. */
  registerMr(addr: bigint, length: number): Mr;
  /** Resolves when no peer can start a read of it any more. */
  deregisterMr(mr: Mr): Promise<void>;
  /**
   * One result per operation, in order. Never rejects for an operation that failed; throws `ArgumentError` for local memory that is not live.
   * `gone`, one element an operation, is set to 1 where the peer has answered, and what was asked for is not there: the memory is not
   * registered, or stamp or checksum are others. Of an operation that ends false for any other reason it is not known.
   *
   * When `signal` is aborted, before the call or during it, operations that have not ended end false as soon as nothing can write into
   * their local memory any more, and the promise resolves then. Over TCP that is within READ_ABORT_GRACE_MS. By RDMA nothing is begun
   * after the abort, and what the devices have been given ends as it would without a signal: it cannot be called back. An abort does not
   * make a peer count as unreachable. No listener stays on the signal.
   */
  batchRead(ops: readonly ReadOp[], gone?: Uint8Array, signal?: AbortSignal): Promise<boolean[]>;
  /** `host:port` to advertise. */
  localEndpoint(): string;
  /** Where peers can read from, by protocol: an RDMA transport serves TCP too. */
  localEndpoints(): Readonly<Partial<Record<DataProtocol, Endpoint>>>;
  /**
   * Whether a peer answered when it was last tried, or has not been tried. Reads from one that did not may end false at once.
   */
  isReachable(remoteEndpoint: string): boolean;
  /** False: peers cannot read from this node, now or for good, which the log has told. */
  isServing(): boolean;
  /** Counts of now, and counters since the start. */
  stats(): TransportStats;
  /** Idempotent; ends within seconds; pending reads end false. */
  close(): Promise<void>;
  /** @internal Throws `InvariantError` unless what it keeps of connections, requests and memory agrees. */
  verify(): void;
}
