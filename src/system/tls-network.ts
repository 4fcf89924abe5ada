import type net from 'node:net';
import tls from 'node:tls';
import type { Connection, ListenOptions, Network } from '../base/environment/network.js';
import type { TlsIdentity } from '../base/environment/tls-identity.js';
import { HANDSHAKES_PENDING_MAX_COUNT, TLS_HANDSHAKE_TIMEOUT_MS } from '../base/limits.js';
import { PendingConnections } from '../net/pending-connections.js';

/** A network of TLS 1.3 sockets that accepts only peers with a certificate of the authority; `refused` gets the addresses of the others. */
export function tlsNetwork(identity: TlsIdentity, refused: (address: string) => void): Network {
  const credentials = { ...identity.reveal(), minVersion: 'TLSv1.3' } as const;
  const secureContext = tls.createSecureContext(credentials);
  return {
    connect(options) {
      const socket = tls.connect({
        ...options,
        secureContext,
        rejectUnauthorized: true,
        // Names are not checked, because addresses of nodes change: every holder of a certificate of the cluster's own authority is a node.
        checkServerIdentity: () => undefined,
      });
      // A TLS socket ignores these options of plain sockets.
      const { noDelay, keepAlive, keepAliveInitialDelay } = options;
      if (noDelay) socket.setNoDelay(true);
      if (keepAlive) socket.setKeepAlive(true, keepAliveInitialDelay);
      return socket;
    },
    createServer: ({ admit, ...options }, onConnection) =>
      new TlsServer({ ...options, ...credentials }, { onConnection, refused, admit }),
  };
}

interface TlsServerEvents {
  readonly refused: (address: string) => void;
  readonly admit: ListenOptions['admit'];
  onConnection(connection: Connection): void;
}

/** A server that hands out connections after their TLS handshake; pending handshakes are limited in number and time. */
class TlsServer extends tls.Server {
  readonly #pending = new PendingConnections<net.Socket>(HANDSHAKES_PENDING_MAX_COUNT, (socket) => socket.destroy());
  /** Plain sockets by the addresses of both ends, which is all that a TLS socket has in common with the plain one below it. */
  readonly #raw = new Map<string, net.Socket>();

  readonly #admit: TlsServerEvents['admit'];

  constructor(options: tls.TlsOptions, { onConnection, refused, admit }: TlsServerEvents) {
    super({
      ...options,
      requestCert: true,
      rejectUnauthorized: true,
      handshakeTimeout: TLS_HANDSHAKE_TIMEOUT_MS,
    });
    this.#admit = admit;
    this.on('connection', (socket: net.Socket) => this.#accepted(socket));
    this.on('secureConnection', (socket) => {
      this.#settled(connectionName(socket));
      onConnection(socket);
    });
    this.on('tlsClientError', (_, socket) => refused(socket.remoteAddress ?? 'a peer that has gone'));
  }

  dropPending(): void {
    this.#pending.dropAll();
  }

  /** Drops connections that are not admitted before any listener, of which that of TLS is the first, sees them. */
  override emit(event: string | symbol, ...values: unknown[]): boolean {
    if (event === 'connection' && this.#admit?.(values[0] as net.Socket) === false) return true;
    return super.emit(event as string, ...values);
  }

  #accepted(socket: net.Socket): void {
    const name = connectionName(socket);
    this.#raw.set(name, socket);
    this.#pending.add(socket);
    socket.once('close', () => this.#settled(name));
  }

  #settled(name: string): void {
    const socket = this.#raw.get(name);
    if (socket === undefined) return;
    this.#raw.delete(name);
    this.#pending.delete(socket);
  }
}

function connectionName(socket: net.Socket): string {
  return [socket.remoteAddress, socket.remotePort, socket.localAddress, socket.localPort].join(' ');
}
