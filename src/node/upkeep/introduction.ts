import type { Environment } from '../../base/environment/environment.js';
import { INTRODUCTION_TIMEOUT_MS } from '../../base/limits.js';
import type { DiscoveryClient } from '../../discovery/client.js';
import { shownMembers } from './member-questions.js';

/**
 * Waits until all members know a node that has just joined, INTRODUCTION_TIMEOUT_MS at the most. Until then the node
 * must not be used, because members tell sets and deletes only to the members that they know. Never rejects.
 */
export async function introduce(
  discovery: Pick<DiscoveryClient, 'introduced'>,
  nodeId: string,
  { log }: Pick<Environment, 'log'>,
): Promise<void> {
  const unaware = await discovery.introduced(INTRODUCTION_TIMEOUT_MS);
  if (unaware.length === 0) return;
  log.log('warn', 'node started before all members know it: they may not tell it at once what they set', {
    node_id: nodeId,
    ...shownMembers(unaware),
  });
}
