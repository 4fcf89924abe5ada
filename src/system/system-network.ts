import net from 'node:net';
import type { Network } from '../base/environment/network.js';
import { tlsNetwork } from './tls-network.js';

/** The network of this machine. Its connections are `net.Socket`s and its servers `net.Server`s. */
export const systemNetwork: Network = {
  connect: (options) => net.connect(options),
  createServer: ({ admit, ...options }, onConnection) =>
    net.createServer(options, (socket) => {
      if (admit?.(socket) !== false) onConnection(socket);
    }),
  overTls: tlsNetwork,
};
