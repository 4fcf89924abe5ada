import { compareNames } from '../../base/names.js';
import type { ClusterNode, ClusterReport, DepartedNode } from '../../metrics/node-report.js';
import { amount, type LooseReport } from './loose.js';

/** Number of nodes that are gone and are remembered; the first to go are forgotten first. */
export const GONE_MAX_COUNT = 100;

/**
 * `lost`: gone without a good-bye. `left`: gone with one. `gone`: the nodes are of a version that does not say which.
 */
export type MemberState = 'up' | 'unreachable' | 'lost' | 'left' | 'gone';

export interface Member {
  readonly nodeId: string;
  readonly state: MemberState;
  /**
   * Time since when the node is in this state, by the clock of a node: when this page first saw it so, or a node did.
   */
  readonly sinceMs: number;
  /** Whether this node serves the page. */
  readonly isThis: boolean;
  /** Share of the ring from 0 to 1; 0 for a node that is gone. */
  readonly ringShare: number;
  /** Where its control plane listens, or did. */
  readonly controlEndpoint: string;
  /** Reason why the node does not answer. */
  readonly error: string;
  /** The node's last report, kept when the node is not up any more. */
  readonly report: LooseReport | undefined;
  readonly reportMs: number;
}

/** The members now, and those that are gone, as far as the nodes or this page remember. */
export class Members {
  #members = new Map<string, Member>();

  /** Applies a report. Returns the changes in words; none for the first report. */
  update(cluster: ClusterReport): string[] {
    const before = this.#members;
    const next = new Map<string, Member>();
    for (const node of cluster.nodes) next.set(node.node_id, memberOf(node, cluster, before.get(node.node_id)));
    const changes = before.size === 0 ? [] : joinedOrSilent(before, next);
    const departed = new Map((cluster.departed ?? []).map((one) => [String(one.node_id), one]));
    const goneIds = new Set([...before.keys(), ...departed.keys()].filter((nodeId) => !next.has(nodeId)));
    const gone = [...goneIds].map((nodeId) => {
      const was = before.get(nodeId);
      const now = goneMember(nodeId, was, { departed: departed.get(nodeId), timeMs: cluster.time_ms });
      if (before.size > 0 && was?.state !== now.state) changes.push(`${nodeId} ${GONE_WORDS[now.state] ?? 'is gone'}`);
      return now;
    });
    for (const member of gone.sort((a, b) => a.sinceMs - b.sinceMs).slice(-GONE_MAX_COUNT)) {
      next.set(member.nodeId, member);
    }
    this.#members = next;
    return changes;
  }

  get(nodeId: string): Member | undefined {
    return this.#members.get(nodeId);
  }

  /** Members by name, lost ones among them; those that have left are last. */
  list(): Member[] {
    const hasLeft = ({ state }: Member): number => Number(state === 'left' || state === 'gone');
    return [...this.#members.values()].sort((a, b) => hasLeft(a) - hasLeft(b) || compareNames(a.nodeId, b.nodeId));
  }
}

const GONE_WORDS: Partial<Record<MemberState, string>> = { lost: 'is lost', left: 'has left' };

/** Whether the node is no member any more. */
export function isGone({ state }: Member): boolean {
  return state !== 'up' && state !== 'unreachable';
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
    controlEndpoint: String(node.control_endpoint ?? ''),
    error: node.state === 'up' ? '' : String(node.error),
    report: report ?? known?.report,
    reportMs: report === undefined ? (known?.reportMs ?? 0) : cluster.time_ms,
  };
}

function goneMember(
  nodeId: string,
  was: Member | undefined,
  { departed, timeMs }: { readonly departed: DepartedNode | undefined; readonly timeMs: number },
): Member {
  if (departed === undefined && was !== undefined && isGone(was)) return was;
  return {
    nodeId,
    state: departed?.how ?? 'gone',
    sinceMs: departed?.time_ms ?? timeMs,
    isThis: false,
    ringShare: 0,
    controlEndpoint: String(departed?.control_endpoint ?? was?.controlEndpoint ?? ''),
    error: '',
    report: was?.report,
    reportMs: was?.reportMs ?? 0,
  };
}

function joinedOrSilent(before: ReadonlyMap<string, Member>, after: ReadonlyMap<string, Member>): string[] {
  const changes: string[] = [];
  for (const [nodeId, { state }] of after) {
    const was = before.get(nodeId);
    if (was === undefined || isGone(was)) changes.push(`${nodeId} has joined`);
    if (was?.state === 'up' && state === 'unreachable') changes.push(`${nodeId} does not answer`);
    if (was?.state === 'unreachable' && state === 'up') changes.push(`${nodeId} answers again`);
  }
  return changes;
}
