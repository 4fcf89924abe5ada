import type { Clock } from '../../base/environment/clock.js';
import { formatEndpoint } from '../../base/environment/network.js';
import {
  CLUSTER_REPORT_EVENTS_MAX_COUNT,
  CLUSTER_REPORT_IN_FLIGHT_MAX_COUNT,
  CLUSTER_REPORT_MAX_AGE_MS,
  CLUSTER_REPORT_TIMEOUT_MS,
  HISTORY_STEPS_S,
} from '../../base/limits.js';
import { compareNames } from '../../base/names.js';
import type { ClusterHistory, HistoryReport } from '../../metrics/history-report.js';
import {
  type ClusterNode,
  type ClusterReport,
  mergeDeparted,
  mergeMemberEvents,
  type NodeReport,
} from '../../metrics/node-report.js';
import { isHistoryLike, isReportLike } from '../../metrics/report-checks.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { NodeInfo } from '../../types.js';
import { ringShares } from './ring-shares.js';

/** The call that asks a node for its report. */
export const STATUS_METHOD = 'node.status';
/** Few events are requested: a dashboard that asks every second has seen the earlier ones. */
const STATUS_PARAMS = { events_max: CLUSTER_REPORT_EVENTS_MAX_COUNT };
/** The call that asks a node for its figures over time. */
const HISTORY_METHOD = 'node.history';

/** Age up to which a collected history is reused: the time between two samples. */
const HISTORY_MAX_AGE_MS = 2_000;

export interface ClusterReporterParts {
  readonly nodeId: string;
  readonly vnodes: number;
  /** Seconds between two heartbeats. */
  readonly heartbeatInterval: number;
  /** Seconds after which a member without a heartbeat is lost. */
  readonly memberTtl: number;
  readonly members: () => ReadonlyMap<string, NodeInfo>;
  readonly ownReport: () => Promise<NodeReport>;
  /** This node's figures over time; undefined if it keeps none. */
  readonly history: (stepS: number) => HistoryReport | undefined;
  readonly rpc: RpcClient;
  readonly clock: Clock;
}

/**
 * Collects the reports of all members over the control plane. Results are shared: however many operators ask, each
 * member is asked only once in a while.
 */
export class ClusterReporter {
  readonly #parts: ClusterReporterParts;
  /** The latest report; `endedMs` is missing while the members are being asked. */
  #latest: { endedMs?: number; readonly report: Promise<ClusterReport> } | undefined;
  readonly #histories = new Map<number, { readonly askedMs: number; readonly history: Promise<ClusterHistory> }>();
  #shares: { readonly of: string; readonly byNode: ReadonlyMap<string, number> } | undefined;

  constructor(parts: ClusterReporterParts) {
    this.#parts = parts;
  }

  /**
   * Answers other nodes and operators with this node's report and its figures over time. `events_max` in the params
   * limits the events to the last ones.
   */
  static handle(
    server: RpcServer,
    { report, history }: { report: () => Promise<NodeReport>; history: ClusterReporterParts['history'] },
  ): void {
    server.handle(STATUS_METHOD, async (params) => withLastEvents(await report(), params));
    server.handle(HISTORY_METHOD, async (params) => {
      const stepS = (params as { step_s?: unknown } | null)?.step_s;
      return HISTORY_STEPS_S.includes(stepS as number) ? (history(stepS as number) ?? null) : null;
    });
  }

  /** The reports of all members, at most CLUSTER_REPORT_MAX_AGE_MS old. Never rejects. */
  report(): Promise<ClusterReport> {
    const { clock } = this.#parts;
    const endedMs = this.#latest?.endedMs;
    if (this.#latest === undefined || (endedMs !== undefined && clock.nowMs() - endedMs > CLUSTER_REPORT_MAX_AGE_MS)) {
      const round: { endedMs?: number; readonly report: Promise<ClusterReport> } = { report: this.#ask() };
      this.#latest = round;
      void round.report.then(() => {
        round.endedMs = clock.nowMs();
      });
    }
    return this.#latest.report;
  }

  /**
   * The figures over time of all members that keep them, in steps of `stepS`, at most HISTORY_MAX_AGE_MS old. Members
   * that do not answer are left out. Never rejects.
   */
  history(stepS: number): Promise<ClusterHistory> {
    const { nodeId: node_id, clock } = this.#parts;
    const known = this.#histories.get(stepS);
    const age = clock.nowMs() - (known?.askedMs ?? Number.NEGATIVE_INFINITY);
    if (known !== undefined && age <= HISTORY_MAX_AGE_MS) return known.history;
    const history = this.#askEach((member) => this.#historyOf(member, stepS)).then((answers) => {
      const nodes = answers.filter((answer) => answer !== undefined);
      return { node_id, time_ms: clock.wallMs(), step_s: stepS, nodes };
    });
    this.#histories.set(stepS, { askedMs: clock.nowMs(), history });
    return history;
  }

  async #ask(): Promise<ClusterReport> {
    const { nodeId, heartbeatInterval, memberTtl, clock } = this.#parts;
    const live = new Set(this.#parts.members().keys());
    const shares = this.#sharesOf([...live].sort());
    const nodes = await this.#askEach(async (member): Promise<ClusterNode> => {
      const control = formatEndpoint({ host: member.controlHost, port: member.controlPort });
      const base = { node_id: member.nodeId, control_endpoint: control, ring_share: shares.get(member.nodeId) ?? 0 };
      const answer = await this.#answerOf(member);
      if (typeof answer === 'string') return { ...base, state: 'unreachable', error: answer };
      return { ...base, state: 'up', report: answer };
    });
    const reports = nodes.flatMap((node) => (node.state === 'up' ? [node.report] : []));
    return {
      node_id: nodeId,
      time_ms: clock.wallMs(),
      heartbeat_interval_s: heartbeatInterval,
      member_ttl_s: memberTtl,
      departed: mergeDeparted(reports, live),
      member_events: mergeMemberEvents(reports),
      nodes,
    };
  }

  /** Asks every member, a limited number at a time; the answers are in the order of the members' names. */
  async #askEach<T>(ask: (member: NodeInfo) => Promise<T>): Promise<T[]> {
    const members = [...this.#parts.members().values()].sort((a, b) => compareNames(a.nodeId, b.nodeId));
    const answers = new Array<T>(members.length);
    let next = 0;
    const askInTurn = async (): Promise<void> => {
      for (let i = next++; i < members.length; i = next++) answers[i] = await ask(members[i] as NodeInfo);
    };
    await Promise.all(Array.from({ length: CLUSTER_REPORT_IN_FLIGHT_MAX_COUNT }, askInTurn));
    return answers;
  }

  /** A member's figures over time; undefined if it keeps none, has a version without them, or does not answer. */
  async #historyOf(member: NodeInfo, stepS: number): Promise<HistoryReport | undefined> {
    const { nodeId, history, rpc } = this.#parts;
    if (member.nodeId === nodeId) return history(stepS);
    const endpoint = { host: member.controlHost, port: member.controlPort };
    try {
      const deadline = { timeoutMs: CLUSTER_REPORT_TIMEOUT_MS };
      const answer = await rpc.call(endpoint, HISTORY_METHOD, { step_s: stepS }, deadline);
      return isHistoryLike(answer) ? { ...answer, node_id: member.nodeId } : undefined;
    } catch {
      return undefined;
    }
  }

  /** The report of a member, or a text that explains why there is none. */
  async #answerOf(member: NodeInfo): Promise<NodeReport | string> {
    const { nodeId, ownReport, rpc } = this.#parts;
    const endpoint = { host: member.controlHost, port: member.controlPort };
    const deadline = { timeoutMs: CLUSTER_REPORT_TIMEOUT_MS };
    try {
      const answer = await (member.nodeId === nodeId
        ? ownReport()
        : rpc.call(endpoint, STATUS_METHOD, STATUS_PARAMS, deadline));
      return isReport(answer) ? answer : 'answered with something that is not a report of this version';
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** The members' shares of the ring, recomputed only when the members have changed. */
  #sharesOf(nodeIds: readonly string[]): ReadonlyMap<string, number> {
    const of = nodeIds.join('\n');
    if (this.#shares?.of !== of) this.#shares = { of, byNode: ringShares(nodeIds, this.#parts.vnodes) };
    return this.#shares.byNode;
  }
}

function withLastEvents(report: NodeReport, params: unknown): NodeReport {
  const max = (params as { events_max?: unknown } | null)?.events_max;
  if (typeof max !== 'number' || !(max >= 0) || !Array.isArray(report.events)) return report;
  const lastOf = <T>(events: readonly T[]): T[] => events.slice(Math.max(0, events.length - Math.floor(max)));
  const { events, member_events } = report;
  return {
    ...report,
    events: lastOf(events),
    ...(member_events === undefined ? {} : { member_events: lastOf(member_events) }),
  };
}

/** Whether an answer has all parts of a report: a node of another version, or one without a store, may omit some. */
function isReport(answer: unknown): answer is NodeReport {
  if (!isReportLike(answer)) return false;
  const { pool, latency, health, events } = answer as Partial<NodeReport>;
  return isPart(pool) && isPart(latency) && health !== undefined && events !== undefined;
}

function isPart(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
