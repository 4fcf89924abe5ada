import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { NodeInfo } from '../../types.js';
import { type Departure, isSameInfo } from '../messages/member-table.js';
import type { MasterLink } from './master-link.js';
import { type MasterView, mergeChanged, mergeMembers } from './merging.js';

/** Merges the views of all masters into one list of members, incrementally where the changes are known. */
export class MemberMerging {
  /** Identifies the views and the own record that were merged last. */
  #basis = '';
  #self: NodeInfo | undefined;

  /** Merges the views of `links` (by `host:port`). `changed` has ids that may have changed; undefined: any may have. */
  merge(
    members: Map<string, NodeInfo>,
    links: ReadonlyMap<string, MasterLink>,
    self: NodeInfo,
  ): { readonly merged: Map<string, NodeInfo>; readonly changed: ReadonlySet<string> | undefined } {
    const views: MasterView[] = [];
    const changes: (ReadonlySet<string> | undefined)[] = [];
    let basis = '';
    for (const [name, link] of links) {
      const { view } = link;
      if (view === undefined) continue;
      views.push(view);
      changes.push(link.takeChanged());
      basis += `${name} ${link.masterId} ${view.isMature}\n`;
    }
    const isSameBasis = basis === this.#basis && self === this.#self;
    this.#basis = basis;
    this.#self = self;
    if (!isSameBasis || !views.some(({ isMature }) => isMature) || changes.includes(undefined)) {
      return { merged: mergeMembers(members, views, self), changed: undefined };
    }
    const changed = new Set(changes.flatMap((ids) => [...(ids ?? [])]));
    return { merged: mergeChanged(members, changed, { views, self }), changed };
  }
}

/** Whether a master knows that this start of a node, or a later one, has said good-bye. */
export function hasLeft({ nodeId, incarnation }: NodeInfo, views: readonly MasterView[]): boolean {
  const isGone = (gone: Departure): boolean =>
    gone.hasLeft === true && gone.nodeId === nodeId && gone.incarnation >= incarnation;
  return views.some((view) => view.gone.some(isGone));
}

/** Hosts, and addresses of their masters, that have lost their last nodes without a good-bye from these. */
export function silentHosts(
  changed: readonly string[],
  {
    before,
    after,
    views,
  }: Record<'before' | 'after', ReadonlyMap<string, NodeInfo>> & { readonly views: readonly MasterView[] },
): ReadonlySet<string> {
  const hosts = new Set<string>();
  for (const nodeId of changed) {
    const lost = before.get(nodeId);
    if (lost === undefined || after.has(nodeId)) continue;
    if (!hasLeft(lost, views)) hosts.add(lost.controlHost).add(lost.masterAddr);
  }
  if (hosts.size === 0) return hosts;
  for (const { controlHost, masterAddr } of after.values()) {
    hosts.delete(controlHost);
    hosts.delete(masterAddr);
  }
  return hosts;
}

/** Counts the members that differ before and after; `left` has the ids of those that said good-bye. */
export function countChanges(
  metrics: MetricsSink,
  changed: readonly string[],
  {
    before,
    after,
    left,
  }: Record<'before' | 'after', ReadonlyMap<string, NodeInfo>> & { readonly left: readonly string[] },
): void {
  const hasGoodBye = new Set(left);
  for (const nodeId of changed) {
    const gone = hasGoodBye.has(nodeId) ? 'left' : 'lost';
    const change = !after.has(nodeId) ? gone : before.has(nodeId) ? 'changed' : 'joined';
    metrics.count('meshcache_member_changes_total', 1, { change });
  }
}

/** Whether two records say the same of the same start, or both are missing. */
export function isSame(a: NodeInfo | undefined, b: NodeInfo | undefined): boolean {
  return a !== undefined && b !== undefined ? isSameInfo(a, b) : a === b;
}
