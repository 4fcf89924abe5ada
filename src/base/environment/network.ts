import type { TlsIdentity, TlsRules } from './credentials.js';

/**
 * One connection. Events, names and meanings are those of `net.Socket`, which implements it. Bytes arrive once and in
 * order, or the connection ends.
 */
export interface Connection {
  /** Address of the peer; undefined once the connection has ended, and for a Unix socket. */
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  /** Whether the connection speaks TLS; then the writing thread encrypts at once. */
  readonly encrypted?: boolean;
  /** Whether the peer of an `encrypted` connection has presented an accepted certificate. */
  readonly authorized?: boolean;
  readonly destroyed: boolean;
  /** Bytes that were written and that the system has not accepted yet. */
  readonly writableLength: number;
  /** Whether more bytes wait than the high-water mark; `drain` follows when the system has accepted them all. */
  readonly writableNeedDrain: boolean;
  readonly writableEnded: boolean;
  /** Bytes written so far, including those that wait. */
  readonly bytesWritten: number;
  /** Writes bytes, which must not change until they are sent. Returns false if `writableNeedDrain` is true now. */
  write(bytes: Uint8Array): boolean;
  /** Collects what is written until `uncork`, to send it together. */
  cork(): void;
  /** Sends what was written since `cork`; to be called as often as `cork`. */
  uncork(): void;
  /** Stops `data` events until `resume`. The peer is held up once the system's buffers are full. */
  pause(): unknown;
  /** Lets `data` events flow. Also needed with `onread`, else the peer's end is not noticed. */
  resume(): unknown;
  /** Whether `pause` was called without a later `resume`. */
  isPaused(): boolean;
  /** Sends what was written, then ends this side; `done` is called when the end has been sent. */
  end(done?: () => void): unknown;
  /** Writes bytes, then ends this side. */
  end(bytes: Uint8Array): unknown;
  /** Ends both sides now; `close` follows. */
  destroy(): unknown;
  /** Ends both sides after sending what was written. */
  destroySoon(): void;
  /** Resets the connection: both sides end now, and the kernel keeps no state. */
  resetAndDestroy(): unknown;
  /** Makes the connection keep the process alive, which is the default. */
  ref(): unknown;
  /** Lets the process end while the connection is open. */
  unref(): unknown;
  /** Calls `listener` with received bytes, which then belong to it. */
  on(event: 'data', listener: (bytes: Buffer) => void): unknown;
  /** Calls `listener` at every event of this kind. */
  on(event: ConnectionEvent, listener: () => void): unknown;
  /** Calls `listener` with the error that ends the connection; `close` follows. */
  on(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
  /** Calls `listener` at the next event of this kind. */
  once(event: ConnectionEvent, listener: () => void): unknown;
  /** Calls `listener` with the first error; `close` follows. */
  once(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
}

/**
 * `connect`: the connection can be written to; `secureConnect`: the same for an `encrypted` one; `drain`: the system
 * has accepted everything written; `end`: the peer sends nothing more; `close`: the connection is over, always the last
 * event.
 */
export type ConnectionEvent = 'connect' | 'secureConnect' | 'drain' | 'end' | 'close';

/** Target of a connection: a port of a host, or a Unix socket of this host. */
export type ConnectTarget = { readonly host: string; readonly port: number } | { readonly path: string };

/** Receives bytes into buffers of the caller instead of `data` events. */
export interface ReceiveInto {
  /** Returns the buffer for the next bytes; called when the connection is open, and right after each receipt. */
  readonly buffer: () => Uint8Array;
  /** Called when `count` bytes are at the start of `buffer`. Returning false pauses the connection. */
  readonly callback: (count: number, buffer: Uint8Array) => boolean;
}

/** Options of TCP connections, opened or accepted. */
export interface TcpOptions {
  /** Sends small pieces without delay. */
  readonly noDelay?: boolean;
  /** The system probes a silent peer after `keepAliveInitialDelay` milliseconds of silence. */
  readonly keepAlive?: boolean;
  readonly keepAliveInitialDelay?: number;
}

/** How to connect: options of `net.connect`. */
export type ConnectOptions = ConnectTarget & TcpOptions & { readonly onread?: ReceiveInto };

/** A listening socket. Events, names and meanings are those of `net.Server`. */
export interface Server {
  /**
   * Starts to listen; `listening` or `error` follows. Port 0 is any free one. With `exclusive`, this process listens by
   * itself even in a cluster of Node. It may listen again after `close`.
   */
  listen(target: ListenTarget): unknown;
  /** The address that the server listens at, or the path of a Unix socket; null: it does not listen. */
  address(): { readonly address: string; readonly port: number } | string | null;
  /** Stops accepting. Accepted connections go on; `done` is called when all of them have ended. */
  close(done?: () => void): unknown;
  /** Ends accepted connections whose TLS handshake is in progress. A server without this method has none. */
  dropPending?(): void;
  /**
   * Takes over the system's descriptor of a connection that another server has accepted and has not read from, as if
   * this one had accepted it; does not need `listen`, and `close` does not wait for its end. A server without this
   * method has no descriptors.
   */
  adopt?(descriptor: number): void;
  /** Lets the process end while the server listens. */
  unref(): unknown;
  /** Calls `listener` when the server listens. */
  on(event: 'listening', listener: () => void): unknown;
  /** Calls `listener` when the server cannot listen, or could not accept a connection. */
  on(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
}

/** The target of {@link Server.listen}. */
export type ListenTarget = ConnectTarget & { readonly exclusive?: boolean };

/** How to accept connections: options of `net.createServer`, and more. */
export interface ListenOptions extends TcpOptions {
  /** Purpose of the connections, for the statistics of a simulated network. The real network ignores it. */
  readonly plane?: string;
  /** Keeps this side of a connection open when the peer has ended its own; the caller must then end it with `end`. */
  readonly allowHalfOpen?: boolean;
  /**
   * Received bytes are valid only until the `data` listener returns, so that the system need not provide new memory for
   * each piece. A network may ignore this.
   */
  readonly reusesMemory?: boolean;
  /** Called first with each accepted connection, also before TLS. Returns false if it has ended the connection. */
  readonly admit?: (connection: Connection) => boolean;
}

/** Called with the address of a peer whose handshake has failed, and the error code of OpenSSL or Node.js. */
export type TlsRefusal = (address: string, code: string) => void;

/** Source of connections for everything below the runtime; a test or a simulator supplies its own. */
export interface Network {
  /** Opens a connection; `connect` or `error` follows. */
  connect(options: ConnectOptions): Connection;
  /** Creates a server that does not listen yet. */
  createServer(options: ListenOptions, onConnection: (connection: Connection) => void): Server;
  /**
   * Returns this network with TLS on all connections: it accepts only peers whose certificate the authority of
   * `identity` has signed, if it has one, and calls `refused` for the others. `rules` are those between nodes unless
   * given. Undefined: the network has no TLS.
   */
  readonly overTls?: ((identity: TlsIdentity, refused: TlsRefusal, rules?: TlsRules) => Network) | undefined;
}

/** Calls `fn` when the connection can be written to; over TLS, after the peer's certificate has been accepted. */
export function onConnected(connection: Connection, fn: () => void): void {
  connection.once(connection.encrypted ? 'secureConnect' : 'connect', fn);
}

/**
 * Resolves when `server` listens at `target` and rejects if it cannot; later errors go to `onError`. To be called once
 * for each server.
 */
export function listenAt(
  server: Server,
  target: ListenTarget,
  onError: (error: NodeJS.ErrnoException) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let isListening = false;
    server.on('error', (error) => (isListening ? onError(error) : reject(error)));
    server.on('listening', () => {
      isListening = true;
      resolve();
    });
    server.listen(target);
  });
}

/** The port that `server` listens on; 0: it does not listen, or it listens at a path. */
export function portOf(server: Server): number {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** A host and a port, the way peers are addressed. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/**
 * Whether `host` is a wildcard: a server that listens there is reached at every address of its machine, and no peer can
 * connect to the wildcard itself. These are 0.0.0.0 and :: in all spellings that the system accepts: `0`, `0x0.0`,
 * `[0::0]`, `::ffff:0.0.0.0`, with a zone.
 */
export function isEveryAddress(host: string): boolean {
  const [address = ''] = host
    .trim()
    .replace(/^\[(.*)\]$/, '$1')
    .split('%');
  if (!address.includes(':')) return /^(0x0+|0+)(\.(0x0+|0+)){0,3}$/i.test(address);
  return /^[0:.]+$/.test(address.replace(/^([0:]*:)ffff:/i, '$1'));
}

/** Formats an endpoint as `host:port`, with IPv6 hosts in brackets. */
export function formatEndpoint({ host, port }: Endpoint): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Inverse of {@link formatEndpoint}; undefined if the text has another form. */
export function parseEndpoint(text: string): Endpoint | undefined {
  const match = /^(?:\[([^\]\s]+)\]|([^:\s]+)):(\d{1,5})$/.exec(text.trim());
  if (match === null) return undefined;
  const port = Number(match[3]);
  if (port > 65535) return undefined;
  return { host: (match[1] ?? match[2]) as string, port };
}
