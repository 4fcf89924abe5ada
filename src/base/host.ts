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

/** The machine that a node runs on, and the process that it is; a simulator or a test hands in its own. */
export interface Host {
  readonly name: string;
  readonly processId: number;
  /** Of the machine. */
  readonly memoryBytes: number;
  /** Threads that can run at once. */
  readonly parallelism: number;
  /** Of the machine, now. */
  freeMemoryBytes(): number;
  /** Of this process, now. */
  residentBytes(): number;
  /** The addresses of a host name (or of an address itself), as the system orders them; empty when it is not known. */
  resolve(name: string): Promise<readonly string[]>;
  addresses(): readonly HostAddress[];
  /** The own address that the system would send to `target` from, which is an address and no name. Rejects where there is no route. */
  addressTowards(target: Endpoint): Promise<string>;
}
