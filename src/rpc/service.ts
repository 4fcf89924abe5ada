import { type Endpoint, formatEndpoint } from '../base/environment/network.js';

/** Purpose of calls, also a label of metrics: the work of a node (`control`), or membership (`discovery`). */
export type RpcService = 'control' | 'discovery';

/**
 * Returns the target of a connection as both sides know it. A node's control plane is named by the address that the
 * node advertises. Discovery masters are named only by their purpose, because they are known by names and addresses
 * that are not their own.
 */
export function rpcTarget(service: RpcService, endpoint: Endpoint): string {
  return service === 'discovery' ? service : `${service} ${formatEndpoint(endpoint)}`;
}
