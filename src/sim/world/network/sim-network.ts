import type { Connection, ConnectOptions, ListenOptions, Network, Server } from '../../../base/environment/network.js';
import type { Fabric } from './fabric.js';
import type { NetworkProcess } from './network-process.js';
import { SimServer } from './sim-server.js';

/** The network as one process sees it. It has no TLS. */
export class SimNetwork implements Network {
  readonly #process: NetworkProcess;
  readonly #fabric: Fabric;

  constructor(process: NetworkProcess, fabric: Fabric) {
    this.#process = process;
    this.#fabric = fabric;
  }

  connect(options: ConnectOptions): Connection {
    return this.#fabric.connect(this.#process, options);
  }

  createServer(options: ListenOptions, onConnection: (connection: Connection) => void): Server {
    return new SimServer({ fabric: this.#fabric, process: this.#process, options }, onConnection);
  }
}
