import { type Endpoint, formatEndpoint } from '../base/network.js';
import type { NodeInfo } from '../types.js';

/** What every node must have alike, so that all choose the same masters. */
export interface MasterRule {
  /** The listed discovery addresses, in order; at least one. */
  readonly listed: readonly Endpoint[];
  /** Masters in all, as long as fewer are listed. */
  readonly maxMasters: number;
}

/**
 * Where masters are to be: at the listed addresses, and on further hosts of live nodes up to the limit, those first whose
 * oldest node has started earliest. So a host that joins changes nothing for those before it. A further host's master
 * listens on the port of the first listed address. Hosts of listed addresses have theirs already, by whatever name.
 */
export function chooseMasters(members: Iterable<NodeInfo>, { listed, maxMasters }: MasterRule): Endpoint[] {
  const { port } = listed[0] as Endpoint;
  const seated = new Set(listed.map(({ host }) => host));
  const startOf = new Map<string, number>();
  for (const { controlHost, incarnation, isListed } of members) {
    if (isListed) seated.add(controlHost);
    startOf.set(controlHost, Math.min(incarnation, startOf.get(controlHost) ?? incarnation));
  }
  const further = [...startOf]
    .filter(([host]) => !seated.has(host))
    .sort(([hostA, startA], [hostB, startB]) => startA - startB || (hostA < hostB ? -1 : 1))
    .slice(0, Math.max(0, maxMasters - listed.length))
    .map(([host]) => ({ host, port }));
  return [...listed, ...further];
}

export function isSameEndpoints(a: readonly Endpoint[], b: readonly Endpoint[]): boolean {
  return (
    a.length === b.length && a.every((endpoint, i) => formatEndpoint(endpoint) === formatEndpoint(b[i] as Endpoint))
  );
}
