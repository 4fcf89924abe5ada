import type { Logger } from '../base/log.js';
import type { NodeInfo } from '../types.js';

const LOGGED_IDS_MAX_COUNT = 8;

/** Says in the log which nodes have come, gone, or been started anew. */
export function logMemberChange(
  log: Logger,
  before: ReadonlyMap<string, NodeInfo>,
  after: ReadonlyMap<string, NodeInfo>,
): void {
  const isSame = (a: NodeInfo, b: NodeInfo | undefined) => a.incarnation === b?.incarnation;
  const joined = [...after.values()].filter((node) => !isSame(node, before.get(node.nodeId)));
  const left = [...before.values()].filter((node) => !isSame(node, after.get(node.nodeId)));
  if (joined.length + left.length === 0) return;
  const fields = { joined: namesOf(joined), left: namesOf(left), members: after.size };
  log.log('info', 'members of the cluster have changed', fields);
}

/** Ids for a log line, undefined for none. */
function namesOf(nodes: readonly NodeInfo[]): string | undefined {
  const more = nodes.length - LOGGED_IDS_MAX_COUNT;
  const ids = nodes.slice(0, LOGGED_IDS_MAX_COUNT).map((node) => node.nodeId);
  return nodes.length === 0 ? undefined : ids.join(', ') + (more > 0 ? ` and ${more} more` : '');
}
