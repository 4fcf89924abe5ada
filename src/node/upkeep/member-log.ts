import type { Logger, LogLevel } from '../../base/environment/log.js';
import { LOGGED_IDS_MAX_COUNT } from '../../base/limits.js';
import type { NodeInfo } from '../../types.js';

/** The members before and after a change. Both maps are final. */
export interface MemberChange {
  readonly before: ReadonlyMap<string, NodeInfo>;
  readonly after: ReadonlyMap<string, NodeInfo>;
  /**
   * Ids of all members whose record differs before and after, and perhaps of a few others. Followers of a change look
   * only at these.
   */
  readonly changed: readonly string[];
}

/** Other nodes that have become members with a new incarnation. */
export function startedIn({ before, after, changed }: MemberChange, ownId: string): string[] {
  return changed.filter((nodeId) => {
    const now = after.get(nodeId)?.incarnation;
    return nodeId !== ownId && now !== undefined && now !== before.get(nodeId)?.incarnation;
  });
}

/**
 * Whether the change only updates what members say of themselves: all incarnations and zones, which determine the
 * owners of keys, are as before.
 */
export function isOfSameOwners({ before, after, changed }: MemberChange): boolean {
  const isSameOf = (nodeId: string): boolean => {
    const [was, is] = [before.get(nodeId), after.get(nodeId)];
    return is !== undefined && was?.incarnation === is.incarnation && was.zone === is.zone;
  };
  return changed.length > 0 && changed.every(isSameOf);
}

export interface MemberLogOptions {
  /** Whether a node that is no longer a member has announced that it leaves. */
  readonly hasLeft: (nodeId: string) => boolean;
  /** Time in seconds after which a node without a heartbeat is lost. */
  readonly memberTtlS: number;
}

/** Logs which nodes have joined, restarted, left and got lost: one line per kind, however many nodes it concerns. */
export function logMemberChange(
  log: Logger,
  { before, after, changed }: MemberChange,
  { hasLeft, memberTtlS }: MemberLogOptions,
): void {
  const joined: string[] = [];
  const restarted: string[] = [];
  const left: string[] = [];
  const lost: string[] = [];
  for (const nodeId of changed) {
    const [was, is] = [before.get(nodeId)?.incarnation, after.get(nodeId)?.incarnation];
    if (was === is) continue;
    if (was === undefined) joined.push(nodeId);
    else if (is !== undefined) restarted.push(nodeId);
    else if (hasLeft(nodeId)) left.push(nodeId);
    else lost.push(nodeId);
  }
  const report = (nodeIds: readonly string[], event: string, level: LogLevel = 'info'): void => {
    if (nodeIds.length === 0) return;
    const fields = { [nodeIds.length === 1 ? 'node' : 'nodes']: namesOf(nodeIds), members: after.size };
    log.log(level, `${nodeIds.length === 1 ? 'node' : 'nodes'} ${event}`, fields);
  };
  report(joined, 'joined');
  report(restarted, 'restarted');
  report(left, 'left');
  report(lost, `lost: no heartbeat for ${memberTtlS} s`, 'warn');
}

function namesOf(nodeIds: readonly string[]): string {
  const more = nodeIds.length - LOGGED_IDS_MAX_COUNT;
  return nodeIds.slice(0, LOGGED_IDS_MAX_COUNT).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
