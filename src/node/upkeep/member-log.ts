import type { Logger, LogLevel } from '../../base/environment/log.js';
import { LOGGED_IDS_MAX_COUNT } from '../../base/limits.js';
import type { NodeInfo } from '../../types.js';

/** The members before and after a change. Neither map changes any more. */
export interface MemberChange {
  readonly before: ReadonlyMap<string, NodeInfo>;
  readonly after: ReadonlyMap<string, NodeInfo>;
  /**
   * Ids of all members whose record differs before and after, and perhaps of a few others: whoever follows a change
   * looks at these only.
   */
  readonly changed: readonly string[];
}

/** Nodes other than this one of which a start has become a member that was none before. */
export function startedIn({ before, after, changed }: MemberChange, ownId: string): string[] {
  return changed.filter((nodeId) => {
    const now = after.get(nodeId)?.incarnation;
    return nodeId !== ownId && now !== undefined && now !== before.get(nodeId)?.incarnation;
  });
}

/**
 * Whether members have only said something new of themselves: all starts and zones, from which the owners of keys
 * follow, are as before.
 */
export function isOfSameOwners({ before, after, changed }: MemberChange): boolean {
  const isSameOf = (nodeId: string): boolean => {
    const [was, is] = [before.get(nodeId), after.get(nodeId)];
    return is !== undefined && was?.incarnation === is.incarnation && was.zone === is.zone;
  };
  return changed.length > 0 && changed.every(isSameOf);
}

export interface MemberLogOptions {
  /** Whether a node that is no member any more has said that it leaves. */
  readonly hasLeft: (nodeId: string) => boolean;
  /** A node that sends no heartbeat for so long is lost. */
  readonly memberTtlS: number;
}

/**
 * Logs which nodes have joined, restarted, left and got lost: one line for each of these, however many nodes it is
 * about.
 */
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
