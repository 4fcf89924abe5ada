import { type Endpoint, formatEndpoint, parseEndpoint } from '../environment/network.js';

/** The parsed value of `discovery_addr`: where nodes find the discovery masters. */
export type DiscoveryAddress =
  /** The masters themselves. */
  | { readonly kind: 'list'; readonly endpoints: readonly Endpoint[] }
  /** A DNS name whose records are the addresses of nodes. */
  | {
      readonly kind: 'dns';
      readonly name: string;
      /** Port of the masters; undefined: that of SRV records, or `discovery_port`. */
      readonly port: number | undefined;
      /** The name server to ask; undefined: those of the machine. */
      readonly server: Endpoint | undefined;
    }
  /** An etcd in which nodes that run a master register it. */
  | {
      readonly kind: 'etcd';
      /** Servers of the etcd; at least one. */
      readonly endpoints: readonly Endpoint[];
      /** Whether etcd is reached over TLS. */
      readonly isTls: boolean;
      /** Name of the cluster; its keys in etcd begin with it. */
      readonly name: string;
    };

/** Allowed values of `discovery_addr`, for messages. */
export const DISCOVERY_ADDRESS_ALLOWED =
  'host:port with a port of 1 to 65535, or several of them, comma-separated; or dns://name, dns://name:port; ' +
  'or etcd://host:port,host:port/name, etcds:// over TLS';

const DNS_PORT = 53;
const ETCD_DEFAULT_NAME = 'meshcache';
const ETCD_ENDPOINTS_MAX_COUNT = 16;
const SCHEMES = ['dns', 'etcd', 'etcds'];
const SCHEME = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//;
const NAME = /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*$/;

/** Parses the text; undefined if it is not allowed, in which case `discoveryAddressFault` may say more. */
export function parseDiscoveryAddress(text: string): DiscoveryAddress | undefined {
  const scheme = SCHEME.exec(text.trim())?.[1]?.toLowerCase();
  if (scheme === undefined) {
    const endpoints = parseEndpoints(text);
    return endpoints && { kind: 'list', endpoints };
  }
  const rest = text.trim().replace(SCHEME, '');
  if (scheme === 'etcd' || scheme === 'etcds') return parseEtcd(rest, scheme === 'etcds');
  return scheme === 'dns' ? parseDns(rest) : undefined;
}

/** Parses a comma-separated list of endpoints; undefined if one of them is invalid. */
function parseEndpoints(list: string): Endpoint[] | undefined {
  const parsed = list.split(',').map((item) => parseEndpoint(item));
  return parsed.every((endpoint) => endpoint !== undefined && endpoint.port > 0) ? (parsed as Endpoint[]) : undefined;
}

/**
 * Explains why {@link parseDiscoveryAddress} rejects a text; undefined if listing the allowed values says enough. It
 * does not repeat the text, which may contain a password.
 */
export function discoveryAddressFault(text: string): string | undefined {
  const parts = text.split(',').map((part) => part.trim());
  const schemes = parts.flatMap((part) => SCHEME.exec(part)?.[1]?.toLowerCase() ?? []);
  if (schemes.length === 0) return undefined;
  if (/\/\/[^/]*@/.test(text)) {
    return 'got an address with a user or a password, which logs would show; set etcd_user and etcd_password instead';
  }
  const unknown = schemes.find((scheme) => !SCHEMES.includes(scheme));
  if (unknown !== undefined) {
    return `got the scheme ${unknown}://, allowed is dns://, etcd:// or etcds://, or host:port without a scheme`;
  }
  if (schemes.length > 1) return 'got several sources; give one, its servers with commas behind one etcd://';
  if (parts.length > 1 && schemes[0] === 'dns') {
    return 'got dns:// in a list; give one dns:// name alone, or a list of host:port';
  }
  return undefined;
}

/** Formats an address without spaces, for other programs and for display. */
export function formatDiscoveryAddress(address: DiscoveryAddress): string {
  if (address.kind === 'list') return address.endpoints.map(formatEndpoint).join(',');
  if (address.kind === 'etcd') {
    const { isTls, endpoints, name } = address;
    return `${isTls ? 'etcds' : 'etcd'}://${endpoints.map(formatEndpoint).join(',')}/${name}`;
  }
  const { name, port, server } = address;
  return `dns://${server === undefined ? '' : `${formatEndpoint(server)}/`}${name}${port === undefined ? '' : `:${port}`}`;
}

/** Parses `name`, `name:port`, `server/name` or `server:port/name:port`. */
function parseDns(rest: string): DiscoveryAddress | undefined {
  const [target = '', ...more] = rest.replace(/\/$/, '').split('/').reverse();
  if (more.length > 1) return undefined;
  const server = more[0] === undefined ? undefined : parseServer(more[0]);
  if (more[0] !== undefined && server === undefined) return undefined;
  const [, name = '', portText] = /^([^:]*?)\.?(?::(\d{1,5}))?$/.exec(target) ?? [];
  const port = portText === undefined ? undefined : Number(portText);
  if (!NAME.test(name) || /^[\d.]+$/.test(name)) return undefined;
  if (port !== undefined && (port < 1 || port > 65535)) return undefined;
  return { kind: 'dns', name, port, server };
}

/** Parses `host:port,host:port/name`. */
function parseEtcd(rest: string, isTls: boolean): DiscoveryAddress | undefined {
  const [servers = '', name = ETCD_DEFAULT_NAME, ...more] = rest.replace(/\/$/, '').split('/');
  const endpoints = parseEndpoints(servers);
  if (endpoints === undefined || endpoints.length > ETCD_ENDPOINTS_MAX_COUNT || more.length > 0) return undefined;
  return /^[\w.-]{1,64}$/.test(name) ? { kind: 'etcd', endpoints, isTls, name } : undefined;
}

function parseServer(text: string): Endpoint | undefined {
  const given = parseEndpoint(text) ?? parseEndpoint(`${text}:${DNS_PORT}`);
  return given !== undefined && given.port > 0 ? given : undefined;
}
