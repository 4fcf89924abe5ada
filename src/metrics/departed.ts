import type { DepartedNode, MemberEvent } from './node-report.js';

/** Parts of a report that all nodes say something about. */
export interface MemberNews {
  readonly departed?: readonly DepartedNode[];
  readonly member_events?: readonly MemberEvent[];
}

/**
 * Nodes that some of these reports say are gone, each once and as it was noticed first, the last to go first. A
 * good-bye that one node has heard counts, even if others have only missed heartbeats. `members` are the ids of live
 * nodes: they have come back.
 */
export function mergeDeparted(reports: readonly MemberNews[], members: ReadonlySet<string>): DepartedNode[] {
  const byNode = new Map<string, DepartedNode>();
  for (const one of reports.flatMap(({ departed = [] }) => departed)) {
    if (members.has(one.node_id)) continue;
    const known = byNode.get(one.node_id);
    const isSameStart = known?.incarnation === one.incarnation;
    if (known !== undefined && !isSameStart && known.incarnation > one.incarnation) continue;
    if (known === undefined || !isSameStart) byNode.set(one.node_id, one);
    else {
      const how = known.how === 'left' || one.how === 'left' ? 'left' : 'lost';
      byNode.set(one.node_id, { ...known, how, time_ms: Math.min(known.time_ms, one.time_ms) });
    }
  }
  return [...byNode.values()].sort((a, b) => b.time_ms - a.time_ms);
}

/** What has happened to members by these reports: each change once, as it was noticed first, oldest first. */
export function mergeMemberEvents(reports: readonly MemberNews[]): MemberEvent[] {
  const byChange = new Map<string, MemberEvent>();
  for (const event of reports.flatMap(({ member_events = [] }) => member_events)) {
    const isGone = event.change === 'left' || event.change === 'lost';
    const key = JSON.stringify([event.node_id, event.incarnation, isGone]);
    const known = byChange.get(key);
    if (known === undefined) byChange.set(key, event);
    else {
      const change = known.change === 'lost' || known.change === 'joined' ? event.change : known.change;
      byChange.set(key, { ...known, change, time_ms: Math.min(known.time_ms, event.time_ms) });
    }
  }
  return [...byChange.values()].sort((a, b) => a.time_ms - b.time_ms);
}
