import type { Endpoint } from './network.js';

/** An address of one of this host's interfaces. */
export interface HostAddress {
  readonly address: string;
  readonly family: 'IPv4' | 'IPv6';
  /** Whether only this host reaches the address (loopback). */
  readonly isInternal: boolean;
  /** Whether the address is valid only together with its interface. */
  readonly isLinkLocal: boolean;
}

/** Memory allocated by a {@link Host}. */
export interface HostMemory {
  /** The memory as consecutive views, which threads can share. All but the last have the same length. */
  readonly segments: readonly Uint8Array[];
  /** Address of the first byte, at least 1. Its address range overlaps no other memory that the process uses. */
  readonly start: number;
  /** Frees the memory. */
  release(): void;
}

/** Delays of the event loop since the observation began or was reset. */
export interface LoopObservation {
  /** Number of samples taken. */
  readonly count: number;
  /** The delay in seconds that `percent` of the samples did not exceed. */
  delayS(percent: number): number;
  /** Part of the time in which the event loop was busy, 0 to 1. */
  utilization(): number;
  /** Resets counts and delays. */
  beginAnew(): void;
  /** Ends sampling. Idempotent. */
  end(): void;
}

/** The machine and the process that a node runs in; a simulator or a test supplies its own. */
export interface Host {
  readonly name: string;
  readonly processId: number;
  /** Memory of the machine, or of the container if that may have less. */
  readonly memoryBytes: number;
  /** Home directory of the user; undefined: none. */
  readonly homePath?: string | undefined;
  /** Threads that can run at once. */
  readonly parallelism: number;
  /** Whether RDMA devices of the machine may be looked for. */
  readonly hasDevices: boolean;
  /**
   * Allocates `bytes` zeros for pages; undefined: the caller allocates them from the system, as `HostRegion.allocate`
   * does. Throws if there is not enough memory.
   */
  allocate(bytes: number): HostMemory | undefined;
  /**
   * Memory of `bytes` stored at a path, which a later process of this host finds again with its content; bytes that
   * were never written are zeros. If the method is missing, the caller maps a file of the system.
   */
  keep?(path: string, bytes: number): HostMemory;
  /** Starts to observe the event loop of this process, without keeping the process alive. */
  observeLoop(): LoopObservation;
  /** The value of an environment variable of this process; undefined: it is not set. Default: none is set. */
  variable?(name: string): string | undefined;
  /** Memory that this process can still allocate. */
  freeMemoryBytes(): number;
  /** Resident memory of this process. */
  residentBytes(): number;
  /** The addresses of a host name or address, in the system's order; empty if the name is unknown. */
  resolve(name: string): Promise<readonly string[]>;
  /** Addresses of all interfaces of this host, loopback included. */
  addresses(): readonly HostAddress[];
  /**
   * The local address from which the system would send to `target`, which must be an address, not a name. Rejects if
   * there is no route.
   */
  addressTowards(target: Endpoint): Promise<string>;
}
