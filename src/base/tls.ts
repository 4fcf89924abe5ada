import { createPrivateKey, X509Certificate } from 'node:crypto';
import type net from 'node:net';
import tls from 'node:tls';
import type { AuthFailures } from './auth-failures.js';
import { ConfigError } from './errors.js';
import type { Files } from './files.js';
import { HANDSHAKES_PENDING_MAX_COUNT, TLS_HANDSHAKE_TIMEOUT_MS } from './limits.js';
import type { Network } from './network.js';
import { PendingConnections } from './pending-connections.js';

/** Paths of PEM files. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
}

/** PEM texts. */
export interface TlsTexts {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/** A node's certificate with its key, and the authority that signs those of all nodes. Nothing that prints an object shows them. */
export class TlsIdentity {
  readonly #texts: TlsTexts;

  constructor(texts: TlsTexts) {
    this.#texts = texts;
  }

  /** For TLS and for the own threads, and for nothing else. */
  reveal(): TlsTexts {
    return this.#texts;
  }

  /** Never the key. */
  toJSON(): string {
    return '[key]';
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return '[key]';
  }
}

/**
 * Reads the files at `paths` once; new certificates take effect with the next start. `wallMs`: the time now. Throws {@link ConfigError}
 * that names the key for what cannot be read, is no certificate, is not valid now, or does not fit.
 */
export function readTlsIdentity(
  paths: TlsFiles,
  { files, wallMs }: { readonly files: Files; readonly wallMs: number },
): TlsIdentity {
  const cert = readText('tls_cert_file', paths.certFile, files);
  const key = readText('tls_key_file', paths.keyFile, files);
  const ca = readText('tls_ca_file', paths.caFile, files);
  const certificate = validCertificate('tls_cert_file', paths.certFile, cert, wallMs);
  validCertificate('tls_ca_file', paths.caFile, ca, wallMs);
  const fits = within('tls_key_file', paths.keyFile, 'is no private key without a passphrase', () =>
    certificate.checkPrivateKey(createPrivateKey(key)),
  );
  if (!fits) throw fileError('tls_key_file', paths.keyFile, `does not belong to the certificate in ${paths.certFile}`);
  within('tls_cert_file', paths.certFile, 'is refused by OpenSSL, with its key and authority', () =>
    tls.createSecureContext({ cert, key, ca, minVersion: 'TLSv1.3' }),
  );
  return new TlsIdentity({ cert, key, ca });
}

function readText(key: string, path: string, files: Files): string {
  try {
    return files.readFileSync(path).toString();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw fileError(key, path, `cannot be read (${code}); it must be a PEM file that this process may read`, cause);
  }
}

/** The first certificate of the text. */
function validCertificate(key: string, path: string, text: string, wallMs: number): X509Certificate {
  const certificate = within(key, path, 'has no certificate in PEM format', () => new X509Certificate(text));
  const { validFrom, validTo } = certificate;
  // The other way round, times that cannot be read would be none of these.
  if (!(wallMs >= Date.parse(validFrom))) throw fileError(key, path, `is not valid before ${validFrom}`);
  if (!(wallMs <= Date.parse(validTo))) throw fileError(key, path, `has expired on ${validTo}`);
  return certificate;
}

function within<T>(key: string, path: string, problem: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw fileError(key, path, problem, cause);
  }
}

function fileError(key: string, path: string, problem: string, cause?: unknown): ConfigError {
  return new ConfigError(`configuration key "${key}": ${path} ${problem}`, cause === undefined ? {} : { cause });
}

/** Sockets that speak TLS 1.3, and talk only to peers whose certificate is signed by the authority. `failures` hears of the others. */
export function tlsNetwork(identity: TlsIdentity, failures: AuthFailures): Network {
  const credentials = { ...identity.reveal(), minVersion: 'TLSv1.3' } as const;
  const secureContext = tls.createSecureContext(credentials);
  return {
    connect(options) {
      const socket = tls.connect({
        ...(options as net.TcpNetConnectOpts),
        secureContext,
        rejectUnauthorized: true,
        // Nodes are found by addresses that come and go. Whom the cluster's own authority has signed is a node of it.
        checkServerIdentity: () => undefined,
      });
      // What a socket takes from its options, one under TLS does not.
      const { noDelay, keepAlive, keepAliveInitialDelay } = options as net.TcpNetConnectOpts;
      if (noDelay) socket.setNoDelay(true);
      if (keepAlive) socket.setKeepAlive(true, keepAliveInitialDelay);
      return socket;
    },
    createServer: ({ admit, ...options }, onConnection) =>
      new TlsServer({ ...options, ...credentials }, { onConnection, failures, admit }),
  };
}

interface TlsServerEvents {
  readonly failures: AuthFailures;
  readonly admit: ((socket: net.Socket) => boolean) | undefined;
  onConnection(socket: net.Socket): void;
}

/** Hands out connections whose TLS handshake has succeeded; the others are limited in number and time. */
class TlsServer extends tls.Server {
  readonly #pending = new PendingConnections<net.Socket>(HANDSHAKES_PENDING_MAX_COUNT, (socket) => socket.destroy());
  /** By the addresses of both ends: a socket and the one that speaks TLS over it have nothing else in common. */
  readonly #raw = new Map<string, net.Socket>();

  readonly #admit: TlsServerEvents['admit'];

  constructor(options: tls.TlsOptions, { onConnection, failures, admit }: TlsServerEvents) {
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
    this.on('tlsClientError', (_, socket) => failures.record('tls', socket.remoteAddress ?? 'a peer that has gone'));
  }

  override close(callback?: (error?: Error) => void): this {
    this.#pending.dropAll();
    return super.close(callback);
  }

  /** TLS listens to `connection` as well, and earlier than anybody: what is not admitted does not become an event. */
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

/** Whether what is written is encrypted, at once and by the thread that writes. */
export function isEncrypted(socket: net.Socket): boolean {
  return socket instanceof tls.TLSSocket;
}

/** Calls `fn` once the peer can be spoken to: over TLS it has shown its certificate by then. */
export function onConnected(socket: net.Socket, fn: () => void): void {
  socket.once(socket instanceof tls.TLSSocket ? 'secureConnect' : 'connect', fn);
}
