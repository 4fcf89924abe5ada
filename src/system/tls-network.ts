import type net from 'node:net';
import tls from 'node:tls';
import type { ListenOptions, Network } from '../base/environment/network.js';
import type { TlsIdentity, TlsTexts } from '../base/environment/tls-identity.js';
import { HANDSHAKES_PENDING_MAX_COUNT, TLS_HANDSHAKE_TIMEOUT_MS } from '../base/limits.js';
import { PendingConnections } from '../net/pending-connections.js';

/** A network of TLS 1.3 sockets that accepts only peers with a certificate of the authority, and with one of the names if there are any; `refused` gets the addresses of the others. */
export function tlsNetwork(identity: TlsIdentity, refused: (address: string) => void): Network {
  let secureContext = tls.createSecureContext(credentialsOf(identity.reveal()));
  identity.onRenewed((texts) => {
    secureContext = tls.createSecureContext(credentialsOf(texts));
  });
  return {
    connect(options) {
      const socket = tls.connect({
        ...options,
        secureContext,
        rejectUnauthorized: true,
        // The address is no part of it, because addresses of nodes change.
        checkServerIdentity: (_, certificate) => strangeness(certificate, identity.reveal()),
      });
      // A TLS socket ignores these options of plain sockets.
      const { noDelay, keepAlive, keepAliveInitialDelay } = options;
      if (noDelay) socket.setNoDelay(true);
      if (keepAlive) socket.setKeepAlive(true, keepAliveInitialDelay);
      return socket;
    },
    createServer({ admit, ...options }, onConnection) {
      const accepted = (socket: tls.TLSSocket): void => {
        if (strangeness(socket.getPeerCertificate(), identity.reveal()) === undefined) {
          onConnection(socket);
          return;
        }
        refused(socket.remoteAddress ?? 'a peer that has gone');
        socket.destroy();
      };
      const events = { onConnection: accepted, refused, admit };
      const server = new TlsServer({ ...options, ...credentialsOf(identity.reveal()) }, events);
      server.once(
        'close',
        identity.onRenewed((texts) => server.setSecureContext(credentialsOf(texts))),
      );
      return server;
    },
  };
}

function credentialsOf({ cert, key, ca, crl }: TlsTexts): tls.SecureContextOptions {
  return { cert, key, ca, ...(crl === undefined ? {} : { crl }), minVersion: 'TLSv1.3' };
}

/** Why a certificate that the authority has signed is not that of a node; undefined: it is. */
function strangeness(certificate: tls.PeerCertificate, { names }: TlsTexts): Error | undefined {
  if (names === undefined || names.length === 0) return undefined;
  const reasons = names.map((name) => tls.checkServerIdentity(name, certificate));
  return reasons.includes(undefined) ? undefined : reasons[0];
}

interface TlsServerEvents {
  readonly refused: (address: string) => void;
  readonly admit: ListenOptions['admit'];
  onConnection(socket: tls.TLSSocket): void;
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
