import type { ConnectOptions, Network } from '../../../src/base/environment/network.js';

/**
 * A network in which what connects to port `from` gets to port `to`, unawares, as where an attacker stands between two
 * nodes.
 */
export function rerouted(network: Network, { from, to }: { readonly from: number; readonly to: number }): Network {
  const routed = (options: ConnectOptions): ConnectOptions =>
    'port' in options && options.port === from ? { ...options, port: to } : options;
  return { ...network, connect: (options) => network.connect(routed(options)) };
}
