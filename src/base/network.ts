import net from 'node:net';

/** As `net.createServer` has them. */
export interface ListenOptions extends net.ServerOpts {
  /** Asked before anything else is done with a connection, also before TLS. False: it has been ended. */
  readonly admit?: (socket: net.Socket) => boolean;
}

/** The sockets that everything below the runtime uses; a test or a simulator hands in its own. */
export interface Network {
  /** As `net.connect`. */
  connect(options: net.NetConnectOpts): net.Socket;
  /** As `net.createServer`. */
  createServer(options: ListenOptions, onConnection: (socket: net.Socket) => void): net.Server;
}

export const systemNetwork: Network = {
  connect: (options) => net.connect(options),
  createServer: (options, onConnection) =>
    net.createServer(options, (socket) => {
      if (options.admit?.(socket) !== false) onConnection(socket);
    }),
};

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
