import { type Endpoint, formatEndpoint } from '../base/environment/network.js';

/** Purpose of calls, a label of metrics: the work of a node (`control`), or which nodes are members (`discovery`). */
export type RpcService = 'control' | 'discovery';

/**
 * What a connection is for, in the terms in which both of its sides know it: a node's control plane by the address that
 * the node tells others, and masters of discovery as such, because they are known by names and by addresses that are
 * not theirs.
 */
export function rpcTarget(service: RpcService, endpoint: Endpoint): string {
  return service === 'discovery' ? service : `${service} ${formatEndpoint(endpoint)}`;
}
