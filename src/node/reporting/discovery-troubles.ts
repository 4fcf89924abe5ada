import type { SharedClock } from '../../base/concurrency/hybrid-clock.js';
import { CLOCK_AHEAD_MAX_MS } from '../../base/limits.js';
import type { DiscoveryClient } from '../../discovery/client.js';
import type { EmbeddedMaster } from '../../discovery/embedded-master.js';
import { describeDifferences } from '../../discovery/messages/cluster-settings.js';

const REFUSED_SHOWN_MAX_COUNT = 8;

/**
 * Describes for an operator what is wrong with a node's membership. `addr` is the configured list of discovery
 * addresses.
 */
export function discoveryTroubles(
  { discovery, master }: { readonly discovery: DiscoveryClient; readonly master: EmbeddedMaster },
  addr: string,
  clock: Pick<SharedClock, 'offsetMs'>,
): string[] {
  const refusals = [...discovery.refusals()].map(
    ([address, { nodeId, differences }]) =>
      `refused by the discovery master at ${address}, node ${nodeId}: ${describeDifferences(differences, false)}`,
  );
  return [
    ...refusals,
    ...clockTroubles(clock),
    ...joiningTroubles(discovery, addr, refusals.length > 0),
    ...refusedNodes(master),
  ];
}

/**
 * A node whose date is behind is a member, but the dates that it shows are wrong, and its certificates and signatures
 * may be rejected.
 */
function clockTroubles({ offsetMs }: Pick<SharedClock, 'offsetMs'>): string[] {
  if (offsetMs >= -CLOCK_AHEAD_MAX_MS) return [];
  const behind = `${Math.round(-offsetMs / 1000)} s`;
  return [`the clock of this machine is ${behind} behind those of the cluster; set it by NTP`];
}

function joiningTroubles(discovery: DiscoveryClient, addr: string, isRefused: boolean): string[] {
  if (discovery.isReplaced) return ['another node with the same node_id has taken its place'];
  if (isRefused) return [];
  if (!discovery.isReachable) return [`no discovery master answers (${addr})`];
  if (discovery.isListedReachable || discovery.members().size > 1) return [];
  return [`no listed discovery address answers (${addr}), and no other node is known`];
}

function refusedNodes(master: EmbeddedMaster): string[] {
  const nodes = master.refusedNodes();
  const texts = nodes.slice(-REFUSED_SHOWN_MAX_COUNT).map(({ nodeId, address, differences }) => {
    return `node ${nodeId} at ${address} is refused as a member: ${describeDifferences(differences, true)}`;
  });
  const more = nodes.length - texts.length;
  return more > 0 ? [...texts, `${more} more nodes are refused as members`] : texts;
}
