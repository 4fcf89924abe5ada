import type { Logger } from '../../base/environment/log.js';
import { formatEndpoint } from '../../base/environment/network.js';
import { MEMBERS_MAX_COUNT } from '../../base/limits.js';
import { type Transport, tcpEndpointText } from '../../transport/contract/transport.js';
import type { NodeInfo } from '../../types.js';

/**
 * Chooses the endpoint at which a node's pages are read: the best protocol that both nodes support, and TCP while the
 * other node does not answer over RDMA. That fallback is logged once a peer.
 */
export class DataEndpoints {
  readonly #transport: Transport;
  readonly #log: Logger;
  /** RDMA endpoints that have not answered, and that the log has named. */
  readonly #told = new Set<string>();

  constructor(transport: Transport, log: Logger) {
    this.#transport = transport;
    this.#log = log;
  }

  /** The endpoint for `ReadOp.remoteEndpoint`; undefined when the two nodes have no protocol in common. */
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
