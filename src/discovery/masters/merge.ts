import type { NodeInfo } from '../../types.js';
import type { Roster } from '../messages/wire.js';

/** What one master said last. */
export interface MasterView extends Roster {
  /** It has been there for a whole time-to-live: who is not on its list has not spoken to it for so long. */
  readonly isMature: boolean;
}

/**
 * The members, after what the masters that answer now say (none: no change).
 *
 * A list adds whom it names. Whom none of the lists names is removed when a mature master does not know it, or any master
 * says that it has gone; so a master that has just been restarted takes nobody away. Of one id the newest start counts. The
 * own node is always in.
 */
export function mergeMembers(
  current: ReadonlyMap<string, NodeInfo>,
  views: readonly MasterView[],
  self: NodeInfo,
): Map<string, NodeInfo> {
  const merged = new Map<string, NodeInfo>();
  const add = (info: NodeInfo): void => {
    const known = merged.get(info.nodeId);
    if (known === undefined || info.incarnation >= known.incarnation) merged.set(info.nodeId, info);
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
 * What {@link mergeMembers} gives when only the records of `changed` are others in the views than when `merged` was made; a mature view
 * must be among them, as then. The same map when nothing is different: mostly one master says what another has said already.
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
      if (info !== undefined && (newest === undefined || info.incarnation >= newest.incarnation)) newest = info;
    }
    if (nodeId === self.nodeId) newest = self;
    if (merged.get(nodeId) === newest) continue;
    members ??= new Map(merged);
    if (newest === undefined) members.delete(nodeId);
    else members.set(nodeId, newest);
  }
  return members ?? merged;
}
