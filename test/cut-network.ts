import net from 'node:net';
import type { Connection, Network } from '../src/base/network.js';
import { systemNetwork } from '../src/base/system-network.js';

/**
 * The network between hosts of one machine (127.0.0.1, 127.0.0.2, ...) that can be cut: connections between two sides end, new
 * ones are never made, as if packets were dropped.
 */
export class CutNetwork {
  readonly #sockets = new Set<{ readonly from: string; readonly to: string; readonly socket: Connection }>();
  #isCut: (from: string, to: string) => boolean = () => false;

  /** What the nodes of a host connect by. */
  of(from: string): Network {
    return {
      createServer: systemNetwork.createServer,
      connect: (options) => {
        const to = 'host' in options ? options.host : '';
        const socket: Connection = this.#isCut(from, to) ? new net.Socket() : systemNetwork.connect(options);
        const entry = { from, to, socket };
        this.#sockets.add(entry);
        socket.once('close', () => this.#sockets.delete(entry));
        return socket;
      },
    };
  }

  /** These hosts and all others reach only those of their own side. */
  isolate(...hosts: string[]): void {
    this.#isCut = (from, to) => hosts.includes(from) !== hosts.includes(to);
    for (const { from, to, socket } of this.#sockets) if (this.#isCut(from, to)) socket.destroy();
  }

  /** Only what `from` sends to `to` is lost. */
  cutOneWay(from: string, to: string): void {
    this.#isCut = (a, b) => a === from && b === to;
    for (const { from: a, to: b, socket } of this.#sockets) if (this.#isCut(a, b)) socket.destroy();
  }

  heal(): void {
    this.#isCut = () => false;
  }
}
