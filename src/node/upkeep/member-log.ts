import type { Logger } from '../../base/environment/log.js';
import { LOGGED_IDS_MAX_COUNT } from '../../base/limits.js';
import type { NodeInfo } from '../../types.js';

/** The members before and after a change of them; neither map changes any more. */
export interface MemberChange {
  readonly before: ReadonlyMap<string, NodeInfo>;
  readonly after: ReadonlyMap<string, NodeInfo>;
  /** Ids of all that are not the same before and after, some of which may be: what follows from them costs no look at the others. */
  readonly changed: readonly string[];
}

/** Says in the log which nodes have come, gone, or been started anew. */
export function logMemberChange(log: Logger, { before, after, changed }: MemberChange): void {
  const isOther = (nodeId: string): boolean => before.get(nodeId)?.incarnation !== after.get(nodeId)?.incarnation;
  const others = changed.filter(isOther);
  const joined = others.filter((nodeId) => after.has(nodeId));
  const left = others.filter((nodeId) => before.has(nodeId));
  if (joined.length + left.length === 0) return;
  const fields = { joined: namesOf(joined), left: namesOf(left), members: after.size };
  log.log('info', 'members of the cluster have changed', fields);
}

/** Ids for a log line, undefined for none. */
function namesOf(nodeIds: readonly string[]): string | undefined {
  const more = nodeIds.length - LOGGED_IDS_MAX_COUNT;
  const ids = nodeIds.slice(0, LOGGED_IDS_MAX_COUNT);
  return nodeIds.length === 0 ? undefined : ids.join(', ') + (more > 0 ? ` and ${more} more` : '');
}
