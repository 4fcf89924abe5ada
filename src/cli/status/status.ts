import { Command } from 'commander';
import { within } from '../../base/environment/clock.js';
import { type Endpoint, formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import { formatSize } from '../../base/sizes.js';
import { type CommandContext, printResult } from '../../command/context.js';
import { CommandFailure, wrongUsage } from '../../command/failure.js';
import { configOption, discoveryEndpoints, jsonOption } from '../../command/options.js';
import { formatCount, formatShare, formatTableOrBlocks, printable } from '../../command/table.js';
import { localAddressOf } from '../../discovery/local-address.js';
import type { SecurityConfig } from '../../net/secured-environment.js';
import { ringShares } from '../../node/reporting/ring-shares.js';
import { systemHost } from '../../system/system-host.js';
import type { NodeInfo } from '../../types.js';
import { mastersOf, readConfiguration, securityOf } from '../settings/configuration.js';
import { isLoopback, metricsUrl } from '../settings/metrics-url.js';
import { clientRows, furtherClients } from './clients-table.js';
import { ClusterQuery, type NodeStatus } from './cluster-query.js';

const DEFAULT_VNODES = 160;
const WATCH_INTERVAL_MS = 2_000;

export type NodeRow = {
  readonly node_id: string;
  readonly control_endpoint: string;
  readonly ring_share: number;
  /** Address on which the node's metrics server listens on its own machine; empty if it has none. */
  readonly metrics_endpoint: string;
  /** Address of the node's dashboard for a browser on this machine; empty if none can be reached from here. */
  readonly metrics_url: string;
} & (
  | ({ readonly state: 'up' } & Omit<NodeStatus, 'node_id' | 'control_endpoint' | 'metrics_endpoint'>)
  | {
      readonly state: 'unreachable';
      readonly error: string;
      readonly pool?: undefined;
      readonly clients?: undefined;
    }
);

export interface StatusResult {
  readonly discovery_addr: string;
  readonly nodes: readonly NodeRow[];
}

interface StatusOptions {
  readonly discoveryAddr?: readonly Endpoint[];
  readonly config?: string;
  readonly watch: boolean;
  readonly json: boolean;
}

/** The members according to the first master that answers, each with its report about itself. */
export async function clusterStatus(
  masters: readonly Endpoint[],
  security: SecurityConfig = {},
): Promise<StatusResult> {
  const query = new ClusterQuery(security);
  try {
    return await statusBy(query, masters);
  } finally {
    await query.close();
  }
}

export function statusCommand(context: CommandContext): Command {
  return new Command('status')
    .description('show the members of a running cluster, their shares of the ring, pools, disks, hit rates and clients')
    .option('--discovery-addr <host:port>', 'a discovery master; several are comma-separated', discoveryEndpoints)
    .addOption(configOption())
    .option('--watch', 'refresh every 2 seconds until Ctrl-C', false)
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache status --discovery-addr 10.0.0.1:31990
  meshcache status --discovery-addr 10.0.0.1:31990,10.0.0.2:31990 --json
  meshcache status --config node.json --watch

Without --discovery-addr the address is taken from MESHCACHE_DISCOVERY_ADDR in the environment, then from the file.
Ends with status 1 when no discovery master answers; a member that does not is shown as unreachable.`,
    )
    .action(async (options: StatusOptions) => {
      if (options.watch && options.json) throw wrongUsage('--watch prints text; leave it or --json out');
      const { masters, security } = await whomToAsk(options, context);
      if (options.watch) return watchStatus(masters, security, context);
      const progress = context.progress();
      progress.update('asking the discovery master and the nodes');
      const result = await clusterStatus(masters, security).finally(() => progress.end());
      printResult(context, result, { json: options.json, asText: (shown) => formatStatus(shown, context.columns) });
    });
}

async function whomToAsk(
  options: StatusOptions,
  context: CommandContext,
): Promise<{ readonly masters: readonly Endpoint[]; readonly security: SecurityConfig }> {
  const { config, discoveryAddr } = options;
  const configuration = await readConfiguration({
    ...(config === undefined ? {} : { config }),
    ...(discoveryAddr === undefined ? {} : { discoveryAddr }),
  });
  for (const warning of configuration.warnings) context.warn(warning);
  const masters = mastersOf(configuration);
  if (masters !== undefined) return { masters, security: securityOf(configuration) };
  throw wrongUsage(
    '--discovery-addr is missing; give it here, as MESHCACHE_DISCOVERY_ADDR in the environment, or as discovery_addr in the file of --config',
  );
}

/** Shows the status again and again until the signal of `context` is aborted. Fails only if the first attempt fails. */
async function watchStatus(
  masters: readonly Endpoint[],
  security: SecurityConfig,
  context: CommandContext,
): Promise<void> {
  const aborted = new Promise<void>((resolve) => {
    context.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  const query = new ClusterQuery(security);
  try {
    for (let isFirst = true; !context.signal.aborted; isFirst = false) {
      const text = statusBy(query, masters).then(
        (result) => formatStatus(result, context.columns),
        (error: unknown) => {
          if (isFirst || !(error instanceof CommandFailure)) throw error;
          return error.message;
        },
      );
      const shown = await Promise.race([text, aborted]);
      if (shown === undefined) break;
      context.print(`${new Date(context.clock.wallMs()).toISOString()}  ${shown}\n`);
      await within(context.clock, WATCH_INTERVAL_MS, aborted);
    }
  } finally {
    await query.close();
  }
}

async function statusBy(query: ClusterQuery, masters: readonly Endpoint[]): Promise<StatusResult> {
  const members = await query.members(masters);
  members.sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
  const answers = await Promise.all(members.map((member) => query.status(member)));
  const nodeIds = members.map((member) => member.nodeId);
  const shares = ringShares(nodeIds, vnodesOf(answers));
  const nodes = await Promise.all(
    members.map(async (member, i) => {
      const isHere = (await localAddressOf(member.controlHost, systemHost)) !== undefined;
      return nodeRow(member, answers[i] as NodeAnswer, { ringShare: shares.get(member.nodeId) ?? 0, isHere });
    }),
  );
  return { discovery_addr: masters.map(formatEndpoint).join(','), nodes };
}

type NodeAnswer = NodeStatus | { readonly error: string };

/** A row of the table; `isHere` means that the member is on this machine. */
export function nodeRow(
  member: NodeInfo,
  answer: NodeAnswer,
  { ringShare, isHere }: { readonly ringShare: number; readonly isHere: boolean },
): NodeRow {
  const { metricsPort: port, controlHost } = member;
  const host = member.metricsHost || controlHost;
  const metricsEndpoint = port > 0 ? formatEndpoint({ host, port }) : '';
  const isReachable = isHere || !isLoopback(host);
  const base = {
    node_id: member.nodeId,
    control_endpoint: formatEndpoint({ host: controlHost, port: member.controlPort }),
    ring_share: ringShare,
    metrics_endpoint: metricsEndpoint,
    metrics_url: (isReachable && metricsUrl(metricsEndpoint, controlHost)) || '',
  };
  if ('error' in answer) return { ...base, state: 'unreachable', error: answer.error };
  return { ...answer, ...base, state: 'up' };
}

function vnodesOf(answers: readonly NodeAnswer[]): number {
  for (const answer of answers) if ('vnodes' in answer && answer.vnodes !== undefined) return answer.vnodes;
  return DEFAULT_VNODES;
}

/** Formats the status for a terminal with that many `columns`. */
export function formatStatus(result: StatusResult, columns?: number): string {
  const { nodes } = result;
  const up = nodes.filter((node) => node.state === 'up').length;
  const title = `${nodes.length} members at ${result.discovery_addr}, ${up} of them reachable${mastersOfNodes(nodes)}`;
  const clients = clientRows(nodes);
  const notes = [...remarks(nodes)].map(([text, nodeIds]) => `${nodeIds.join(', ')}: ${text}`);
  notes.push(...furtherClients(nodes));
  return [
    title,
    `\n\n${formatTableOrBlocks(nodes.map(tableRow), columns)}`,
    clients.length > 0 ? `\n\n${formatTableOrBlocks(clients, columns)}` : '',
    notes.length > 0 ? '\n' : '',
    ...notes.map((note) => `\n${printable(note)}`),
  ].join('');
}

/** Addresses at which a new node can join, whether they are listed or not. */
function mastersOfNodes(nodes: readonly NodeRow[]): string {
  for (const node of nodes) {
    if (node.state === 'up' && node.masters?.length)
      return `\ndiscovery masters: ${printable(node.masters.join(', '))}`;
  }
  return '';
}

/**
 * Remarks that do not fit into the table, such as problems of nodes and why they read over another transport than
 * wanted, each with the names of its nodes.
 */
function remarks(nodes: readonly NodeRow[]): Map<string, string[]> {
  const byText = new Map<string, string[]>();
  for (const node of nodes) {
    for (const text of remarksOf(node)) byText.set(text, [...(byText.get(text) ?? []), node.node_id]);
  }
  return byText;
}

function remarksOf(node: NodeRow): string[] {
  if (node.state === 'unreachable') return [];
  const { health, transport, data_protocol } = node;
  const fellBack = transport?.wanted !== data_protocol && transport?.reason;
  const reads = fellBack ? [`reads over ${data_protocol}, not ${transport.wanted}: ${transport.reason}`] : [];
  return [...(health?.reasons ?? []), ...reads];
}

function tableRow(node: NodeRow): Record<string, string> {
  const base = { node: node.node_id, control: node.control_endpoint, ring: formatShare(node.ring_share, 1) };
  const port = parseEndpoint(node.metrics_endpoint)?.port;
  const metrics = node.metrics_url || (port === undefined ? '-' : `${port}, only on that host`);
  if (node.state === 'unreachable') return { ...base, state: `unreachable: ${node.error}`, metrics };
  const { pool, reads, directory, clients } = node;
  const hits = reads === undefined ? 0 : reads.local + reads.remote + reads.disk;
  return {
    ...base,
    state: [node.health?.status === 'degraded' ? 'degraded' : 'up', ...(node.is_meta ? ['head'] : [])].join(', '),
    data: [node.data_protocol, node.data_endpoint].filter(Boolean).join(' ') || '-',
    pool: pool === undefined ? '-' : `${formatSize(pool.used_bytes)} of ${formatSize(pool.capacity_bytes)}`,
    pages: pool === undefined ? '-' : formatCount(pool.entries),
    evicted: pool === undefined ? '-' : formatCount(pool.evictions),
    disk: node.disk ? `${formatSize(node.disk.used_bytes)} of ${formatSize(node.disk.capacity_bytes)}` : '-',
    'disk pages': node.disk ? formatCount(node.disk.entries) : '-',
    keys: directory === undefined ? '-' : formatCount(directory.keys),
    reads: formatCount(hits),
    hits: reads === undefined ? '-' : formatShare(hits, hits + reads.misses),
    remote: reads === undefined ? '-' : formatShare(reads.remote, hits),
    'from disk': reads === undefined ? '-' : formatShare(reads.disk, hits),
    clients: clients === undefined ? '-' : formatCount(clients.attached),
    memory: node.rss_bytes === undefined ? '-' : formatSize(node.rss_bytes),
    metrics,
  };
}
