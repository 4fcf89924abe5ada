import type { TlsIdentity } from './tls-identity.js';

/**
 * One connection, as the code here uses it: the events, names and meanings are those of `net.Socket`, which is one. Ordered, whole or
 * ended: a byte arrives once and after all before it, or the connection ends.
 */
export interface Connection {
  /** Of the peer; undefined once the connection has ended, and for a Unix socket. */
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  /** Whether what is written is encrypted, at once and by the thread that writes; as a `tls.TLSSocket` has it. */
  readonly encrypted?: boolean;
  readonly destroyed: boolean;
  /** Bytes that were written and that the system has not taken yet. */
  readonly writableLength: number;
  /** Whether more than the high-water mark waits: `drain` follows when the system has taken it all. */
  readonly writableNeedDrain: boolean;
  readonly writableEnded: boolean;
  /** Bytes written so far, those that wait included. */
  readonly bytesWritten: number;
  /** The bytes must not change until they have been sent. False: as `writableNeedDrain`. */
  write(bytes: Uint8Array): boolean;
  /** What is written until `uncork` leaves together. */
  cork(): void;
  /** As often as `cork` was called: what was written since leaves. */
  uncork(): void;
  /** No more `data` until `resume`; the peer is held up when the system's buffers are full. */
  pause(): unknown;
  /** With `onread`, too: without it the end of the peer is not noticed. */
  resume(): unknown;
  /** Whether `pause` was called, and not `resume` since. */
  isPaused(): boolean;
  /** Sends what was written, then the end of this side; `done` is called when that has been sent. */
  end(done?: () => void): unknown;
  /** Writes, then ends this side. */
  end(bytes: Uint8Array): unknown;
  /** Ends both sides now; `close` follows. */
  destroy(): unknown;
  /** Ends both sides when what was written has been sent. */
  destroySoon(): void;
  /** Ends both sides now, and leaves nothing behind: the peer sees a reset. */
  resetAndDestroy(): unknown;
  /** The connection keeps the process alive, as it does when it is new. */
  ref(): unknown;
  /** The process may end while the connection is there. */
  unref(): unknown;
  /** Received bytes, which are the listener's. */
  on(event: 'data', listener: (bytes: Buffer) => void): unknown;
  /** Calls `listener` at every such event. */
  on(event: ConnectionEvent, listener: () => void): unknown;
  /** `close` follows. */
  on(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
  /** Calls `listener` at the next such event. */
  once(event: ConnectionEvent, listener: () => void): unknown;
  /** As `on`, for the first one. */
  once(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
}

/**
 * `connect`: it can be written to; `secureConnect`: that, of one that is `encrypted`; `drain`: all that was written has been taken;
 * `end`: the peer sends nothing more; `close`: it is over, always the last.
 */
export type ConnectionEvent = 'connect' | 'secureConnect' | 'drain' | 'end' | 'close';

/** Where a connection goes: a port of a host, or a Unix socket of this host. */
export type ConnectTarget = { readonly host: string; readonly port: number } | { readonly path: string };

/** Received bytes go where `buffer` says, instead of into `data` events: `count` of them are at its start when `callback` is called. */
export interface ReceiveInto {
  /** Asked once the connection is there, and again right after each receipt. */
  readonly buffer: () => Uint8Array;
  /** False: as `pause`. */
  readonly callback: (count: number, buffer: Uint8Array) => boolean;
}

/** Of TCP connections, made or accepted. */
export interface TcpOptions {
  /** Small pieces are sent at once. */
  readonly noDelay?: boolean;
  /** The system asks a silent peer whether it still lives, after `keepAliveInitialDelay` milliseconds of silence. */
  readonly keepAlive?: boolean;
  readonly keepAliveInitialDelay?: number;
}

/** How to connect; as `net.connect` has them. */
export type ConnectOptions = ConnectTarget & TcpOptions & { readonly onread?: ReceiveInto };

/** A listening socket; the events, names and meanings are those of `net.Server`. */
export interface Server {
  /**
   * Port 0: a free one. `listening` or `error` follows. `exclusive`: by this process itself, also where it is one of a cluster of
   * Node's. It may listen again after `close`.
   */
  listen(target: ListenTarget): unknown;
  /** Where it listens; a Unix socket has its path; null: it does not. */
  address(): { readonly address: string; readonly port: number } | string | null;
  /** Accepts nothing more, and touches no connection that it has accepted; `done` is called when every one of them has ended. */
  close(done?: () => void): unknown;
  /** Ends connections that it has accepted and not handed out: handshakes of TLS under way. Without it there are none. */
  dropPending?(): void;
  /** The process may end while the server listens. */
  unref(): unknown;
  /** It listens. */
  on(event: 'listening', listener: () => void): unknown;
  /** It cannot listen, or could not accept a connection. */
  on(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
}

/** Where a server listens, which {@link Server.listen} says more of. */
export type ListenTarget = ConnectTarget & { readonly exclusive?: boolean };

/** As `net.createServer` has them. */
export interface ListenOptions extends TcpOptions {
  /** What its connections are for: a word for the statistics of a simulated network. The system's does not look at it. */
  readonly plane?: string;
  /** Asked before anything else is done with a connection, also before TLS. False: it has been ended. */
  readonly admit?: (connection: Connection) => boolean;
}

/** The connections that everything below the runtime uses; a test or a simulator hands in its own. */
export interface Network {
  /** A connection that is being made: `connect` or `error` follows. */
  connect(options: ConnectOptions): Connection;
  /** A server that does not listen yet. */
  createServer(options: ListenOptions, onConnection: (connection: Connection) => void): Server;
  /**
   * This network with TLS on all of its connections: it talks only to peers whose certificate the authority of `identity` has signed,
   * and tells `refused` the addresses of the others. Undefined: it has no TLS.
   */
  readonly overTls?: ((identity: TlsIdentity, refused: (address: string) => void) => Network) | undefined;
}

/** Calls `fn` once the peer can be spoken to: over TLS it has shown its certificate by then. */
export function onConnected(connection: Connection, fn: () => void): void {
  connection.once(connection.encrypted ? 'secureConnect' : 'connect', fn);
}

/** Resolves when `server` listens there, and rejects when it cannot; `onError` is told of errors after that. Once a server. */
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

/** The port that `server` listens on; 0: it does not listen, or at a path. */
export function portOf(server: Pick<Server, 'address'>): number {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** A host and a port, the way peers are addressed. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/**
 * Whether a server that listens there is reached at every address of its machine; nobody can connect to it by this one. That is
 * 0.0.0.0 and :: in any spelling that the system takes for them: `0`, `0x0.0`, `[0::0]`, `::ffff:0.0.0.0`, with a zone.
 */
export function isEveryAddress(host: string): boolean {
  const [address = ''] = host
    .trim()
    .replace(/^\[(.*)\]$/, '$1')
    .split('%');
  if (!address.includes(':')) return /^(0x0+|0+)(\.(0x0+|0+)){0,3}$/i.test(address);
  return /^[0:.]+$/.test(address.replace(/^([0:]*:)ffff:/i, '$1'));
}

/** `host:port`, IPv6 hosts in brackets. */
export function formatEndpoint({ host, port }: Endpoint): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Inverse of {@link formatEndpoint}; undefined when the text is not of that form. */
export function parseEndpoint(text: string): Endpoint | undefined {
  const match = /^(?:\[([^\]\s]+)\]|([^:\s]+)):(\d{1,5})$/.exec(text.trim());
  if (match === null) return undefined;
  const port = Number(match[3]);
  if (port > 65535) return undefined;
  return { host: (match[1] ?? match[2]) as string, port };
}
