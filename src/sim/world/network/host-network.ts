import type { RandomSource } from '../../../base/environment/random.js';
import type { SimFiles } from '../files/sim-files.js';
import type { KernelProcess } from '../kernel/event-heap.js';
import { Lane } from '../kernel/lane.js';
import type { SimConnection } from './sim-connection.js';
import type { SimServer } from './sim-server.js';

/** Traffic of a host on one plane. */
interface Traffic {
  sentMessages: number;
  sentBytes: number;
  receivedMessages: number;
  receivedBytes: number;
}

const FIRST_FREE_PORT = 32_768;
const PORT_LIMIT = 61_000;

/** A host as the network sees it. */
export class HostNetwork {
  /** Number of the host, from 1. */
  readonly index: number;
  readonly name: string;
  readonly rack: string;
  /** Addresses; it sends from the first one. */
  readonly addresses: readonly string[];
  /** Draws the fate of messages that it sends, and how received ones arrive. */
  readonly random: RandomSource;
  readonly uplink: Lane;
  readonly downlink: Lane;
  /** Whether its kernel answers. */
  isUp = true;
  /** Whether it refuses new connections. */
  isRefusing = false;
  readonly servers = new Map<number, SimServer[]>();
  readonly connections = new Set<SimConnection>();
  readonly #traffic = new Map<string, Traffic>();
  #nextPort = FIRST_FREE_PORT;

  constructor(
    identity: Pick<HostNetwork, 'index' | 'name' | 'rack' | 'addresses' | 'random'>,
    bytesPerS: { readonly up: number; readonly down: number },
  ) {
    this.random = identity.random;
    this.index = identity.index;
    this.name = identity.name;
    this.rack = identity.rack;
    this.addresses = identity.addresses;
    this.uplink = new Lane(bytesPerS.up);
    this.downlink = new Lane(bytesPerS.down);
  }

  get address(): string {
    return this.addresses[0] as string;
  }

  /** Traffic by plane: `data`, `control`, ... */
  get traffic(): ReadonlyMap<string, Readonly<Traffic>> {
    return this.#traffic;
  }

  trafficOf(plane: string): Traffic {
    let traffic = this.#traffic.get(plane);
    if (traffic === undefined) {
      traffic = { sentMessages: 0, sentBytes: 0, receivedMessages: 0, receivedBytes: 0 };
      this.#traffic.set(plane, traffic);
    }
    return traffic;
  }

  /** A port on which no server listens. */
  freePort(): number {
    for (;;) {
      const port = this.#nextPort;
      this.#nextPort = port + 1 === PORT_LIMIT ? FIRST_FREE_PORT : port + 1;
      if (!this.servers.has(port)) return port;
    }
  }

  /** The server that accepts connections to `address`. */
  serverAt(address: string, port: number): SimServer | undefined {
    return this.servers.get(port)?.find((server) => server.isReachedAt(address));
  }
}

/** The parts of a simulated process that the network uses. */
export interface NetworkProcess extends KernelProcess {
  /** The network of the process's host. */
  readonly network: HostNetwork;
  /** The file system, in which paths of Unix sockets are names. */
  readonly files: SimFiles;
  readonly connections: Set<SimConnection>;
  readonly servers: Set<SimServer>;
}
