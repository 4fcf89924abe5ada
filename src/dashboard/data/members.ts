import type { ClusterNode, ClusterReport } from '../../metrics/node-report.js';
import { amount, type LooseReport } from './loose.js';

/** Number of nodes that left and are remembered; the first to leave are forgotten first. */
export const GONE_MAX_COUNT = 100;

export type MemberState = 'up' | 'unreachable' | 'gone';

export interface Member {
  readonly nodeId: string;
  readonly state: MemberState;
  /** Time when this page first saw the node in this state, by the answering node's wall clock. */
  readonly sinceMs: number;
  /** Whether this node serves the page. */
  readonly isThis: boolean;
  /** Share of the ring from 0 to 1; 0 for a node that has left. */
  readonly ringShare: number;
  /** Reason why the node does not answer. */
  readonly error: string;
  /** The node's last report, kept when the node is not up any more. */
  readonly report: LooseReport | undefined;
  readonly reportMs: number;
}

/** The members now, and those that left while this page was open. */
export class Members {
  #members = new Map<string, Member>();

  /** Applies a report. Returns the changes in words; none for the first report. */
  update(cluster: ClusterReport): string[] {
    const before = this.#members;
    const next = new Map<string, Member>();
    for (const node of cluster.nodes) next.set(node.node_id, memberOf(node, cluster, before.get(node.node_id)));
    const changes = before.size === 0 ? [] : changesBetween(before, next);
    const gone = [...before.values()].filter(({ nodeId }) => !next.has(nodeId));
    const inOrderOfLeaving = gone.map((member) => leave(member, cluster.time_ms)).sort((a, b) => a.sinceMs - b.sinceMs);
    for (const member of inOrderOfLeaving.slice(-GONE_MAX_COUNT)) next.set(member.nodeId, member);
    this.#members = next;
    return changes;
  }

  get(nodeId: string): Member | undefined {
    return this.#members.get(nodeId);
  }

  /** Members by name; those that have left are last. */
  list(): Member[] {
    return [...this.#members.values()].sort(
      (a, b) =>
        Number(a.state === 'gone') - Number(b.state === 'gone') ||
        a.nodeId.localeCompare(b.nodeId, 'en', { numeric: true }),
    );
  }
}

function memberOf(node: ClusterNode, cluster: ClusterReport, known: Member | undefined): Member {
  const report: LooseReport | undefined = node.state === 'up' ? node.report : undefined;
  const state = report === undefined ? 'unreachable' : 'up';
  return {
    nodeId: node.node_id,
    state,
    sinceMs: known?.state === state ? known.sinceMs : cluster.time_ms,
    isThis: node.node_id === cluster.node_id,
    ringShare: amount(node.ring_share),
    error: node.state === 'up' ? '' : String(node.error),
    report: report ?? known?.report,
    reportMs: report === undefined ? (known?.reportMs ?? 0) : cluster.time_ms,
  };
}

function leave(member: Member, timeMs: number): Member {
  if (member.state === 'gone') return member;
  return { ...member, state: 'gone', sinceMs: timeMs, ringShare: 0, error: '' };
}

function changesBetween(before: ReadonlyMap<string, Member>, after: ReadonlyMap<string, Member>): string[] {
  const changes: string[] = [];
  for (const [nodeId, { state }] of after) {
    const was = before.get(nodeId)?.state;
    if (was === undefined || was === 'gone') changes.push(`${nodeId} has joined`);
    if (was === 'up' && state === 'unreachable') changes.push(`${nodeId} does not answer`);
    if (was === 'unreachable' && state === 'up') changes.push(`${nodeId} answers again`);
  }
  for (const [nodeId, { state }] of before) {
    if (!after.has(nodeId) && state !== 'gone') changes.push(`${nodeId} is gone`);
  }
  return changes;
}
