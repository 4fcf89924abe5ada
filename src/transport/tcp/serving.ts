import type net from 'node:net';
import type { Environment } from '../../base/environment.js';
import type { TcpLimits } from './limits.js';
import type { Registrations } from './registrations.js';
import { ServingConnection } from './serving-connection.js';
import type { ServingCounters } from './serving-counters.js';

export interface ServingParts {
  readonly registrations: Registrations;
  readonly counters: ServingCounters;
  readonly limits: TcpLimits;
  readonly env: Environment;
}

/** Idle readers that vanish without a word are noticed by the kernel's probes after about this long. */
const KEEP_ALIVE_DELAY_MS = 60_000;

/** The listening side: answers the reads of peers out of registered memory. */
export class Serving {
  readonly #parts: ServingParts;
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();

  constructor(parts: ServingParts) {
    this.#parts = parts;
    const options = { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS };
    this.#server = parts.env.network.createServer(options, (socket) => this.#accepted(socket));
    this.#server.maxConnections = parts.limits.connectionsMaxCount;
    this.#server.on('drop', () => parts.counters.add('refusedConnections', 1));
  }

  /** Resolves with the port listened on (`port` 0: a free one); rejects with the error of `listen`. */
  start(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port }, () => {
        this.#server.off('error', reject);
        // Later errors concern single connections that could not be accepted (no descriptors left).
        this.#server.on('error', () => this.#parts.counters.add('refusedConnections', 1));
        resolve((this.#server.address() as net.AddressInfo).port);
      });
    });
  }

  /** Ends every connection at once and resolves when the port is free. */
  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      for (const socket of this.#sockets) socket.destroy();
    });
  }

  #accepted(socket: net.Socket): void {
    const { registrations, counters, limits, env } = this.#parts;
    this.#sockets.add(socket);
    counters.add('connections', 1);
    socket.on('close', () => {
      this.#sockets.delete(socket);
      counters.add('connections', -1);
    });
    new ServingConnection({ socket, registrations, counters, limits, clock: env.clock });
  }
}
