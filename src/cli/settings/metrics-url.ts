import { formatEndpoint, isEveryAddress, parseEndpoint } from '../../base/environment/network.js';
import { isLoopbackAddress } from '../../discovery/local-address.js';

/**
 * Address of a node's dashboard, for a browser; undefined when it has no metrics server. `host` is where the node is reached:
 * it stands in when the server listens on every address.
 */
export function metricsUrl(metricsEndpoint: string | undefined, host = '127.0.0.1'): string | undefined {
  const endpoint = parseEndpoint(metricsEndpoint ?? '');
  if (endpoint === undefined) return undefined;
  return `http://${formatEndpoint(isEveryAddress(endpoint.host) ? { ...endpoint, host } : endpoint)}/`;
}

/** Whether only programs of the same machine reach a server that listens there. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || isLoopbackAddress(host);
}
