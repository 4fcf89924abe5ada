import type { Logger } from '../../base/environment/log.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { MEMBERS_MAX_COUNT } from '../../base/limits.js';
import { type Transport, tcpEndpointText } from '../../transport/contract/transport.js';
import type { NodeInfo } from '../../types.js';
import type { MemberChange } from '../upkeep/member-log.js';

const NONE: readonly string[] = [];

/** The live nodes, including this one, as last listed by the discovery masters. */
export class Members {
  #byId: ReadonlyMap<string, NodeInfo>;

  constructor(self: NodeInfo) {
    this.#byId = new Map([[self.nodeId, self]]);
  }

  /** The members by id. Each change of members replaces the map. */
  get byId(): ReadonlyMap<string, NodeInfo> {
    return this.#byId;
  }

  /** Endpoint of a node's control plane; undefined if the node is not a member. */
  endpointOf(nodeId: string): Endpoint | undefined {
    const node = this.#byId.get(nodeId);
    return node === undefined ? undefined : { host: node.controlHost, port: node.controlPort };
  }

  /** Whether this incarnation of a node is a member. */
  isLive(nodeId: string, incarnation: number): boolean {
    return this.#byId.get(nodeId)?.incarnation === incarnation;
  }

  /** Replaces the members; `changed` has the ids whose records differ. */
  change(members: ReadonlyMap<string, NodeInfo>, changed: readonly string[]): MemberChange {
    const before = this.#byId;
    this.#byId = members;
    return { before, after: members, changed };
  }
}

/**
 * Chooses the endpoint at which a node's pages are read: the best protocol that both nodes support, and TCP while the
 * other node does not answer over RDMA. The fallback is logged once per peer.
 */
export class DataEndpoints {
  readonly #transport: Transport;
  readonly #log: Logger;
  /** RDMA endpoints that have not answered and have been logged. */
  readonly #told = new Set<string>();

  constructor(transport: Transport, log: Logger) {
    this.#transport = transport;
    this.#log = log;
  }

  /** The endpoint for `ReadOp.remoteEndpoint`; undefined if the two nodes have no protocol in common. */
  of(owner: NodeInfo): string | undefined {
    const { rdmaHost, rdmaPort, tcpHost, tcpPort } = owner;
    const tcp = tcpPort > 0 ? formatEndpoint({ host: tcpHost, port: tcpPort }) : undefined;
    if (this.#transport.protocol === 'tcp') return tcp;
    const rdma = rdmaPort > 0 ? formatEndpoint({ host: rdmaHost, port: rdmaPort }) : undefined;
    if (rdma === undefined) return tcp === undefined ? undefined : tcpEndpointText(tcp);
    if (tcp === undefined || this.#transport.isReachable(rdma)) return rdma;
    this.#tell(owner.nodeId, rdma, tcp);
    return tcpEndpointText(tcp);
  }

  #tell(nodeId: string, rdma: string, tcp: string): void {
    if (this.#told.has(rdma)) return;
    if (this.#told.size >= MEMBERS_MAX_COUNT) this.#told.clear();
    this.#told.add(rdma);
    const fields = { node_id: nodeId, rdma_endpoint: rdma, tcp_endpoint: tcp };
    this.#log.log('warn', 'RDMA peer unreachable: reading its pages over TCP until it answers', fields);
  }
}

/**
 * The members whose pages cannot be read now, as found by earlier reads. Reads, lookups and reports all use it, so that
 * they agree.
 */
export class UnreachableNodes {
  readonly #transport: Transport;
  readonly #endpoints: DataEndpoints;
  readonly #members: Members;
  /** The members by their TCP data endpoints, and the members map that this was built from. */
  #byEndpoint = new Map<string, NodeInfo>();
  #madeOf: ReadonlyMap<string, NodeInfo> | undefined;

  constructor(transport: Transport, endpoints: DataEndpoints, members: Members) {
    this.#transport = transport;
    this.#endpoints = endpoints;
    this.#members = members;
  }

  /** Ids of these members; usually none. */
  ids(): readonly string[] {
    const unreachable = this.#transport.unreachable();
    if (unreachable.size === 0) return NONE;
    this.#follow();
    const ids: string[] = [];
    for (const tcp of unreachable) {
      const node = this.#byEndpoint.get(tcp);
      const endpoint = node && this.#endpoints.of(node);
      // A node that cannot be reached over TCP may still be reached over RDMA.
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
