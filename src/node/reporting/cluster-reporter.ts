import type { Clock } from '../../base/environment/clock.js';
import { formatEndpoint } from '../../base/environment/network.js';
import {
  CLUSTER_REPORT_EVENTS_MAX_COUNT,
  CLUSTER_REPORT_IN_FLIGHT_MAX_COUNT,
  CLUSTER_REPORT_MAX_AGE_MS,
  CLUSTER_REPORT_TIMEOUT_MS,
} from '../../base/limits.js';
import type { ClusterNode, ClusterReport, NodeReport } from '../../metrics/node-report.js';
import { isReportLike } from '../../metrics/report-checks.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { NodeInfo } from '../../types.js';
import { ringShares } from './ring-shares.js';

/** The call that asks a node for its report. */
export const STATUS_METHOD = 'node.status';
/** Few events are asked for: a dashboard that asks every second has seen the earlier ones. */
const STATUS_PARAMS = { events_max: CLUSTER_REPORT_EVENTS_MAX_COUNT };

export interface ClusterReporterParts {
  readonly nodeId: string;
  readonly vnodes: number;
  /** In seconds. */
  readonly heartbeatInterval: number;
  readonly members: () => ReadonlyMap<string, NodeInfo>;
  readonly ownReport: () => Promise<NodeReport>;
  readonly rpc: RpcClient;
  readonly clock: Clock;
}

/** Collects the reports of all members over the control plane. The answer is shared: however many operators ask, each member is asked once in a while. */
export class ClusterReporter {
  readonly #parts: ClusterReporterParts;
  /** The latest report; `endedMs` is missing while the members are being asked. */
  #latest: { endedMs?: number; readonly report: Promise<ClusterReport> } | undefined;
  #shares: { readonly of: string; readonly byNode: ReadonlyMap<string, number> } | undefined;

  constructor(parts: ClusterReporterParts) {
    this.#parts = parts;
  }

  /** Answers other nodes and operators with the report of this node. `events_max` in the params limits the events to the last ones. */
  static handle(server: RpcServer, report: () => Promise<NodeReport>): void {
    server.handle(STATUS_METHOD, async (params) => withLastEvents(await report(), params));
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

  async #ask(): Promise<ClusterReport> {
    const { nodeId, heartbeatInterval, clock } = this.#parts;
    const members = [...this.#parts.members().values()].sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
    const shares = this.#sharesOf(members.map((member) => member.nodeId));
    const nodes = new Array<ClusterNode>(members.length);
    let next = 0;
    const askInTurn = async (): Promise<void> => {
      for (let i = next++; i < members.length; i = next++) {
        const member = members[i] as NodeInfo;
        const control = formatEndpoint({ host: member.controlHost, port: member.controlPort });
        const base = {
          node_id: member.nodeId,
          control_endpoint: control,
          ring_share: shares.get(member.nodeId) ?? 0,
        };
        const answer = await this.#answerOf(member);
        nodes[i] =
          typeof answer === 'string'
            ? { ...base, state: 'unreachable', error: answer }
            : { ...base, state: 'up', report: answer };
      }
    };
    await Promise.all(Array.from({ length: CLUSTER_REPORT_IN_FLIGHT_MAX_COUNT }, askInTurn));
    return { node_id: nodeId, time_ms: clock.wallMs(), heartbeat_interval_s: heartbeatInterval, nodes };
  }

  /** The report of a member, or a text that says why there is none. */
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

  /** The members' shares of the ring, which are computed again only when the members have changed. */
  #sharesOf(nodeIds: readonly string[]): ReadonlyMap<string, number> {
    const of = nodeIds.join('\n');
    if (this.#shares?.of !== of) this.#shares = { of, byNode: ringShares(nodeIds, this.#parts.vnodes) };
    return this.#shares.byNode;
  }
}

function withLastEvents(report: NodeReport, params: unknown): NodeReport {
  const max = (params as { events_max?: unknown } | null)?.events_max;
  if (typeof max !== 'number' || !(max >= 0) || !Array.isArray(report.events)) return report;
  return { ...report, events: report.events.slice(Math.max(0, report.events.length - Math.floor(max))) };
}

/** Whether an answer has all parts of a report: a node of another version, or one without a store, may leave some out. */
function isReport(answer: unknown): answer is NodeReport {
  if (!isReportLike(answer)) return false;
  const { pool, latency, health, events } = answer as Partial<NodeReport>;
  return isPart(pool) && isPart(latency) && health !== undefined && events !== undefined;
}

function isPart(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
