import { constants } from 'node:crypto';
import net from 'node:net';
import tls from 'node:tls';
import { NODE_TLS_RULES, type TlsIdentity, type TlsRules, type TlsTexts } from '../base/environment/credentials.js';
import type { ListenOptions, Network, TlsRefusal } from '../base/environment/network.js';
import {
  HANDSHAKES_PENDING_MAX_COUNT,
  RECEIVING_REUSED_BYTES,
  TLS_HANDSHAKE_MAX_MS,
  TLS_HANDSHAKE_TIMEOUT_MS,
} from '../base/limits.js';
import { PendingConnections } from '../net/connection-limits.js';

/** The network of this machine. Its connections are `net.Socket`s and its servers `net.Server`s. */
export const systemNetwork: Network = {
  connect: (options) => net.connect(options),
  createServer({ admit, reusesMemory = false, ...options }, onConnection) {
    const memory = reusesMemory ? Buffer.allocUnsafeSlow(RECEIVING_REUSED_BYTES) : undefined;
    const server = net.createServer({ ...options, pauseOnConnect: reusesMemory }, (socket) => {
      if (admit?.(socket) === false) return;
      onConnection(memory === undefined ? socket : receivingInto(memory, socket, options));
    });
    return Object.assign(server, { adopt: adopterOf(server, options) });
  },
  overTls: tlsNetwork,
};

/** Returns what makes a server take over the descriptor of a connection. */
function adopterOf(server: net.Server, { allowHalfOpen = false }: ListenOptions): (fd: number) => void {
  return (fd) => {
    server.emit('connection', new net.Socket({ fd, allowHalfOpen, readable: true, writable: true }));
  };
}

/**
 * Returns a socket of the same connection that receives into `memory`. Node.js lets only sockets that connect do so, and
 * would provide 64 KiB of new memory for each piece, which costs more than receiving it.
 */
function receivingInto(memory: Buffer, accepted: net.Socket, { allowHalfOpen = false }: ListenOptions): net.Socket {
  const internal = accepted as unknown as { _handle?: { reading: boolean; readStop(): void } | null };
  const handle = internal._handle ?? undefined;
  if (handle === undefined) return accepted.resume();
  internal._handle = null;
  const callback = (count: number): boolean => {
    socket.emit('data', memory.subarray(0, count));
    return true;
  };
  const options = { handle, allowHalfOpen, onread: { buffer: memory, callback } };
  const socket = new net.Socket(options as net.SocketConstructorOpts);
  // Reading begins when there is a listener.
  handle.reading = false;
  handle.readStop();
  // The server counts the accepted socket until it is destroyed.
  socket.once('close', () => accepted.destroy());
  return socket;
}

/**
 * Returns a network of TLS sockets. It accepts only peers with a certificate of the authority, if there is one, and
 * with one of the names, if there are any. `refused` is called for all others.
 */
export function tlsNetwork(identity: TlsIdentity, refused: TlsRefusal, rules: TlsRules = NODE_TLS_RULES): Network {
  let secureContext = tls.createSecureContext(credentialsOf(identity.reveal(), rules));
  identity.onRenewed((texts) => {
    secureContext = tls.createSecureContext(credentialsOf(texts, rules));
  });
  return {
    connect(options) {
      const socket = tls.connect({
        ...options,
        secureContext,
        rejectUnauthorized: true,
        // The address is not checked, because addresses of nodes change.
        checkServerIdentity: (_, certificate) => strangeness(certificate, identity.reveal()),
      });
      // A TLS socket ignores these options of plain sockets.
      const { noDelay, keepAlive, keepAliveInitialDelay } = options;
      if (noDelay) socket.setNoDelay(true);
      if (keepAlive) socket.setKeepAlive(true, keepAliveInitialDelay);
      return socket;
    },
    createServer({ admit, allowHalfOpen = false, ...options }, onConnection) {
      const accepted = (socket: tls.TLSSocket): void => {
        // Set only now: a client that ends its side during the handshake has gone, and the server would wait for it.
        socket.allowHalfOpen = allowHalfOpen;
        if (strangeness(socket.getPeerCertificate(), identity.reveal()) === undefined) {
          onConnection(socket);
          return;
        }
        refused(socket.remoteAddress ?? 'a peer that has gone', 'ERR_TLS_CERT_ALTNAME_INVALID');
        socket.destroy();
      };
      const texts = identity.reveal();
      const hasAuthority = texts.ca !== undefined;
      const server = new TlsServer(
        {
          ...options,
          ...credentialsOf(texts, rules),
          requestCert: hasAuthority,
          rejectUnauthorized: hasAuthority && rules.admitsStrangers !== true,
        },
        { onConnection: accepted, refused, admit },
      );
      server.once(
        'close',
        identity.onRenewed((renewed) => server.setSecureContext(credentialsOf(renewed, rules))),
      );
      return Object.assign(server, { adopt: adopterOf(server, {}) });
    },
  };
}

/**
 * Every handshake must be a full one. A session ticket would let in a peer whose certificate is no longer accepted.
 * Where peers without a certificate are admitted, Node.js also treats such a peer as authorized when it resumes a
 * session.
 */
const WHOLE_HANDSHAKES = constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION;

function credentialsOf({ cert, key, ca, crl }: TlsTexts, { minVersion }: TlsRules): tls.SecureContextOptions {
  const authority = { ...(ca === undefined ? {} : { ca }), ...(crl === undefined ? {} : { crl }) };
  return { cert, key, ...authority, minVersion, secureOptions: WHOLE_HANDSHAKES };
}

/** Returns why a certificate signed by the authority is not that of a node; undefined if it is. */
function strangeness(certificate: tls.PeerCertificate, { names }: TlsTexts): Error | undefined {
  if (names === undefined || names.length === 0) return undefined;
  const reasons = names.map((name) => tls.checkServerIdentity(name, certificate));
  return reasons.includes(undefined) ? undefined : reasons[0];
}

interface TlsServerEvents {
  readonly refused: TlsRefusal;
  readonly admit: ListenOptions['admit'];
  onConnection(socket: tls.TLSSocket): void;
}

/** A server that passes on connections after their TLS handshake. Pending handshakes are limited in number and time. */
class TlsServer extends tls.Server {
  readonly #pending = new PendingConnections<net.Socket>(
    HANDSHAKES_PENDING_MAX_COUNT,
    (socket) => socket.destroy(),
    ({ remoteAddress = '' }) => remoteAddress,
  );
  /**
   * Plain sockets and their deadlines, by the addresses of both ends. A TLS socket has nothing else in common with the
   * plain socket below it.
   */
  readonly #raw = new Map<string, { readonly socket: net.Socket; readonly deadline: NodeJS.Timeout }>();

  readonly #admit: TlsServerEvents['admit'];

  constructor(options: tls.TlsOptions, { onConnection, refused, admit }: TlsServerEvents) {
    super({ ...options, handshakeTimeout: TLS_HANDSHAKE_TIMEOUT_MS });
    this.#admit = admit;
    this.on('connection', (socket: net.Socket) => this.#accepted(socket));
    this.on('secureConnection', (socket) => {
      this.#settled(connectionName(socket));
      onConnection(socket);
    });
    this.on('tlsClientError', (error: NodeJS.ErrnoException, socket) => {
      // If a certificate is not accepted, `error` only says that the connection ended; the socket has the reason.
      const code = socket.authorizationError ?? error.code ?? error.message;
      refused(socket.remoteAddress ?? 'a peer that has gone', String(code));
      // Node.js leaves this to the listener; otherwise a handshake that is too slow would stay open.
      socket.destroy();
    });
  }

  dropPending(): void {
    this.#pending.dropAll();
  }

  /** Drops connections that are not admitted before any listener sees them, the first of which is that of TLS. */
  override emit(event: string | symbol, ...values: unknown[]): boolean {
    if (event === 'connection' && this.#admit?.(values[0] as net.Socket) === false) return true;
    return super.emit(event as string, ...values);
  }

  #accepted(socket: net.Socket): void {
    const name = connectionName(socket);
    // `handshakeTimeout` only limits pauses, and a peer that sends a byte now and then makes none.
    const deadline = setTimeout(() => socket.destroy(), TLS_HANDSHAKE_MAX_MS);
    this.#raw.set(name, { socket, deadline });
    this.#pending.add(socket);
    socket.once('close', () => this.#settled(name));
  }

  #settled(name: string): void {
    const raw = this.#raw.get(name);
    if (raw === undefined) return;
    clearTimeout(raw.deadline);
    this.#raw.delete(name);
    this.#pending.delete(raw.socket);
  }
}

function connectionName(socket: net.Socket): string {
  return [socket.remoteAddress, socket.remotePort, socket.localAddress, socket.localPort].join(' ');
}
