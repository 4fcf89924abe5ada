import { formatEndpoint, isEveryAddress, parseEndpoint } from '../../base/environment/network.js';
import { isLoopbackAddress } from '../../discovery/local-address.js';

/**
 * Address of a node's dashboard for a browser; undefined if the node has no metrics server. `host` is the node's
 * address, used if the server listens on every address; `isTls`: it speaks HTTPS.
 */
export function metricsUrl(
  metricsEndpoint: string | undefined,
  { host = '127.0.0.1', isTls = false }: { readonly host?: string; readonly isTls?: boolean } = {},
): string | undefined {
  const endpoint = parseEndpoint(metricsEndpoint ?? '');
  if (endpoint === undefined) return undefined;
  return `${isTls ? 'https' : 'http'}://${formatEndpoint(isEveryAddress(endpoint.host) ? { ...endpoint, host } : endpoint)}/`;
}

/** Whether only programs on the same machine can reach a server that listens there. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || isLoopbackAddress(host);
}
