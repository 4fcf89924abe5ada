// A node of its own process, with a client socket, for tests of late writes. It reads pages of one port through a valve
// at another. Ends with its IPC channel.

import { silentLogger } from '../../../src/base/environment/log.js';
import type { Connection, ConnectOptions, Network, Server } from '../../../src/base/environment/network.js';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { systemNetwork } from '../../../src/system/system-network.js';

export interface LateWritesNodeSetup {
  readonly discoveryPort: number;
  readonly clientSocket: string;
  /** Connections that this node would make to port `from` of loopback are made to port `to`. */
  readonly detour?: { readonly from: number; readonly to: number };
}

export type LateWritesNodeMessage =
  | { readonly kind: 'ready'; readonly dataPort: number }
  | { readonly kind: 'failed'; readonly error: string };

/** Orders the node to end the connections of its clients, as it does after a violation of the protocol. */
export interface LateWritesNodeAsk {
  readonly cut: true;
}

/** The network of the node: keeps the sockets of clients, and leads to the valve. */
class WatchedNetwork implements Network {
  readonly clients = new Set<Connection>();
  readonly #detour: LateWritesNodeSetup['detour'];

  constructor(detour: LateWritesNodeSetup['detour']) {
    this.#detour = detour;
  }

  connect(options: ConnectOptions): Connection {
    const isThere = 'port' in options && options.port === this.#detour?.from;
    return systemNetwork.connect(isThere ? { ...options, port: this.#detour.to } : options);
  }

  createServer(...[options, onConnection]: Parameters<Network['createServer']>): Server {
    const server = systemNetwork.createServer(options, (socket) => {
      // The address of a server at a path is the path.
      if (typeof server.address() === 'string') {
        this.clients.add(socket);
        socket.once('close', () => this.clients.delete(socket));
      }
      onConnection(socket);
    });
    return server;
  }
}

function send(message: LateWritesNodeMessage): void {
  process.send?.(message);
}

async function main({ discoveryPort, clientSocket, detour }: LateWritesNodeSetup): Promise<void> {
  const network = new WatchedNetwork(detour);
  try {
    const store = await MeshCacheStore.create(
      {
        tpRank: 0,
        tpSize: 1,
        ppRank: 0,
        ppSize: 1,
        isMlaModel: false,
        modelName: 'test',
        extraConfig: {
          discovery_addr: `127.0.0.1:${discoveryPort}`,
          local_hostname: '127.0.0.1',
          protocol: 'tcp',
          global_segment_size: '32mb',
          heartbeat_interval: 0.2,
          member_ttl: 3,
          metrics_enabled: false,
          client_socket: clientSocket,
        },
      },
      { log: silentLogger, clock: systemClock, network },
    );
    process.on('message', ({ cut }: LateWritesNodeAsk) => {
      if (cut) for (const socket of network.clients) socket.destroy();
    });
    send({ kind: 'ready', dataPort: Number(store.runtime.localRdmaEndpoint.split(':').at(-1)) });
  } catch (error) {
    send({ kind: 'failed', error: String(error) });
  }
}

process.once('message', (setup: LateWritesNodeSetup) => void main(setup));
process.once('disconnect', () => process.exit());
