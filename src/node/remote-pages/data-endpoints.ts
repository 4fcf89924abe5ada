import type { Logger } from '../../base/environment/log.js';
import { formatEndpoint } from '../../base/environment/network.js';
import { MEMBERS_MAX_COUNT } from '../../base/limits.js';
import { type Transport, tcpEndpointText } from '../../transport/contract/transport.js';
import type { NodeInfo } from '../../types.js';

/**
 * Where to read a node's pages: by the best protocol that both sides speak, and over TCP while it does not answer by
 * RDMA. Says so in the log, once a peer.
 */
export class DataEndpoints {
  readonly #transport: Transport;
  readonly #log: Logger;
  /** RDMA endpoints that have not answered, as the log knows. */
  readonly #told = new Set<string>();

  constructor(transport: Transport, log: Logger) {
    this.#transport = transport;
    this.#log = log;
  }

  /** For `ReadOp.remoteEndpoint`; undefined when there is no protocol that both speak. */
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
    this.#log.log('warn', 'a node does not answer by RDMA; its pages are read over TCP until it does', fields);
  }
}
