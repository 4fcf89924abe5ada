import { silentLogger } from '../../base/environment/log.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { AuthError } from '../../base/errors.js';
import { CommandFailure } from '../../command/failure.js';
import { isNodeId, isWhole } from '../../directory/location-columns.js';
import { DiscoveryMethod, decodeAnswer } from '../../discovery/messages/wire.js';
import type { NodeReport } from '../../metrics/node-report.js';
import { isReportLike } from '../../metrics/report-checks.js';
import { type SecurityConfig, securedEnvironment } from '../../net/secured-environment.js';
import { DRAIN_METHOD, DRAIN_STATES, type DrainProgress, type DrainState } from '../../node/leaving/drain.js';
import { STATUS_METHOD } from '../../node/reporting/cluster-reporter.js';
import { RpcClient } from '../../rpc/client.js';
import { MessageCodec } from '../../rpc/message.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { NodeInfo } from '../../types.js';

/** What one node says of itself; a node of an older version leaves fields out. */
export type NodeStatus = Partial<NodeReport> & Pick<NodeReport, 'node_id'>;

/** What a peer that is not let in is told. */
const SECURITY_WORDS = /cluster_secret|certificate/;

/** None of the masters that were asked has answered; the message says why, and what to check. */
export class NoMasterFailure extends CommandFailure {
  /** One of each master. */
  readonly reasons: readonly string[];
  /** A master is there, and this program could not prove itself to it, or it to this program. */
  readonly isAuthentication: boolean;

  constructor(reasons: readonly string[], isAuthentication: boolean) {
    const advice = isAuthentication
      ? 'Set the cluster_secret (or the tls_* files) that the nodes have.'
      : 'Check the address, that a node runs on that host with it as its discovery_addr, and the firewall.';
    super(`no discovery master answers (${reasons.join('; ')}). ${advice}`);
    this.name = 'NoMasterFailure';
    this.reasons = reasons;
    this.isAuthentication = isAuthentication;
  }
}

/** Asks masters and nodes from outside of the cluster; joins nothing. */
export class ClusterQuery {
  readonly #codec = new MessageCodec();
  readonly #rpc: RpcClient;

  /** With what the cluster asks for. Throws `ConfigError` when a file of it cannot be used. */
  constructor(security: SecurityConfig = {}) {
    this.#rpc = new RpcClient({ env: securedEnvironment(security, systemEnvironment({ log: silentLogger })) });
  }

  /** The members that the first of the masters that answers knows. Throws {@link NoMasterFailure} when none does. */
  async members(masters: readonly Endpoint[]): Promise<NodeInfo[]> {
    const reasons: string[] = [];
    let isAuthentication = false;
    for (const master of masters) {
      try {
        const answer = decodeAnswer(this.#codec, await this.#rpc.call(master, DiscoveryMethod.members, {}));
        if (answer.roster !== undefined) return [...answer.roster.members.values()];
        reasons.push(`${formatEndpoint(master)}: answers without a list of members`);
      } catch (error) {
        const { message } = error as Error;
        const where = formatEndpoint(master);
        isAuthentication ||= error instanceof AuthError || SECURITY_WORDS.test(message);
        reasons.push(message.startsWith(where) ? message : `${where}: ${message}`);
      }
    }
    throw new NoMasterFailure(reasons, isAuthentication);
  }

  /** A node's answer, or why there is none. */
  async status(node: NodeInfo): Promise<NodeStatus | { readonly error: string }> {
    try {
      const endpoint = { host: node.controlHost, port: node.controlPort };
      const answer = await this.#rpc.call(endpoint, STATUS_METHOD, {});
      return isStatus(answer) ? answer : { error: 'answers, but not with a status of this version' };
    } catch (error) {
      return { error: (error as Error).message };
    }
  }

  /** Has a node drained, or asks how far it is. Rejects with `MeshCacheError` when it does not answer or refuses. */
  async drain(endpoint: Endpoint, timeoutMs: number): Promise<DrainProgress> {
    return readDrainProgress(await this.#rpc.call(endpoint, DRAIN_METHOD, { timeout_ms: timeoutMs }), endpoint);
  }

  async close(): Promise<void> {
    await this.#rpc.close();
  }
}

/** What the node at `endpoint` says of its leaving. Throws {@link CommandFailure}. */
export function readDrainProgress(value: unknown, endpoint: Endpoint): DrainProgress {
  const answer = value as DrainProgress | null;
  const isIt =
    DRAIN_STATES.includes(answer?.state as DrainState) &&
    isNodeId(answer?.node_id) &&
    PROGRESS_COUNTS.every((name) => isWhole(answer?.[name]));
  if (isIt) return answer as DrainProgress;
  throw new CommandFailure(`${formatEndpoint(endpoint)} answers, but not as a node of this version`);
}

const CLIENT_COUNTS = [
  'pid',
  'requests',
  'errors',
  'in_flight',
  'hits',
  'misses',
  'pages_written',
  'read_bytes',
  'written_bytes',
  'mapped_bytes',
] as const;

const PROGRESS_COUNTS = ['wanted_pages', 'handed_pages', 'left_pages', 'disk_queue_bytes'] as const;

/** What is printed and counted with is looked at; a node of an older version leaves fields out. */
export function isStatus(answer: unknown): answer is NodeStatus {
  // With an error it would be taken for why there is no status.
  if (!isReportLike(answer) || 'error' in (answer as object)) return false;
  const { pool, reads, disk, directory, clients, rss_bytes } = answer as Record<string, unknown>;
  return (
    hasNumbers(pool, ['entries', 'used_bytes', 'capacity_bytes', 'evictions']) &&
    hasNumbers(reads, ['local', 'remote', 'disk', 'misses']) &&
    hasNumbers(disk ?? undefined, ['entries', 'used_bytes', 'capacity_bytes']) &&
    hasNumbers(directory, ['keys']) &&
    hasClients(clients) &&
    (rss_bytes === undefined || typeof rss_bytes === 'number')
  );
}

function hasClients(clients: unknown): boolean {
  if (clients === undefined) return true;
  const { busiest } = clients as { readonly busiest?: unknown };
  if (!hasNumbers(clients, ['attached']) || !Array.isArray(busiest)) return false;
  return busiest.every(
    (client) =>
      hasNumbers(client ?? null, CLIENT_COUNTS) && typeof client.name === 'string' && typeof client.mode === 'string',
  );
}

/** Whether a part that is there has these fields. */
function hasNumbers(part: unknown, names: readonly string[]): boolean {
  if (part === undefined) return true;
  if (typeof part !== 'object' || part === null) return false;
  return names.every((name) => typeof (part as Record<string, unknown>)[name] === 'number');
}
