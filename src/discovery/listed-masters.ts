import { type Endpoint, formatEndpoint, isEveryAddress, parseEndpoint } from '../base/environment/network.js';
import { ConfigError } from '../base/errors.js';
import { DISCOVERY_MASTERS_MAX_COUNT } from '../base/limits.js';
import { shown } from '../base/shown.js';

/** Whether discovery addresses are given as endpoints, not as text. */
export function isEndpoints(addr: string | readonly Endpoint[]): addr is readonly Endpoint[] {
  return Array.isArray(addr) && addr.every((one) => typeof one?.host === 'string' && Number.isSafeInteger(one.port));
}

/** The endpoints of a list of discovery addresses, each once. Throws `ConfigError`. */
export function parseMasters(addr: string): Endpoint[] {
  if (typeof addr !== 'string')
    throw new ConfigError(`discovery address: expected host:port as text, got ${shown(addr)}`);
  const texts = addr.split(',').map((text) => text.trim());
  const endpoints = texts.map((text) => {
    const endpoint = parseEndpoint(text);
    if (endpoint !== undefined && isEveryAddress(endpoint.host)) {
      throw new ConfigError(
        `discovery address ${JSON.stringify(text)}: nodes cannot reach each other there; give the address or the name ` +
          "of the master's machine (127.0.0.1 for one machine alone)",
      );
    }
    if (endpoint !== undefined && endpoint.port > 0) return endpoint;
    throw new ConfigError(`discovery address ${JSON.stringify(text)}: expected host:port, or several, comma-separated`);
  });
  const distinct = new Map(endpoints.map((endpoint) => [formatEndpoint(endpoint), endpoint]));
  if (distinct.size > DISCOVERY_MASTERS_MAX_COUNT) {
    throw new ConfigError(`${distinct.size} discovery addresses, at most ${DISCOVERY_MASTERS_MAX_COUNT} are allowed`);
  }
  return [...distinct.values()];
}
