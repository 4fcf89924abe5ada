import type { Environment } from '../../base/environment/environment.js';
import { silentLogger } from '../../base/environment/log.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { AuthError, MeshCacheError } from '../../base/errors.js';
import { CommandFailure } from '../../command/context.js';
import { isNodeId, isWholeNumber } from '../../directory/messages/location-columns.js';
import { DiscoveryMethod, decodeAnswer, type Roster } from '../../discovery/messages/wire.js';
import type { NodeReport } from '../../metrics/node-report.js';
import { isReportLike } from '../../metrics/report-checks.js';
import { type SecurityConfig, securedEnvironment } from '../../net/credentials/secured-environment.js';
import { DRAIN_METHOD, DRAIN_STATES, type DrainProgress, type DrainState } from '../../node/leaving/drain.js';
import { STATUS_METHOD } from '../../node/reporting/cluster-reporter.js';
import { RpcClient } from '../../rpc/client.js';
import { MessageCodec } from '../../rpc/message.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { NodeInfo } from '../../types.js';

/** A node's report about itself; an older version leaves fields out. */
export type NodeStatus = Partial<NodeReport> & Pick<NodeReport, 'node_id'>;

/** Words in the answer to an unauthenticated peer. */
const SECURITY_WORDS = /cluster_secret|certificate/;

/** An order to drain a node. */
export interface DrainOrder {
  /** Longest time for handing over pages. */
  readonly timeoutMs: number;
  /** Token of a user of the node who may drain. */
  readonly token?: string | undefined;
}

/** No master answered; the message gives the reasons and what to check. */
export class NoMasterFailure extends CommandFailure {
  /** One reason for each master. */
  readonly reasons: readonly string[];
  /** Whether a master is there, but this program and the master could not authenticate each other. */
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

/** A master's answer, and the wall-clock time of this machine when it arrived. */
interface MasterAnswer {
  readonly roster: Roster;
  readonly clusterMs: number | undefined;
  readonly nowMs: number;
}

/** The reason why a master has not answered. */
class NoAnswer {
  readonly isSilent: boolean;
  readonly isAuthentication: boolean;

  constructor(
    readonly reason: string,
    error?: Error,
  ) {
    this.isSilent = error instanceof MeshCacheError && error.code === 'ERR_TIMEOUT';
    this.isAuthentication = error instanceof AuthError || (error !== undefined && SECURITY_WORDS.test(error.message));
  }
}

function isAnswer(answer: MasterAnswer | NoAnswer): answer is MasterAnswer {
  return !(answer instanceof NoAnswer);
}

/** Queries masters and nodes without joining the cluster. */
export class ClusterQuery {
  /**
   * Milliseconds by which the clock of this machine is ahead of the cluster's, as of the last call of {@link members};
   * undefined: unknown.
   */
  offsetMs: number | undefined;
  readonly #codec = new MessageCodec();
  readonly #env: Environment;
  /** Client for nodes; masters get a new one for each call. */
  readonly #rpc: RpcClient;

  /** Uses the cluster's secret and certificates. Throws `ConfigError` if one of their files cannot be used. */
  constructor(security: SecurityConfig = {}) {
    const env = securedEnvironment(security, systemEnvironment({ log: silentLogger }));
    this.#env = env;
    this.#rpc = new RpcClient({ env });
  }

  /**
   * The members according to all masters that answer, because masters may be cut off from each other. If none answers
   * and at least one was silent, as on a machine that is too busy, all are asked once more. Throws {@link
   * NoMasterFailure} if none answers.
   */
  async members(masters: readonly Endpoint[]): Promise<NodeInfo[]> {
    this.offsetMs = undefined;
    let answers = await this.#askAll(masters);
    if (!answers.some(isAnswer) && answers.some((answer) => !isAnswer(answer) && answer.isSilent))
      answers = await this.#askAll(masters);
    const rosters = answers.filter(isAnswer);
    const silent = answers.flatMap((answer) => (answer instanceof NoAnswer ? [answer] : []));
    let largest = 0;
    for (const { roster, clusterMs, nowMs } of rosters) {
      // Masters may be cut off from each other, so the date is that of the master with the most members.
      if (clusterMs === undefined || roster.members.size <= largest) continue;
      largest = roster.members.size;
      this.offsetMs = nowMs - clusterMs;
    }
    if (rosters.length > 0) return allMembers(rosters.map(({ roster }) => roster));
    throw new NoMasterFailure(
      silent.map(({ reason }) => reason),
      silent.some(({ isAuthentication }) => isAuthentication),
    );
  }

  /** Asks over new connections, because one that was silent is not tried again at once. */
  async #askAll(masters: readonly Endpoint[]): Promise<(MasterAnswer | NoAnswer)[]> {
    const discovery = new RpcClient({ service: 'discovery', env: this.#env });
    try {
      return await Promise.all(masters.map((master) => this.#ask(discovery, master)));
    } finally {
      await discovery.close();
    }
  }

  async #ask(discovery: RpcClient, master: Endpoint): Promise<MasterAnswer | NoAnswer> {
    const where = formatEndpoint(master);
    try {
      const answer = decodeAnswer(this.#codec, await discovery.call(master, DiscoveryMethod.members, {}));
      const { roster, clusterMs } = answer;
      if (roster === undefined) return new NoAnswer(`${where}: answers without a list of members`);
      return { roster, clusterMs, nowMs: Date.now() };
    } catch (error) {
      const { message } = error as Error;
      return new NoAnswer(message.startsWith(where) ? message : `${where}: ${message}`, error as Error);
    }
  }

  /** A node's answer, or the reason why there is none. */
  async status(node: NodeInfo): Promise<NodeStatus | { readonly error: string }> {
    try {
      const endpoint = { host: node.controlHost, port: node.controlPort };
      const answer = await this.#rpc.call(endpoint, STATUS_METHOD, {});
      return isStatus(answer) ? answer : { error: 'answers, but not with a status of this version' };
    } catch (error) {
      return { error: (error as Error).message };
    }
  }

  /**
   * Orders a node to drain, or asks for its progress. Rejects with `MeshCacheError` if the node does not answer or
   * refuses.
   */
  async drain(endpoint: Endpoint, { timeoutMs, token }: DrainOrder): Promise<DrainProgress> {
    const params = { timeout_ms: timeoutMs, ...(token === undefined ? {} : { token }) };
    return readDrainProgress(await this.#rpc.call(endpoint, DRAIN_METHOD, params), endpoint);
  }

  async close(): Promise<void> {
    await this.#rpc.close();
  }
}

/**
 * The members that any of these masters lists, each as its latest start has described it. A node that has left
 * according to any master is no member; one that is lost to a master may be cut off from that master only.
 */
export function allMembers(rosters: readonly Roster[]): NodeInfo[] {
  const latest = new Map<string, NodeInfo>();
  for (const { members } of rosters) {
    for (const [nodeId, info] of members) {
      const known = latest.get(nodeId);
      if (known === undefined || known.incarnation < info.incarnation) latest.set(nodeId, info);
    }
  }
  for (const { nodeId, incarnation, hasLeft } of rosters.flatMap(({ gone }) => gone)) {
    const known = latest.get(nodeId);
    if (hasLeft && known !== undefined && known.incarnation <= incarnation) latest.delete(nodeId);
  }
  return [...latest.values()];
}

/** Checks the drain progress of the node at `endpoint`. Throws {@link CommandFailure} for any other answer. */
export function readDrainProgress(value: unknown, endpoint: Endpoint): DrainProgress {
  const answer = value as DrainProgress | null;
  const isIt =
    DRAIN_STATES.includes(answer?.state as DrainState) &&
    isNodeId(answer?.node_id) &&
    PROGRESS_COUNTS.every((name) => isWholeNumber(answer?.[name]));
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

/** Checks the fields that are printed and added up. A node of an older version omits fields. */
export function isStatus(answer: unknown): answer is NodeStatus {
  // With a field `error`, the status would be mistaken for the reason why there is none.
  if (!isReportLike(answer) || 'error' in (answer as object)) return false;
  const { pool, reads, disk, directory, clients, redis, quotas, prefetched, named_pins, rss_bytes } = answer as Record<
    string,
    unknown
  >;
  return (
    hasNumbers(pool, ['entries', 'used_bytes', 'capacity_bytes', 'evictions']) &&
    hasNumbers(reads, ['local', 'remote', 'disk', 'misses']) &&
    hasNumbers(disk ?? undefined, ['entries', 'used_bytes', 'capacity_bytes']) &&
    hasNumbers(directory, ['keys']) &&
    hasClients(clients) &&
    hasRedis(redis) &&
    hasQuotas(quotas) &&
    (prefetched === undefined || hasNumbers(prefetched, PREFETCHED)) &&
    hasNamedPins(named_pins) &&
    (rss_bytes === undefined || typeof rss_bytes === 'number')
  );
}

function hasRedis(redis: unknown): boolean {
  if (redis === undefined) return true;
  const { addresses } = (redis ?? {}) as { readonly addresses?: unknown };
  const areTexts = Array.isArray(addresses) && addresses.every((address) => typeof address === 'string');
  return areTexts && hasNumbers(redis, ['connections', 'commands']);
}

const PREFETCHED = ['brought', 'used', 'wasted', 'unread_bytes'] as const;

const QUOTA_USE = ['entries', 'used_bytes', 'min_bytes', 'max_bytes', 'evictions'] as const;

function hasQuotas(quotas: unknown): boolean {
  if (quotas === undefined) return true;
  if (!Array.isArray(quotas)) return false;
  return quotas.every((quota: unknown) => {
    const { namespace, pool, disk } = (quota ?? {}) as Record<string, unknown>;
    const isUsed = hasNumbers(pool ?? null, QUOTA_USE) && (disk === null || hasNumbers(disk ?? null, QUOTA_USE));
    return typeof namespace === 'string' && isUsed;
  });
}

function hasNamedPins(pins: unknown): boolean {
  if (pins === undefined) return true;
  if (!Array.isArray(pins)) return false;
  return pins.every((pin: unknown) => {
    const { namespace, name } = (pin ?? {}) as Record<string, unknown>;
    return hasNumbers(pin ?? null, ['pages', 'bytes']) && typeof namespace === 'string' && typeof name === 'string';
  });
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

/** Whether a part is absent, or has these fields as numbers. */
function hasNumbers(part: unknown, names: readonly string[]): boolean {
  if (part === undefined) return true;
  if (typeof part !== 'object' || part === null) return false;
  return names.every((name) => typeof (part as Record<string, unknown>)[name] === 'number');
}
