import type { Endpoint } from './network.js';

/** An address of one of this host's interfaces. */
export interface HostAddress {
  readonly address: string;
  readonly family: 'IPv4' | 'IPv6';
  /** Reached by this host alone (loopback). */
  readonly isInternal: boolean;
  /** Means something only together with the interface that it is on. */
  readonly isLinkLocal: boolean;
}

/** Memory that a {@link Host} has given. */
export interface HostMemory {
  /** One after the other they have all of its bytes, in memory that threads share; all but the last are equally long. */
  readonly segments: readonly Uint8Array[];
  /** Address of the first byte, a whole number from 1 on: no other memory of the process that is in use has any of its addresses. */
  readonly start: number;
  /** Gives it back. */
  release(): void;
}

/** How late the event loop has been since the observation was begun, or begun anew. */
export interface LoopObservation {
  /** Samples taken; without any, there is no delay. */
  readonly count: number;
  /** Seconds within which `percent` of the samples were late. */
  delayS(percent: number): number;
  /** Part of the time in which the event loop was at work, 0 to 1. */
  utilization(): number;
  /** Counts and delays begin at nothing again. */
  beginAnew(): void;
  /** Takes no more samples. Idempotent. */
  end(): void;
}

/** The machine that a node runs on, and the process that it is; a simulator or a test hands in its own. */
export interface Host {
  readonly name: string;
  readonly processId: number;
  /** Of the machine. */
  readonly memoryBytes: number;
  /** Threads that can run at once. */
  readonly parallelism: number;
  /** Whether RDMA devices of the machine may be looked for. */
  readonly hasDevices: boolean;
  /** New memory of `bytes` zeros for pages; undefined: the system is to be asked, as by `HostRegion.allocate`. Throws when there is none. */
  allocate(bytes: number): HostMemory | undefined;
  /** Begins to observe the event loop of this process, which does not keep the process alive. */
  observeLoop(): LoopObservation;
  /** Of the machine, now. */
  freeMemoryBytes(): number;
  /** Of this process, now. */
  residentBytes(): number;
  /** The addresses of a host name (or of an address itself), as the system orders them; empty when it is not known. */
  resolve(name: string): Promise<readonly string[]>;
  /** Those of its interfaces, loopback included. */
  addresses(): readonly HostAddress[];
  /** The own address that the system would send to `target` from, which is an address and no name. Rejects where there is no route. */
  addressTowards(target: Endpoint): Promise<string>;
}
