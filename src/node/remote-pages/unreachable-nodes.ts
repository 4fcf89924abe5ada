import { formatEndpoint } from '../../base/environment/network.js';
import type { Transport } from '../../transport/contract/transport.js';
import type { NodeInfo } from '../../types.js';
import type { DataEndpoints } from './data-endpoints.js';

const NONE: readonly string[] = [];

/** The members by id. Each change of members replaces the map. */
interface MembersById {
  readonly byId: ReadonlyMap<string, NodeInfo>;
}

/**
 * The members whose pages cannot be read now, as reads have found out. Reads, lookups and reports ask it, so that they
 * agree.
 */
export class UnreachableNodes {
  readonly #transport: Transport;
  readonly #endpoints: DataEndpoints;
  readonly #members: MembersById;
  /** The members by where they are read over TCP, and the map of members that this was made of. */
  #byEndpoint = new Map<string, NodeInfo>();
  #madeOf: ReadonlyMap<string, NodeInfo> | undefined;

  constructor(transport: Transport, endpoints: DataEndpoints, members: MembersById) {
    this.#transport = transport;
    this.#endpoints = endpoints;
    this.#members = members;
  }

  /** Their ids; mostly none. */
  ids(): readonly string[] {
    const unreachable = this.#transport.unreachable();
    if (unreachable.size === 0) return NONE;
    this.#follow();
    const ids: string[] = [];
    for (const tcp of unreachable) {
      const node = this.#byEndpoint.get(tcp);
      const endpoint = node && this.#endpoints.of(node);
      // A node that is not reached over TCP may be over RDMA.
      if (node !== undefined && endpoint !== undefined && !this.#transport.isReachable(endpoint)) ids.push(node.nodeId);
    }
    return ids;
  }

  #follow(): void {
    const { byId } = this.#members;
    if (byId === this.#madeOf) return;
    this.#madeOf = byId;
    this.#byEndpoint = new Map();
    for (const node of byId.values()) {
      if (node.tcpPort > 0) this.#byEndpoint.set(formatEndpoint({ host: node.tcpHost, port: node.tcpPort }), node);
    }
  }
}
