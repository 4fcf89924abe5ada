import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import type { DiscoveryAddress } from '../../base/settings/discovery-address.js';
import type { AddressSource } from './address-source.js';
import { DnsSource, lookUpAll } from './dns-source.js';

export interface SourceSettings {
  readonly discoveryPort: number;
  discoveryAddress(): DiscoveryAddress;
}

/** The source of addresses that a configuration names; undefined: it lists the addresses itself. */
export function openSource(config: SourceSettings, env: Environment): AddressSource | undefined {
  const address = config.discoveryAddress();
  switch (address.kind) {
    case 'list':
      return undefined;
    case 'dns':
      return new DnsSource({ address, port: config.discoveryPort, env });
  }
}

/** The addresses that the source of a configuration names now, those that are to be tried first in front. Rejects if it does not answer. */
export async function askOnce(config: SourceSettings, env: Environment): Promise<readonly Endpoint[]> {
  const address = config.discoveryAddress();
  switch (address.kind) {
    case 'list':
      return address.endpoints;
    case 'dns':
      return (await lookUpAll({ address, port: config.discoveryPort, env })).endpoints;
  }
}
