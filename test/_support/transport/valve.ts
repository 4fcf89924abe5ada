import net from 'node:net';
import type { ExecutionContext } from 'ava';
import { listenAlone } from '../support.js';

/** One connection through a {@link Valve}. */
export class ValveConnection {
  /** Bytes that the server has sent and the client has not received. */
  readonly #held: Buffer[] = [];
  readonly #client: net.Socket;
  #budgetBytes: number;
  heldBytes = 0;
  isClosed = false;

  constructor(client: net.Socket, server: net.Socket, budgetBytes: number) {
    this.#client = client;
    this.#budgetBytes = budgetBytes;
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.setNoDelay(true);
      from.on('error', () => {});
      from.on('close', () => {
        this.isClosed = true;
        to.destroy();
      });
    }
    client.on('data', (chunk) => server.write(chunk));
    server.on('data', (chunk: Buffer) => {
      this.#held.push(chunk);
      this.heldBytes += chunk.length;
      this.#flush();
    });
  }

  /** Bytes that were let through and the system has not taken yet. */
  get waitingBytes(): number {
    return this.#client.writableLength;
  }

  /** From now on nothing more reaches the client. */
  shut(): void {
    this.#budgetBytes = 0;
  }

  /** Lets that many more bytes through. */
  pass(bytes: number): void {
    this.#budgetBytes += bytes;
    this.#flush();
  }

  #flush(): void {
    while (this.#held.length > 0 && this.#budgetBytes > 0) {
      const chunk = this.#held.shift() as Buffer;
      const piece = chunk.subarray(0, this.#budgetBytes);
      if (piece.length < chunk.length) this.#held.unshift(chunk.subarray(piece.length));
      this.#budgetBytes -= piece.length;
      this.heldBytes -= piece.length;
      if (!this.#client.destroyed) this.#client.write(piece);
    }
  }
}

/**
 * Stands between a reader and a server, whatever they speak, and lets the server's bytes through under the control of a
 * test.
 */
export class Valve {
  readonly connections: ValveConnection[] = [];
  /** `host:port` of the valve. */
  readonly endpoint: string;
  /** Bytes that future connections let through at first. */
  budgetBytes = Number.POSITIVE_INFINITY;

  static async open(t: ExecutionContext, serverEndpoint: string): Promise<Valve> {
    const [host, port] = serverEndpoint.split(':') as [string, string];
    const listener = net.createServer();
    const valve = new Valve(`127.0.0.1:${await listenAlone(listener)}`);
    listener.on('connection', (client) => {
      const server = net.connect({ host, port: Number(port) });
      t.teardown(() => client.destroy());
      t.teardown(() => server.destroy());
      valve.connections.push(new ValveConnection(client, server, valve.budgetBytes));
    });
    t.teardown(() => listener.close());
    return valve;
  }

  private constructor(endpoint: string) {
    this.endpoint = endpoint;
  }

  get latest(): ValveConnection {
    return this.connections.at(-1) as ValveConnection;
  }
}
