import type { SimFiles } from '../files/sim-files.js';
import type { KernelProcess } from '../kernel/kernel-process.js';
import type { HostNetwork } from './host-network.js';
import type { SimConnection } from './sim-connection.js';
import type { SimServer } from './sim-server.js';

/** A simulated process, as far as the network knows it. */
export interface NetworkProcess extends KernelProcess {
  /** The network of the process's host. */
  readonly network: HostNetwork;
  /** Paths of Unix sockets are names in the file system. */
  readonly files: SimFiles;
  readonly connections: Set<SimConnection>;
  readonly servers: Set<SimServer>;
}
