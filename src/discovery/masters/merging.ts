import type { NodeInfo } from '../../types.js';
import type { Roster } from '../messages/wire.js';

/** The latest view of one master. */
export interface MasterView extends Roster {
  /** Whether the master has run for a whole time-to-live, so that every live node is on its list. */
  readonly isMature: boolean;
}

/**
 * Returns the members that follow from the views of the masters that answer. Without a view, the members do not change.
 *
 * Every listed node is a member. A node that is on no list is removed if a mature master does not know it, or if any
 * master lists it as gone; a master that has just restarted thus removes no nodes. For each id the newest start counts
 * and, for one start, preferably a record with a zone, because a master of an earlier version leaves it out. This node
 * is always a member.
 */
export function mergeMembers(
  current: ReadonlyMap<string, NodeInfo>,
  views: readonly MasterView[],
  self: NodeInfo,
): Map<string, NodeInfo> {
  const merged = new Map<string, NodeInfo>();
  const add = (info: NodeInfo): void => {
    const known = merged.get(info.nodeId);
    if (known === undefined || isPreferred(info, known)) merged.set(info.nodeId, info);
  };
  const isAnyMature = views.some((view) => view.isMature);
  const gone = new Map<string, number>();
  for (const { nodeId, incarnation } of views.flatMap((view) => view.gone)) {
    gone.set(nodeId, Math.max(incarnation, gone.get(nodeId) ?? incarnation));
  }
  for (const info of current.values()) {
    const hasGone = isAnyMature || info.incarnation <= (gone.get(info.nodeId) ?? Number.NEGATIVE_INFINITY);
    if (!hasGone) add(info);
  }
  for (const view of views) for (const info of view.members.values()) add(info);
  merged.set(self.nodeId, self);
  return merged;
}

/**
 * The result of {@link mergeMembers} if only the records of `changed` differ from the views that `merged` was made of.
 * A mature view must be among the views, both then and now. Returns the same map if nothing differs, which is the usual
 * case with several masters.
 */
export function mergeChanged(
  merged: Map<string, NodeInfo>,
  changed: Iterable<string>,
  { views, self }: { readonly views: readonly MasterView[]; readonly self: NodeInfo },
): Map<string, NodeInfo> {
  let members: Map<string, NodeInfo> | undefined;
  for (const nodeId of changed) {
    let newest: NodeInfo | undefined;
    for (const view of views) {
      const info = view.members.get(nodeId);
      if (info !== undefined && (newest === undefined || isPreferred(info, newest))) newest = info;
    }
    if (nodeId === self.nodeId) newest = self;
    if (merged.get(nodeId) === newest) continue;
    members ??= new Map(merged);
    if (newest === undefined) members.delete(nodeId);
    else members.set(nodeId, newest);
  }
  return members ?? merged;
}

/** Whether this record of a node counts more than an earlier one in the order of the views. */
function isPreferred(info: NodeInfo, earlier: NodeInfo): boolean {
  if (info.incarnation !== earlier.incarnation) return info.incarnation > earlier.incarnation;
  return info.zone !== undefined || earlier.zone === undefined;
}
